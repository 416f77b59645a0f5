"""Triton kernels that tune themselves: what Triton cannot keep on disk is held, in the interpreter
too, whose own time decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass
from agent.harness.processes.worker_session import deadline_in
from agent.launches import ObservedLaunch, tuning_costs, tunings_of
from tests.support.workers import Project, nodeids, start_server

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
    log = tmp_path / "server.log"
    with start_server(log, write=[tmp_path], TRITON_INTERPRET="1") as server:
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


def observed(project: Project, server: ForkServer) -> tuple[ObservedLaunch, ...]:
    with project.arm(server) as arm:
        done = arm.run(nodeids(arm), deadline_in(60), observes=True)
    assert not done.not_passed(), done.tests
    return done.launches


def test_what_the_tuner_did_is_told_with_the_launch(server: ForkServer, tmp_path: Path) -> None:
    """Its own launches are not: it makes more of them than are looked at."""
    noise = NOISE.replace("COUNT_FILE", repr(str(tmp_path / "count")))
    noise = noise.replace("        kernel_call()\n", "        [kernel_call() for _ in range(40)]\n")
    noise = noise.replace(" % 3)]", " % 3 + 1)]")
    project = Project(tmp_path / "one", TEST, HOOKS + noise)
    launches = observed(project, server)
    assert [launch.integers["n"] for launch in launches] == [100, 128]
    for launch in launches:
        tuning = launch.tuning
        assert tuning is not None
        assert tuning.key == {"n": str(launch.integers["n"])}
        assert (tuning.tried, len(tuning.configs)) == (3, 3)
        assert tuning.took_s > 0
        (best,) = tuning.near_best(0.0)
        assert best.constants == {"BLOCK": launch.integers["BLOCK"]}
        assert best.options == {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
    again = observed(project, server)
    assert [launch.tuning for launch in again] == [launch.tuning for launch in launches]
    assert len(tunings_of(again, "double_kernel")) == 2
    (cost,) = tuning_costs(again)
    assert cost.startswith("double_kernel tries 3 configs for each new key (n): 3 x 0.")
    assert cost.endswith("seen for 2 keys")


def test_nothing_is_told_of_a_tuner_that_timed_nothing(server: ForkServer, tmp_path: Path) -> None:
    project = Project(tmp_path / "plain", TEST, KERNEL.replace(", HOOK)", ")"))
    launches = observed(project, server)
    assert [launch.tuning for launch in launches] == [None, None]
    assert tuning_costs(launches) == ()
