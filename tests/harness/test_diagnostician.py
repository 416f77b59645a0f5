"""From a checkout to a diagnosis: real compilers, real launches, latencies that are given."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.causes import Cause
from agent.environment import Gpu
from agent.evidence.duplicates import CompiledCommit
from agent.harness.compiling.artifacts import Wanted
from agent.harness.compiling.candidate_compiler import ForkedCompiler
from agent.harness.diagnostician import (
    LEAST_PROFILE_S,
    NO_TIME,
    NOT_NEEDED,
    UNPROFILED,
    Diagnostician,
    observed_work,
    written_by,
)
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import Checkout
from agent.launches import ObservedLaunch, ObservedTensor
from agent.suggesting import looking
from agent.syntax import Source
from tests.support.evidence import CUTILE, TEST, TRITON, evidence
from tests.support.repo import write
from tests.support.warm_python import warm_interpreter
from tests.support.workers import start_server

H200 = Gpu("NVIDIA H200", "GPU-0", 90, 143771, "580.159.04")
ROOT = Path(__file__).parents[2]
SOFTMAX = (ROOT / "examples/cutile_softmax/softmax.py").read_text()
SIZES = """\
import pytest
import torch
from softmax import softmax


@pytest.mark.parametrize("rows", [256, 16384])
def test_perf_rows(rows, tile_bench):
    x = torch.ones(rows, 4096, device="cuda", dtype=torch.bfloat16)
    tile_bench(lambda: softmax(x))
    if rows == 256:
        tile_bench(lambda: softmax(x), config="again")
"""


@pytest.fixture(autouse=True)
def _without_ncu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.harness.ncu.find_ncu", lambda: None)


@pytest.fixture(scope="module")
def compiling_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """As on a machine with a GPU: Triton compiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRITON_INTERPRET", raising=False)
        with start_server(tmp_path_factory.mktemp("server") / "server.log") as server:
            yield server


GIVEN = "kernel.py", (), warm_interpreter()
"""What a suggested command gives again."""


def wanted(backend: str) -> Wanted:
    return Wanted(backend, (90,), python=warm_interpreter(), has_gpu=False)


@pytest.mark.full
def test_the_longest_timing_of_several(compiling_server: ForkServer, tmp_path: Path) -> None:
    """By the names that records have; the compile comes from the run's own compiler."""
    pytest.importorskip("cuda.tile")
    root = tmp_path / "checkout"
    write(root, {"softmax.py": SOFTMAX, "test_softmax.py": SIZES})
    checkout = Checkout(root, (root,), "softmax.py")
    compiler = ForkedCompiler(compiling_server, wanted("cutile"), tmp_path)
    levels_ms = {
        "test_perf_rows[256]": 0.009,
        "test_perf_rows[256] again": 0.01,
        "test_perf_rows[16384]": 0.3795,
    }
    (made,) = compiler.compile([checkout], ("test_softmax.py",))
    found = Diagnostician(wanted("cutile"), H200).diagnose(checkout, levels_ms, made)
    assert found.cause is Cause.OCCUPANCY
    assert found.evidence[0].startswith("compiled: softmax_kernel for sm_90: 1 block = 8 of 64")
    assert (
        "measured: test_softmax.py::test_perf_rows[16384]: 0.379500 ms for 268.4 MB of tensors, "
        "707 GB/s"
    ) in found.evidence
    assert any("Nsight Compute is not installed" in line for line in found.evidence)


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, CompiledCommit]:
    """A Triton kernel that moves 8.4 MB, and what it compiles to."""
    pytest.importorskip("triton")
    root = tmp_path_factory.mktemp("scale")
    found = evidence(root, TRITON)
    made = CompiledCommit(found.results, found.sequence, complete=True, work=found.work)
    return Checkout(root, (root,), "kernel.py"), made


