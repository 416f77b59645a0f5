"""Honest edits are not refused; how fast they are is another question."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cheats.arena import Arena, target_of
from tests.cheats.edits import HONEST as FOLDER
from tests.cheats.edits import Edit, honest

ALL = honest()


def cases(needs_gpu: bool) -> list[Any]:
    """The first one of each target; the others for `make test-all`."""
    taken: set[str] = set()
    marked = []
    for edit in ALL:
        if edit.needs_gpu is needs_gpu:
            marks = [pytest.mark.full] if edit.target in taken else []
            taken.add(edit.target)
            name = str(edit.path.relative_to(FOLDER).with_suffix(""))
            marked.append(pytest.param(edit, marks=marks, id=name))
    return marked


def check(edit: Edit, arena: Arena) -> None:
    """Have an honest edit judged."""
    outcome = arena.judge(target_of(edit.target), f"{edit.target}.py", edit.text, pairs=False)
    assert outcome.decided and not outcome.refused, outcome


@pytest.mark.parametrize("edit", cases(needs_gpu=False))
def test_an_honest_edit_is_not_refused(edit: Edit, interpreted: Arena) -> None:
    check(edit, interpreted)


@pytest.mark.gpu
@pytest.mark.parametrize("edit", cases(needs_gpu=True))
def test_an_honest_edit_that_needs_a_gpu_is_not_refused(edit: Edit, compiled: Arena) -> None:
    check(edit, compiled)
