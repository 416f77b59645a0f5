"""What a person reads while a run goes on, and after it: each reason once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.events import Proposed, Screened, Skipped, Started, Stopped, StopReason, Verified
from agent.options import MODEL, Options
from agent.report.attempt import last_attempt_in_words
from agent.report.escalation import escalation
from agent.report.progress import Commentary
from agent.report.result import to_result
from agent.report.summary import summarize
from agent.state import Run
from agent.transitions import advance
from tests.support.history import HISTORY, STARTED

SKIPS = [Skipped("warps", "no warps"), Skipped("stages", "no loop"), Skipped("tma", "no warps")]
STOPPED = Stopped(StopReason.EXHAUSTED)


def proposing(started: Started = STARTED) -> Run:
    """The run of the history, as it stands before its first proposal."""
    run = Run()
    for event in HISTORY:
        if isinstance(event, Proposed):
            break
        run = advance(run, started if isinstance(event, Started) else event)
    return run


def told(run: Run, *events: Skipped | Stopped) -> list[str]:
    commentary, found = Commentary(), []
    for event in events:
        run = advance(run, event)
        found += commentary.lines(run, event)
    return found


def test_what_the_playbook_passes_over_is_one_line_and_is_not_repeated() -> None:
    assert told(proposing(), *SKIPS, SKIPS[0], STOPPED) == [
        "skip       3 optimizations passed over: the summary names them, and why",
        "stop       the playbook is exhausted",
    ]


def test_a_single_one_is_told_with_its_reason() -> None:
    assert told(proposing(), SKIPS[0], STOPPED)[0] == "skip       warps: no warps"


def test_what_a_model_declines_is_told_at_once() -> None:
    run = proposing(replace(STARTED, options=Options(proposers=(MODEL,))))
    assert told(run, *SKIPS)[1] == "skip       stages: no loop"


def test_the_summary_gives_each_reason_once() -> None:
    run = proposing()
    for event in (*SKIPS, STOPPED):
        run = advance(run, event)
    text = summarize(run, "no GPU")
    assert "\n-  warps, tma passed over: no warps\n-  stages passed over: no loop\n" in text


WRONG = (
    "test_k.py::test_k[5-False] (and 2 more): AssertionError: Tensor-likes are not close! "
    "Mismatched elements: 491 / 500 (98.2%); Greatest absolute difference: 3.9 at index (2, 73)"
)


def with_a_wrong_variant() -> tuple[Run, list[str]]:
    """The run of the history up to the verdict on its sweep, and the lines of its tests."""
    run, lines = Run(), []
    for event in HISTORY:
        if isinstance(event, Verified) and event.rejected:
            event = replace(event, rejected=(replace(event.rejected[0], reason=WRONG),))
        run = advance(run, event)
        if isinstance(event, Verified):
            lines = Commentary().lines(run, event)
        if len(run.rows) == 3:
            break
    return run, lines


def test_the_variants_of_a_sweep_that_were_wrong_are_told_with_the_reason() -> None:
    run, lines = with_a_wrong_variant()
    what = "occupancy (n=2): test_k.py::test_k[5-False] (and 2 more): 491 of 500 elements differ"
    assert lines == [
        f"     wrong  {what}",
        "     right  occupancy (n=0): 12 correctness tests pass (3 s)",
    ]
    assert f"\n2. occupancy (n=0): {run.rows[-1].reason}\n   wrong: {what}\n" in summarize(run, "")
    assert f"\n   wrong: {what}\n" in escalation(run)
    assert f"  wrong: {what}" in last_attempt_in_words(run)
    told = {each["optimization"]: each["wrong"] for each in to_result(run)["rows"]}
    assert told["occupancy (n=0)"] == [{"title": "occupancy (n=2)", "reason": WRONG}]
    assert not any(wrong for title, wrong in told.items() if title != "occupancy (n=0)")


@pytest.mark.parametrize(
    ("gpus", "seen"), [(1, "0.700000 ms"), (2, "+3.0 %")], ids=["one GPU", "two"]
)
def test_latencies_of_several_gpus_are_not_told_side_by_side(gpus: int, seen: str) -> None:
    run = Run()
    for event in HISTORY:
        if isinstance(event, Started):
            event = replace(event, options=replace(event.options, gpus=gpus))
        run = advance(run, event)
        if isinstance(event, Screened):
            lines = Commentary().lines(run, event)
            break
    assert lines[0].endswith(f": {seen}")