def test_names_that_begin_with_their_file(scale: tuple[Checkout, CompiledCommit]) -> None:
    """As records have them where two files hold tests of the same name."""
    checkout, made = scale
    doctor = Diagnostician(wanted("triton"), H200)
    found = doctor.diagnose(checkout, {"test_kernel.py::test_perf_run": 0.0032}, made)
    assert found.cause is Cause.MEMORY  # 8.4 MB take 1.7 us at the least
    assert any("0.003200 ms" in line for line in found.evidence)
    lost = doctor.diagnose(checkout, {"test_other": 1.0}, made)
    assert "missing: no launch was seen that belongs to test_other" in lost.evidence
    assert not any(line.startswith("measured") for line in lost.evidence)
    assert not any("variants" in line for line in lost.evidence)


def test_a_grid_is_the_one_that_was_launched_on_the_gpu(
    scale: tuple[Checkout, CompiledCommit],
) -> None:
    """Where there is none, a host that asks for its multiprocessors launches another one."""
    checkout, made = scale
    (work,) = made.work
    seen = replace(launch(work.test, 2, work.kernels[0]), timings=((work.test, work.config),))
    doctor = Diagnostician(wanted("triton"), H200)
    found = doctor.diagnose(checkout, {"test_perf_run": 0.5}, made, [seen])
    assert f"launched: {seen.kernel} with 2 blocks for 132 multiprocessors" in found.evidence
    twice = replace(made, work=(work, work))  # neither is known to be what was seen
    unknown = doctor.diagnose(checkout, {"test_perf_run": 0.5}, twice, [seen])
    assert not any("with 2 blocks" in line for line in unknown.evidence)


def test_latencies_of_the_interpreter_are_none_of_a_gpu(
    scale: tuple[Checkout, CompiledCommit],
) -> None:
    checkout, made = scale
    found = Diagnostician(wanted("triton"), None).diagnose(checkout, {"test_perf_run": 12.0}, made)
    assert found.cause is Cause.MEMORY
    assert "missing: no latency of a GPU: this is what source and compiler say alone" in (
        found.evidence
    )
    assert not any(line.startswith("measured") for line in found.evidence)


def test_without_a_compiler_the_source_speaks(tmp_path: Path) -> None:
    write(tmp_path, {"kernel.py": TRITON, "test_kernel.py": TEST})
    checkout = Checkout(tmp_path, (tmp_path,), "kernel.py")
    found = Diagnostician(wanted("triton"), None).diagnose(checkout, {})
    assert found.cause is Cause.MEMORY
    assert any(line.startswith("missing: what the kernel compiles to") for line in found.evidence)


@pytest.mark.parametrize(
    ("kernel", "stored"),
    [
        ("examples/triton_softmax/softmax.py", {"softmax_kernel": {"y_ptr"}}),
        ("examples/cutile_softmax/softmax.py", {"softmax_kernel": {"y"}}),
        ("examples/triton_layer_norm/layer_norm.py", {"layer_norm_kernel": {"y_ptr"}}),
        ("examples/cutile_rms_norm/rms_norm.py", {"rms_norm_kernel": {"y"}}),
    ],
)
def test_what_a_kernel_writes_is_read_from_its_source(
    kernel: str, stored: dict[str, set[str]]
) -> None:
    assert written_by(Source((ROOT / kernel).read_text())) == stored


def test_a_store_that_a_helper_makes_leaves_open_what_is_written() -> None:
    helper = "@triton.jit\ndef put(p, v):\n    tl.store(p, v)\n\n\n@triton.jit\ndef scale_kernel"
    text = TRITON.replace("@triton.jit\ndef scale_kernel", helper).replace("tl.store(", "put(")
    text = text.replace("    put(p, v)", "    tl.store(p, v)")
    assert "scale_kernel" in written_by(Source(TRITON))
    assert "scale_kernel" not in written_by(Source(text))


