"""One invented run that has every type of event, and a run in each phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from agent.events import (
    Baselined,
    Calibrated,
    Candidate,
    CodeChange,
    Dropped,
    Event,
    Failed,
    FilteredOut,
    Finished,
    Gathered,
    GivenUp,
    HandedOver,
    Measured,
    Offered,
    Proposed,
    Record,
    Scouted,
    Screened,
    Settled,
    Skipped,
    Started,
    Stopped,
    StopReason,
    Verified,
)
from agent.frozen_tests import TestPlan
from agent.launches import ObservedLaunch, ObservedTensor, ObservedTuning, TunedConfig
from agent.measuring.decision import Gain, Status, Verdict
from agent.measuring.measurement import Calibration
from agent.measuring.screening import ScreenResult
from agent.measuring.statistics import Blocks, Comparison, compare
from agent.options import Options
from agent.state import Phase, Run
from agent.transitions import advance
from agent.usage import Usage

STARTED = Started(
    run_id="softmax-20250102-030405",
    kernel="kernels/softmax.py",
    backend="triton",
    kernel_class="memory",
    branch="tile-agent/softmax-20250102",
    origin_sha="0" * 40,
    began_at_s=1_735_787_045,
    python="python3",
    tests=TestPlan(
        files=("tests/test_softmax.py",),
        correctness=("tests/test_softmax.py::test_softmax[triton-128]",),
        perf=("tests/test_softmax.py::test_perf_softmax[triton-4096]",),
        notes=("3 bfloat16 tests are left out",),
    ),
    environment={
        "gpus": [{"name": "NVIDIA H200", "uuid": "GPU-0", "sm": 90, "driver": "580.1"}],
        "versions": {"torch": "2.9.0", "triton": "3.5.0", "cuda-tile": None},
    },
    latency_meaning="GPU time of a launch",
    options=Options(
        max_iterations=7,
        only=("occupancy", "block_size"),
        time_budget_s=3600.0,
        proposers=("playbook", "assistant"),
    ),
    took_s=0.5,
)


def comparison(improvement: float, noise: float = 0.001) -> Comparison:
    """A comparison of one config, 0.82 ms at the incumbent, with that improvement."""
    before, after = 0.82, 0.82 * (1 - improvement)
    wobbles = (1 - noise, 1.0, 1 + noise)
    found = compare([{"c": Blocks((before * w,), (after,))} for w in wobbles], alpha=0.0125)
    return replace(found, equal_clock=found.overall)


def proposed(name: str, *shas: str, family: str = "tiles") -> Proposed:
    """A proposal with a variant for each sha."""
    candidates = tuple(Candidate(sha, {"n": n}, f"{name} (n={n})") for n, sha in enumerate(shas))
    out = (FilteredOut(f"{name} (n=9)", "the compiler makes the incumbent's code of it"),)
    return Proposed(name, family, "fewer trips to memory", candidates, out, took_s=1.0)


LAUNCH = ObservedLaunch(
    kernel="k",
    test="test_softmax.py::test_perf",
    grid=(64, 1),
    integers={"n": 4096, "BLOCK": 64},
    tensors={"x": ObservedTensor("bfloat16", (64, 4096), (4096, 1), aligned=True)},
    options={"num_warps": 8},
    tuning=ObservedTuning(
        key={"n": "4096"},
        tried=2,
        took_s=3.5,
        configs=(
            TunedConfig({"BLOCK": 64}, {"num_warps": 8}, 0.8),
            TunedConfig({"BLOCK": 4096}, {"num_warps": 1}, None),
        ),
    ),
)
BASELINED = Baselined(
    (Record("c", 0.82, "CUDA events", (0.81, 0.82, 0.83)),),
    12,
    1.25,
    launches=(LAUNCH,),
    took_s=4.0,
)
CALIBRATED = Calibrated(
    Calibration(
        noise_floor=0.004,
        levels_ms={"c": 0.821},
        band=0.05,
        pairs=8,
        resolvable={"c": 0.012},
        setting="driver 580.159.04, mW at most 700000",
    ),
    took_s=20.0,
)
GATHERED = Gathered(
    (proposed("block_size", "a1"), proposed("occupancy", "a3", "a4")),
    (Skipped("pipelining", "there is no loop: 0 found"),),
)
SCOUTED = Scouted((ScreenResult("a1", 0.74, improvement=0.1),), 0.01, ("c",), took_s=4.0)
SCREENED = Screened(
    (
        ScreenResult("b1", 0.7, improvement=0.03),
        ScreenResult("b2", None, "killed by SIGSEGV"),
        ScreenResult("b3", 0.5),
    ),
    ("b3", "b1"),
    took_s=2.0,
)
HISTORY: tuple[Event, ...] = (
    STARTED,
    BASELINED,
    CALIBRATED,
    Skipped("pipelining", "there is no loop: 0 found", Usage(1, 900, 80, None, 2.5), took_s=0.1),
    GATHERED,
    SCOUTED,
    GATHERED.proposals[0],
    Verified("a1", 12, launches=(replace(LAUNCH, grid=(32, 1)),), took_s=3.0),
    Measured(comparison(0.1), took_s=30.0),
    Settled("a2", took_s=0.2),
    proposed("occupancy", "b1", "b2", "b3"),
    SCREENED,
    Verified("b1", 12, (ScreenResult("b3", None, "test_softmax: off by one"),), took_s=3.0),
    Measured(
        comparison(-0.2),
        Verdict(Status.REVERT, Gain.NONE, "c is 20.0 % slower (at least 19.6 %)"),
        took_s=30.0,
    ),
    Settled("a2", took_s=0.2),
    proposed("reciprocal", "c1"),
    Failed(Status.REVERT, False, "test_softmax: assert 1.0 == 2.0", took_s=3.0),
    Settled("a2", "the branch is checked out", took_s=0.2),
    HandedOver("assistant", "no improvement in consecutive iterations"),
    Offered("own-idea", "own-idea", "own idea"),
    Dropped("no idea"),
    Offered("split-k", "tiles", "split K"),
    Proposed(
        "split-k",
        "tiles",
        "more blocks",
        (Candidate("d1", {}, "split K (assistant)"),),
        code=(CodeChange("k", (32, 40), (0, 16), (0, 4096)),),
    ),
    Failed(Status.REVERT, False, "test_softmax: off by one", detail="E   no", mendable=True),
    proposed("split-k", "d2"),
    Verified("d2", 12, took_s=3.0),
    Measured(comparison(-0.1), mendable=True, took_s=30.0),
    GivenUp("it needs another layout"),
    Stopped(StopReason.NO_IMPROVEMENT, "after 2 of them"),
    Finished(comparison(0.1), "measured afresh", faded=(1,), took_s=30.0),
)
"""Every type of event, in an order that the state machine accepts.

One comparison lacks its verdict, as in journals that did not hold any.
"""

REACHING: dict[Phase, Sequence[Event]] = {
    Phase.SETUP: (),
    Phase.BASELINE: HISTORY[:1],
    Phase.CALIBRATE: HISTORY[:2],
    Phase.PROPOSE: HISTORY[:3],
    Phase.SCOUT: HISTORY[:5],
    Phase.VERIFY: HISTORY[:7],
    Phase.MEASURE: HISTORY[:8],
    Phase.SETTLE: HISTORY[:9],
    Phase.SCREEN: HISTORY[:11],
    Phase.REPAIR: HISTORY[:-3],
    Phase.FINISH: HISTORY[:-1],
    Phase.DONE: HISTORY,
}
"""The events that bring a run into each phase."""


def run_in(phase: Phase) -> Run:
    """A run that is in that phase."""
    run = reduce(advance, REACHING[phase], Run())
    assert run.phase is phase
    return run
