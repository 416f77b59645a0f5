"""The report for the person who takes over from an escalated run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.causes import Cause, Diagnosis
from agent.events import Stopped, StopReason
from agent.report.escalation import escalation
from agent.state import Phase
from tests.support.history import run_in

SCHEDULING = Diagnosis(
    Cause.SCHEDULING,
    (
        "launched: softmax_kernel with 64 blocks for 132 multiprocessors",
        "missing: Nsight Compute is not installed: put ncu into PATH for hardware counters",
    ),
    ("scheduling",),
)


def test_what_was_found_and_tried_and_what_is_next() -> None:
    run = replace(run_in(Phase.FINISH), diagnosis=SCHEDULING)
    text = escalation(run)
    assert text.startswith("# kernels/softmax.py: a person is needed\n\nafter 2 of them\n")
    assert "Cause: scheduling. The blocks do not fill the GPU" in text
    assert "- launched: softmax_kernel with 64 blocks for 132 multiprocessors\n" in text
    assert "|         1 | block_size (n=0)" in text
    assert "3. reciprocal (n=0): test_softmax: assert 1.0 == 2.0\n" in text
    assert "- pipelining does not apply: there is no loop: 0 found\n" in text
    assert "Latency: GPU time of a launch. At first 0.820000 ms, now 0.738000 ms.\n\n" in text
    assert "The same code against itself differs by up to 0.4 % here.\n" in text
    assert "What the diagnosis lacked: Nsight Compute is not installed" in text
    assert "refs/tile-agent/softmax-20250102-030405/" in text
    assert "\n\n\n" not in text


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_its_next_steps(cause: Cause) -> None:
    run = replace(run_in(Phase.FINISH), diagnosis=Diagnosis(cause, ("measured: x",)))
    steps = escalation(run).partition("## What to look at next")[2]
    assert steps.count("\n1. ") == 1
    assert steps.count("\n2. ") == 1


def test_a_run_that_measured_nothing() -> None:
    run = replace(
        run_in(Phase.BASELINE), stopped=Stopped(StopReason.ESCALATED, "the GPU fell off the bus")
    )
    text = escalation(run)
    assert "the GPU fell off the bus\n" in text
    assert "Not diagnosed" in text
    assert "At first" not in text
