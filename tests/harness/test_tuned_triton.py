"""Triton kernels that tune themselves: what Triton cannot keep on disk is held, in the interpreter
too, whose own time decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass
from tests.support.workers import Project, start_server

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("torch", reason="torch is not installed")

KERNEL = """
    import torch
    import triton
    import triton.language as tl

    HOOKED = []

    @triton.autotune(
        configs=[triton.Config({"BLOCK": size}, HOOK) for size in (16, 32, 64)], key=["n"]
    )
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    @triton.jit
    def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = (offsets < n) | EVEN
        tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)

    def double(x):
        y = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
        double_kernel[grid](x, y, x.numel())
        return y
"""
TEST = """
    import kernel
    import pytest
    import torch

    @pytest.mark.parametrize("n", [100, 128])
    def test_double(n):
        x = torch.randn(n)
        assert torch.equal(kernel.double(x), 2 * x)
"""
HOOKS = KERNEL.replace("HOOK)", "pre_hook=HOOKED.append)")
# Stands in for the GPU alone, and for the setting under which Triton looks on the disk, which the
# interpreter leaves out. It finds another config fastest every time, as noise may.
NOISE = """
    import pathlib
    COUNT = pathlib.Path(COUNT_FILE)

    def do_bench(kernel_call, quantiles):
        kernel_call()
        runs = len(COUNT.read_text()) if COUNT.exists() else 0
        COUNT.write_text("x" * (runs + 1))
        return [float((runs + runs // 3) % 3)] * 3

    type(double_kernel).do_bench = property(lambda tuner: do_bench)
    double_kernel.cache_results = True
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    """A fork server whose workers interpret Triton."""
    with start_server(tmp_path / "server.log", TRITON_INTERPRET="1") as server:
        yield server


def passed(project: Project, server: ForkServer) -> Pass:
    done = project.run(server)
    assert [test.outcome for test in done.tests] == ["passed"] * len(done.tests), done.tests
    return done


def test_the_interpreter_takes_the_authors_first_config(server: ForkServer, tmp_path: Path) -> None:
    plain = KERNEL.replace(", HOOK)", ")")
    chosen = passed(Project(tmp_path / "plain", TEST, plain), server).chosen
    sizes = "torch.float32, torch.float32"
    assert list(chosen) == [f"double_kernel ({n}, {sizes})" for n in (100, 128)]
    assert all(config.startswith("BLOCK: 16,") for config in chosen.values())


def test_a_choice_between_configs_with_hooks_is_held(server: ForkServer, tmp_path: Path) -> None:
    count = tmp_path / "count"
    kernel = HOOKS + NOISE.replace("COUNT_FILE", repr(str(count)))
    project = Project(tmp_path / "one", TEST, kernel)
    first = passed(project, server).chosen
    assert len(count.read_text()) == 6  # three configs for each of two sizes
    again = passed(project, server).chosen
    assert len(count.read_text()) == 6
    assert again == first

    project.write("kernel.py", kernel + "\n    # another text\n")
    other = passed(project, server).chosen
    assert len(count.read_text()) == 12
    assert other != first


def test_hooks_still_run_with_a_choice_that_was_held(server: ForkServer, tmp_path: Path) -> None:
    count = tmp_path / "count"
    test = (
        TEST
        + """
        config = kernel.double_kernel.best_config
        assert kernel.HOOKED[-1]["BLOCK"] == config.kwargs["BLOCK"]
"""
    )
    kernel = HOOKS + NOISE.replace("COUNT_FILE", repr(str(count)))
    project = Project(tmp_path / "one", test, kernel)
    passed(project, server)
    passed(project, server)
    assert len(count.read_text()) == 6