def test_a_store_to_one_of_two_arrays_leaves_open_what_is_written() -> None:
    file = "examples/cutile_softmax/softmax.py"
    text = (ROOT / file).read_text()
    assert "softmax_kernel" in written_by(Source(text))
    chosen = re.sub(r"ct\.store\(\s*y,", "ct.store(x if n_cols > 8 else y,", text)
    assert chosen != text
    assert "softmax_kernel" not in written_by(Source(chosen))


def launch(test: str, rows: int, kernel: str = "scale_kernel") -> ObservedLaunch:
    x = ObservedTensor("float32", (rows, 1024), (1024, 1), aligned=True)
    spread = ObservedTensor("bfloat16", (rows, 1024), (0, 1), aligned=True)
    tensors = {"x": x, "y": x, "scale": spread}
    return ObservedLaunch(kernel, test, (rows,), {"n": 1024}, tensors, {})


def test_each_timing_of_a_test_has_the_launches_that_it_makes() -> None:
    """What two of them launch is both's, what none was seen to time is nobody's."""
    test = "bench.py::python bench.py"
    both = ((test, "n=1"), (test, "n=2"))
    seen = [
        replace(launch(test, 8), timings=both),
        replace(launch(test, 1024, "other_kernel"), timings=both[1:]),
        launch(test, 4096),
    ]
    first, second = observed_work(seen, {f"{test} n=1": 0.1, f"{test} n=2": 0.2})
    assert (first.test, first.config, second.config) == (test, "n=1", "n=2")
    assert first.launches == (("scale_kernel", (8,)),)
    assert second.launches == (("scale_kernel", (8,)), ("other_kernel", (1024,)))
    assert first.tensor_bytes == 8 * 1024 * (4 + 4) + 1024 * 2


def test_what_was_seen_to_be_launched_gives_a_roof_where_nothing_compiles(tmp_path: Path) -> None:
    write(tmp_path, {"kernel.py": TRITON, "test_kernel.py": TEST})
    checkout = Checkout(tmp_path, (tmp_path,), "kernel.py")
    seen = [launch("test_kernel.py::test_perf", 1024), launch("test_kernel.py::test_two", 8)]
    levels_ms = {"test_perf": 0.0022, "test_two": 0.001, "test_two backward": 0.002}
    assert [work.test for work in observed_work(seen, levels_ms)] == ["test_kernel.py::test_perf"]
    doctor = Diagnostician(wanted("triton"), H200)
    found = doctor.diagnose(checkout, levels_ms, launches=seen)
    assert found.cause is Cause.MEMORY
    assert found.evidence[0] == "measured: 79% of the peak bandwidth, the nearer roof"
    moved = "0.002200 ms for 8.4 MB of tensors, 3814 GB/s"
    assert f"measured: test_kernel.py::test_perf: {moved}" in found.evidence
    assert "missing: no latency of a GPU: this is what source and compiler say alone" not in (
        found.evidence
    )


@pytest.mark.parametrize(
    ("dtype", "size_bytes"),
    [("float64", 64), ("bfloat16", 16), ("float8_e4m3fn", 8), ("bool", 8), ("complex64", 64)],
)
def test_the_bytes_of_a_tensor_that_was_seen(dtype: str, size_bytes: int) -> None:
    assert ObservedTensor(dtype, (2, 4), (4, 1), aligned=True).size_bytes == size_bytes
    assert ObservedTensor(dtype, (2, 4), (0, 1), aligned=True).size_bytes == size_bytes // 2
    assert ObservedTensor(dtype, (), (), aligned=True).size_bytes == size_bytes // 8


def test_what_does_not_compile_is_said(compiling_server: ForkServer, tmp_path: Path) -> None:
    pytest.importorskip("cuda.tile")
    root = tmp_path / "checkout"
    write(root, {"kernel.py": CUTILE.replace("2 * tile", "tile + ct.no"), "test_kernel.py": TEST})
    compiler = ForkedCompiler(compiling_server, wanted("cutile"), tmp_path)
    checkout = Checkout(root, (root,), "kernel.py")
    (made,) = compiler.compile([checkout], ("test_kernel.py",))
    found = Diagnostician(wanted("cutile"), None).diagnose(checkout, {}, made)
    assert any("scale_kernel(TILE=1024) for sm_90 is not compiled" in s for s in found.evidence)


