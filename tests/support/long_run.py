"""The journal of a long run over commits of a real repository: many iterations, many configs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from agent.causes import Cause, Diagnosis
from agent.events import (
    Candidate,
    Event,
    Failed,
    Finished,
    Measured,
    Proposed,
    Record,
    Screened,
    Settled,
    Stopped,
    StopReason,
    Verified,
)
from agent.least_time import LeastTime, LeastTimes
from agent.measuring.decision import Rules, Status, decide
from agent.measuring.screening import ScreenResult
from agent.measuring.statistics import Blocks, Comparison, compare
from agent.options import Options
from tests.support.history import BASELINED, CALIBRATED, STARTED
from tests.support.pages import ROOT
from tests.support.repo import git, make_repo, write

KERNEL = STARTED.kernel
SOURCE = (ROOT / "examples/triton_matmul/matmul.py").read_text() * 5
"""Some 380 lines, as long as the kernels of public suites are."""
PER_CYCLE = 5
"""Iterations after which the outcomes come again: keep, slower, wrong, dead, not told apart."""


def configs(count: int) -> list[str]:
    """Names as parametrized tests have them."""
    return [
        f"test_perf_matmul_triton[{128 << n % 6}-{n}-torch.bfloat16-transposed]"
        for n in range(count)
    ]


def comparison(names: list[str], incumbent_ms: float, gain: float) -> Comparison:
    """All configs gain alike, each with a latency of its own."""
    pairs = [
        {
            name: Blocks((incumbent_ms * (1 + n) * wobble,), (incumbent_ms * (1 + n) * (1 - gain),))
            for n, name in enumerate(names)
        }
        for wobble in (0.999, 1.0, 1.002, 1.0)
    ]
    return compare(pairs, alpha=0.0125)


def long_run(tmp_path: Path, *, iterations: int, count: int) -> tuple[Path, list[Event]]:
    """The repository and the events; every fifth iteration changes each line of the kernel."""
    repo = make_repo(tmp_path, {KERNEL: SOURCE})
    return repo, list(_events(repo, iterations, configs(count)))


def _events(repo: Path, iterations: int, names: list[str]) -> Iterator[Event]:
    origin = git(repo, "rev-parse", "HEAD")
    unlimited = Options(max_iterations=iterations, patience=iterations)
    yield replace(STARTED, origin_sha=origin, options=unlimited)
    records = tuple(Record(name, 1.0 + n, "CUDA events") for n, name in enumerate(names))
    yield replace(BASELINED, records=records)
    levels = {name: 1.0 + n for n, name in enumerate(names)}
    found = replace(CALIBRATED.calibration, levels_ms=levels, resolvable={})
    evidence = ("compiled: 168 registers, 96 bytes spilled", "launched: 64 blocks on 132 SMs")
    least = LeastTimes(
        tuple(LeastTime(name, 0.5 + 0.4 * n, 0.1, 2**20, 2.0**30) for n, name in enumerate(names)),
        4200.0,
        measured=True,
    )
    yield replace(
        CALIBRATED,
        calibration=found,
        diagnosis=Diagnosis(Cause.OCCUPANCY, evidence, ("tiles",)),
        least_times=least,
    )
    incumbent, latency_ms = origin, 1.0
    for number in range(1, iterations + 1):
        shas = [_commit(repo, incumbent, number, variant) for variant in range(3)]
        candidates = tuple(
            Candidate(sha, {"n": n}, f"block size (BLOCK={n})") for n, sha in enumerate(shas)
        )
        yield Proposed("block_size", "tiles", "Fewer trips to memory.", candidates, took_s=1.0)
        looks = tuple(ScreenResult(sha, latency_ms, improvement=0.01) for sha in shas)
        yield Screened(looks, tuple(shas), took_s=4.0)
        outcome = number % PER_CYCLE
        if outcome in (3, 4):
            status = Status.CRASH if outcome == 4 else Status.REVERT
            yield Failed(status, False, "AssertionError: 3 of 4096 elements differ", took_s=3.0)
            yield Settled(incumbent)
            continue
        yield Verified(shas[0], 84, launches=BASELINED.launches, took_s=5.0)
        gain = {1: 0.06, 2: -0.3, 0: 0.0}[outcome]
        compared = comparison(names, latency_ms, gain)
        yield Measured(compared, decide(compared, Rules()), took_s=30.0)
        if outcome == 1:
            incumbent, latency_ms = shas[0], latency_ms * (1 - gain)
            better = Diagnosis(Cause.MEMORY, ("measured: 91 % of the peak",))
            yield Settled(incumbent, diagnosis=better)
        else:
            yield Settled(incumbent)
    yield Stopped(StopReason.ITERATIONS)
    yield Finished(comparison(names, 1.0, 1 - latency_ms), took_s=40.0)


def _commit(repo: Path, parent: str, number: int, variant: int) -> str:
    """A child of the parent with another kernel."""
    git(repo, "checkout", "--quiet", "--detach", parent)
    text = (repo / KERNEL).read_text()
    if number % PER_CYCLE == 1:
        text = "".join(f"{line}  # {number}\n" for line in text.splitlines())
    write(repo, {KERNEL: f"BLOCK = {number * 10 + variant}\n{text}"})
    git(repo, "commit", "--quiet", "--all", "--message", f"{number} {variant}")
    return git(repo, "rev-parse", "HEAD")
