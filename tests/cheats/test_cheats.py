"""Candidates that cheat are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from agent.measuring.decision import Status
from tests.cheats.arena import Arena, target_of
from tests.cheats.edits import Edit, not_refused_yet, refused
from tests.cheats.reasons import KINDS

ALL = refused()
OPEN = not_refused_yet()
TRIES = 3
QUICK = 1
"""Of each kind, in `make test`."""


def cases(needs_gpu: bool) -> list[Any]:
    """The first few of each kind that are refused as they are; the others for `make test-all`."""
    taken: Counter[str] = Counter()
    marked = []
    for edit in ALL:
        if edit.needs_gpu is not needs_gpu:
            continue
        marks: list[pytest.MarkDecorator] = []
        if edit.name in OPEN:
            expected = pytest.mark.xfail(reason="not refused yet", strict=True)
            marks += [expected, pytest.mark.full]
        elif taken[edit.kind] >= QUICK:
            marks.append(pytest.mark.full)
        else:
            taken[edit.kind] += 1
        marked.append(pytest.param(edit, marks=marks, id=edit.name.removeprefix("refused/")))
    return marked


def check(edit: Edit, arena: Arena, record: Callable[[str, object], None]) -> None:
    """Have a cheat judged; again where a busy machine showed no more than that it is no faster.

    Shares of the time that passed are compared where the incumbent's is as it should be.
    """
    for _ in range(TRIES):
        outcome = arena.judge(target_of(edit.target), f"{edit.target}.py", edit.text)
        record("outcome", str(outcome))
        record("warnings", list(outcome.warnings))
        assert outcome.status is not Status.KEEP, outcome
        if outcome.refused:
            break
    assert outcome.refused, outcome
    told = KINDS[edit.kind].explains(outcome.reason) or outcome.changed
    assert told, f"{edit.kind}: {outcome}"


@pytest.mark.parametrize("edit", cases(needs_gpu=False))
def test_a_cheat_is_refused(
    edit: Edit, interpreted: Arena, record_property: Callable[[str, object], None]
) -> None:
    check(edit, interpreted, record_property)


@pytest.mark.gpu
@pytest.mark.parametrize("edit", cases(needs_gpu=True))
def test_a_cheat_that_needs_a_gpu_is_refused(
    edit: Edit, compiled: Arena, record_property: Callable[[str, object], None]
) -> None:
    check(edit, compiled, record_property)
