"""What the tests launch kernels with, as a worker sees it: Triton's interpreter, cuTile on CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.analysis.common.following import following
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.analysis.triton.dialect import TRITON as TRITON_DIALECT
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import deadline_in
from agent.launches import ObservedLaunch, ObservedTensor, by_cost, values_of
from agent.syntax import Source
from tests.support.workers import Project, nodeids, start_server

TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * factor, mask=offsets < n)


def scale(x, factor=2.0):
    y = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
    scale_kernel[grid](x, y, x.numel(), factor, BLOCK=64, num_warps=2)
    return y
"""
TESTS = """
import pytest
import torch
from kernel import scale


@pytest.mark.parametrize("n", [100, 200])
def test_scale(n):
    for _ in range(100):
        assert torch.equal(scale(torch.ones(n)[1:]), torch.full((n - 1,), 2.0))


def test_of_something_else():
    pass
"""


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    log = tmp_path_factory.mktemp("server") / "server.log"
    with start_server(log, TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="") as server:
        yield server


def observed(project: Project, server: ForkServer, *, observes: bool) -> tuple[ObservedLaunch, ...]:
    with project.arm(server) as arm:
        return arm.run(nodeids(arm), deadline_in(60), observes=observes).launches


def test_launches_of_triton(tmp_path: Path, interpreted: ForkServer) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    project = Project(tmp_path / "project", TESTS, TRITON)
    assert observed(project, interpreted, observes=False) == ()
    small, large = observed(project, interpreted, observes=True)
    assert small.kernel == "scale_kernel"
    assert small.test == "test_kernel.py::test_scale[100]"
    assert (small.grid, large.grid) == ((2,), (4,))
    assert small.integers == {"n": 99, "BLOCK": 64}
    assert small.options == {"num_warps": 2}
    assert small.tensors["x_ptr"] == ObservedTensor("float32", (99,), (1,), aligned=False)
    assert small.tensors["y_ptr"].aligned
    assert values_of((small, large), "scale_kernel", "n") == (99, 199)
    assert values_of((small, large), "scale_kernel", "factor") == ()
    assert str(small) == (
        "scale_kernel[2](x_ptr=float32[99], y_ptr=float32[99], n=99, BLOCK=64, num_warps=2)"
    )


def test_a_kernel_that_is_launched_after_many_launches_of_another(
    tmp_path: Path, interpreted: ForkServer
) -> None:
    """A backward pass, timed in the test that has timed the forward pass before."""
    pytest.importorskip("triton", reason="triton is not installed")
    negate = TRITON[TRITON.index("@triton.jit") :].replace("scale", "negate").replace("* f", "* -f")
    tests = TESTS.replace("import scale", "import negate, scale").replace(
        "def test_of_something_else():\n    pass",
        "def test_negate():\n    for _ in range(100):\n        scale(torch.ones(9))\n"
        "    negate(torch.ones(7))",
    )
    project = Project(tmp_path / "project", tests, f"{TRITON}\n\n{negate}")
    seen = observed(project, interpreted, observes=True)
    assert [launch.integers["n"] for launch in seen if launch.kernel == "negate_kernel"] == [7]


WITHIN = """
import torch
import triton
import triton.language as tl


class Scale:
    @staticmethod
    @triton.jit
    def forward(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(y_ptr + offsets, 2.0 * x, mask=offsets < n)


def negating():
    @triton.jit
    def kernel(y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        y = tl.load(y_ptr + offsets, mask=offsets < n)
        tl.store(y_ptr + offsets, -y, mask=offsets < n)

    return kernel


def scale(x):
    y = torch.empty_like(x)
    Scale.forward[(4,)](x, y, x.numel(), BLOCK=64)
    negating()[(4,)](y, y.numel(), BLOCK=64)
    negating()[(4,)](y, y.numel(), BLOCK=64)
    return y
"""


def test_kernels_in_classes_and_functions_have_the_names_of_their_source(
    tmp_path: Path, interpreted: ForkServer
) -> None:
    """A dozen classes may each have a kernel `forward`."""
    pytest.importorskip("triton", reason="triton is not installed")
    seen = observed(Project(tmp_path / "project", TESTS, WITHIN), interpreted, observes=True)
    names = {kernel.name for kernel in TRITON_DIALECT.kernels(Source(WITHIN))}
    assert {launch.kernel for launch in seen} == names == {"Scale.forward", "negating.kernel"}


