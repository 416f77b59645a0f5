"""The iterations of a run in full, from its events."""

from __future__ import annotations

import pytest

from agent.events import Dropped, Event
from agent.measuring.decision import Rules, Status
from agent.report.iterations import deciding_rule, iterations
from tests.support.history import HISTORY, proposed


def test_each_iteration_has_what_led_to_its_verdict() -> None:
    kept, swept, wrong, _ = iterations(HISTORY)
    assert (kept.number, kept.row and kept.row.sha) == (1, "a2")
    assert (kept.base_sha, kept.shown_sha) == ("0" * 40, "a2")
    assert kept.comparison is not None
    assert (kept.launches_before[0].grid, kept.launches_after[0].grid) == ((64, 1), (32, 1))
    assert kept.took_s == {"propose": 1.1, "verify": 3.0, "measure": 30.0, "settle": 0.2}
    assert [result.sha for result in swept.screened] == ["b1", "b2", "b3"]
    assert [result.sha for result in swept.rejected] == ["b3"]
    assert (swept.base_sha, swept.shown_sha) == ("a2", "b1")
    assert (wrong.comparison, wrong.tests_passed) == (None, None)
    assert wrong.proposal.hypothesis == "fewer trips to memory"


@pytest.mark.parametrize("length", range(len(HISTORY) + 1))
def test_a_run_has_its_iterations_at_any_time(length: int) -> None:
    found = iterations(HISTORY[:length])
    begun = sum(type(event).__name__ == "Proposed" for event in HISTORY[:length])
    assert [each.number for each in found] == list(range(1, len(found) + 1))
    assert sum(1 + len(each.earlier) for each in found) == begun
    assert all(each.row for each in found[:-1])


def test_the_rule_that_decided_is_named() -> None:
    kept, slower, wrong, mended = (deciding_rule(e, Rules()) for e in iterations(HISTORY))
    assert mended == slower
    assert kept == "an improvement of 5.0 % or more, its lower bound above zero: keep"
    assert slower.startswith("a config slower by more than 2.0 %")
    assert wrong == "its results are not the origin's, or a test fails: set aside"


def test_the_attempts_before_the_one_that_is_shown_are_told() -> None:
    mended = iterations(HISTORY)[-1]
    (first,) = mended.earlier
    assert first.verdict is not None and mended.verdict is not None and mended.row is not None
    assert (first.shown_sha, first.verdict.reason) == ("d1", "test_softmax: off by one")
    assert (first.comparison, first.tests_passed, mended.tests_passed) == (None, None, 12)
    assert (mended.row.sha, mended.row.attempts) == ("d2", 2)
    assert mended.verdict.reason.endswith("given up: it needs another layout")
    assert sum(mended.took_s.values()) == 3.0 + 30.0 + 1.0


def test_an_iteration_that_is_left_behind_was_not_judged() -> None:
    events: list[Event] = [*HISTORY[:3], proposed("split", "a1"), Dropped("it hangs")]
    (left,) = iterations(events)
    assert left.row is not None
    assert left.row.status is Status.CRASH
    assert deciding_rule(left, Rules()) == "it could not be judged: set aside"


def test_an_iteration_under_way_has_no_rule() -> None:
    (current,) = iterations(HISTORY[:8])
    assert (current.row, deciding_rule(current, Rules())) == (None, "")