@pytest.mark.full
def test_which_variant_of_a_kernel_that_tunes_itself_runs_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    configs = "[triton.Config({'BLOCK': block}) for block in (512, 1024, 2048)]"
    tuned = (
        TRITON.replace("@triton.jit", f"@triton.autotune({configs}, key=['n'])\n@triton.jit")
        .replace("x.numel(), BLOCK=BLOCK", "x.numel()")
        .replace("(triton.cdiv(x.numel(), BLOCK),)", "lambda c: (x.numel() // c['BLOCK'],)")
    )
    told = evidence(tmp_path, tuned)
    made = CompiledCommit(told.results, told.sequence, complete=True, work=told.work)
    found = Diagnostician(wanted("triton"), None).diagnose(
        Checkout(tmp_path, (tmp_path,), "kernel.py"), {}, made
    )
    assert not any(line.startswith("compiled") for line in found.evidence)
    assert found.evidence[-1].startswith(
        "missing: scale_kernel is compiled in 3 variants, as a kernel that tunes itself is, and "
    )


def test_variants_of_a_kernel_that_is_not_tuned_are_its_tests(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    at = TRITON.index("    scale_kernel[grid]")
    call = TRITON[at : TRITON.index("\n", at) + 1]
    told = evidence(tmp_path, TRITON.replace(call, call + call.replace("=BLOCK", "=512")))
    made = CompiledCommit(told.results, told.sequence, complete=True, work=told.work)
    checkout = Checkout(tmp_path, (tmp_path,), "kernel.py")
    found = Diagnostician(wanted("triton"), None).diagnose(checkout, {}, made)
    assert found.evidence[-1] == (
        "missing: scale_kernel is compiled in 2 variants, for the shapes, types and settings of "
        f"its tests: none stands for all of them; {looking('explain', *GIVEN)} shows them"
    )


def test_counters_are_not_read_unasked_nor_where_time_says_it_all(
    scale: tuple[Checkout, CompiledCommit], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr("agent.harness.ncu.find_ncu", lambda: asked.append("ncu"))
    checkout, made = scale
    levels_ms = {"test_kernel.py::test_perf_run": 0.0032}
    Diagnostician(wanted("triton"), H200, counters=False).diagnose(checkout, levels_ms, made)
    near_the_bandwidth = {"test_kernel.py::test_perf_run": 0.0021}
    found = Diagnostician(wanted("triton"), H200).diagnose(checkout, near_the_bandwidth, made)
    assert found.cause is Cause.MEMORY
    doctor = Diagnostician(wanted("triton"), H200)
    doctor.diagnose(checkout, {"test_kernel.py::test_perf_run": 0.00245}, made)  # 71 %
    unprofiled = doctor.diagnose(checkout, levels_ms, made, until=UNPROFILED)
    not_needed = NOT_NEEDED.format(looking("diagnose", *GIVEN))
    assert any(not_needed in line for line in unprofiled.evidence)
    assert not asked
    doctor.diagnose(checkout, levels_ms, made)
    assert asked


def test_no_profile_begins_when_calibration_s_time_is_over(
    scale: tuple[Checkout, CompiledCommit], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr("agent.harness.ncu.find_ncu", lambda: asked.append("ncu"))
    checkout, made = scale
    levels_ms = {"test_kernel.py::test_perf_run": 0.0032}
    doctor = Diagnostician(wanted("triton"), H200)
    until = time.monotonic() + LEAST_PROFILE_S / 2
    found = doctor.diagnose(checkout, levels_ms, made, until=until)
    assert not asked
    assert f"missing: {NO_TIME}" in found.evidence
    found = doctor.diagnose(checkout, levels_ms, made, until=until + LEAST_PROFILE_S)
    assert asked
    assert f"missing: {NO_TIME}" not in found.evidence