BY_OTHER_NAMES = """
    _launch(scale_kernel, x, y, factor)
    KERNELS["negate"][(1,)](y, y, y.numel(), -1.0, BLOCK=128)
    return y


@triton.jit
def negate_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * factor, mask=offsets < n)


KERNELS = {"negate": negate_kernel}


def _launch(kernel, x, y, factor):
    kernel[(4,)](x, y, x.numel(), factor, BLOCK=64)
"""


def test_kernels_that_go_by_other_names_are_told_by_their_own(
    tmp_path: Path, interpreted: ForkServer
) -> None:
    """So that it is known which of the kernels that one launch may launch tests launch there."""
    pytest.importorskip("triton", reason="triton is not installed")
    text = TRITON[: TRITON.index("    grid = ")] + BY_OTHER_NAMES.lstrip("\n")
    tests = TESTS.replace("2.0)", "-2.0)")
    seen = observed(Project(tmp_path / "project", tests, text), interpreted, observes=True)
    assert {launch.kernel: launch.integers["BLOCK"] for launch in seen} == {
        "scale_kernel": 64,
        "negate_kernel": 128,
    }
    asked = Subject(
        Source(text, "kernel.py", by_cost(seen, {})), KernelClass.MEMORY, Hardware(sm=90), seen
    )
    for kernel in TRITON_DIALECT.chosen(following(TRITON_DIALECT, asked).source):
        (launch,) = kernel.launches
        given = launch.arguments["BLOCK"]
        assert values_of(seen, kernel.name, "BLOCK") == (asked.source.trace(given).value,)


CUTILE = """
import cuda.tile as ct
import torch


@ct.kernel
def scale_kernel(x, y, TILE: ct.Constant[int]):
    block = ct.bid(0)
    ct.store(y, index=(block,), tile=ct.load(x, index=(block,), shape=(TILE,)) * 2.0)


def scale(x):
    y = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.numel(), 16), 1, 1), scale_kernel, (x, y, 16))
    return y
"""


def test_launches_of_cutile(tmp_path: Path, server: ForkServer) -> None:
    pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")
    project = Project(tmp_path / "project", TESTS.replace('"n", [100, 200]', '"n", [65]'), CUTILE)
    with project.arm(server, "test_kernel.py", "--tile-cpu") as arm:
        (launch,) = arm.run(nodeids(arm), deadline_in(60), observes=True).launches
    assert (launch.kernel, launch.grid) == ("scale_kernel", (4, 1, 1))
    assert launch.integers == {"TILE": 16}
    assert launch.tensors["x"].shape == (64,)


def test_what_a_pass_shows_is_bounded(tmp_path: Path, interpreted: ForkServer) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    test = """
        import pytest
        import torch
        from kernel import scale

        @pytest.mark.parametrize("part", range(5))
        def test_scale(part):
            for n in range(50):
                scale(torch.ones(1 + 50 * part + n))
    """
    project = Project(tmp_path / "project", test, TRITON)
    assert len(observed(project, interpreted, observes=True)) == 128


def test_launches_are_told_with_the_timings_that_make_them(
    tmp_path: Path, interpreted: ForkServer
) -> None:
    """Of a benchmark of many shapes, also the last; what is launched beside them is none's."""
    pytest.importorskip("triton", reason="triton is not installed")
    test = """
        import torch
        import triton.testing
        from kernel import scale

        def test_all(tile_bench):
            x = torch.ones(8)
            for _ in range(50):
                scale(x)
            for n in (8, 16):
                y = torch.ones(n)
                tile_bench(lambda: scale(y), config=f"n={n}", warmup_ms=1, rep_ms=5)
            triton.testing.do_bench(lambda: scale(y), warmup=1, rep=5)
            for n in (64, 128):
                z = torch.ones(n)
                tile_bench(lambda: scale(z), warmup_ms=1, rep_ms=5)
            scale(torch.ones(32))
    """
    project = Project(tmp_path / "project", test, TRITON)
    with project.arm(interpreted) as arm:
        seen = arm.run(nodeids(arm), deadline_in(60), observes=True, timed=True).launches
    test_id = "test_kernel.py::test_all"
    assert {launch.integers["n"]: launch.timings for launch in seen} == {
        8: ((test_id, "n=8"),),
        16: ((test_id, "n=16"), (test_id, "forward")),
        64: ((test_id, "#2"),),
        128: ((test_id, "#3"),),
        32: (),
    }
