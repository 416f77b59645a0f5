"""What a person reads while a run goes on, and after it: each reason once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.events import Proposed, Screened, Skipped, Started, Stopped, StopReason
from agent.options import MODEL, Options
from agent.report.progress import Commentary
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
