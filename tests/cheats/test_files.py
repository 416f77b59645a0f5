"""The files say what they are, and there are enough of them."""

from __future__ import annotations

import ast
from collections import Counter

from tests.cheats.edits import HERE, TARGETS, Edit, honest, not_refused_yet, refused
from tests.cheats.reasons import KINDS


def said(edit: Edit) -> str:
    """The first line of the docstring, as Python sees it."""
    return (ast.get_docstring(ast.parse(edit.text)) or "").partition("\n")[0]


def test_every_cheat_says_why_it_is_one() -> None:
    wrong = [
        edit.name
        for edit in refused()
        if edit.target == "" or edit.kind not in KINDS or not said(edit).startswith("Refused: ")
    ]
    assert wrong == []


def test_every_honest_edit_says_what_it_does() -> None:
    wrong = [
        edit.name
        for edit in honest()
        if edit.target == "" or edit.kind or not said(edit).startswith("Honest: ")
    ]
    assert wrong == []


def test_there_are_enough() -> None:
    kinds = Counter(edit.kind for edit in refused())
    assert sum(kinds.values()) >= 100
    assert set(kinds) == set(KINDS)
    assert len(honest()) >= 80


def test_no_two_files_are_the_same() -> None:
    texts = [edit.text.partition("import torch")[2] for edit in (*refused(), *honest())]
    originals = [(HERE / "targets" / t / f"{t}.py").read_text() for t in TARGETS]
    twice = [text for text, count in Counter(texts + originals).items() if count > 1]
    assert twice == []


def test_the_list_of_open_ones_names_files() -> None:
    assert not_refused_yet() <= {edit.name for edit in refused()}
