"""docs/sources.md is what its rows make, and what the rows name exists."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

from agent.cli.main import app
from agent.lint.run import CHECKS
from agent.playbook import ADVICE, PLAYBOOK
from tests.docs.test_pages import anchors
from tests.support.pages import ROOT, prose, text
from tools.pages import leaves
from tools.sources import PAGE, Row, State, documents, page, read

DOCUMENTS = documents()
ROWS = [row for document in DOCUMENTS for row in document.rows]
ENTRIES = {entry.name for entry in (*PLAYBOOK, *ADVICE)}
COMMANDS = {
    " ".join(("tile-agent", *names)): command for names, command in leaves(get_command(app))
}
HEAD = """\
title = "T"
about = "A"

[[section]]
title = "S"

[[section.row]]
name = "n"
"""


def test_the_page_is_what_the_rows_make() -> None:
    assert text(PAGE) == page(), "make generate"


def test_there_are_five_documents_with_all_that_they_hold() -> None:
    assert len(DOCUMENTS) == 5
    assert len(ROWS) > 168
    assert all(document.rows for document in DOCUMENTS)


def test_what_a_row_names_exists() -> None:
    wrong = [f"{row.name}: {place}" for row in ROWS for place in row.where if not exists(place)]
    assert wrong == []


def exists(place: str) -> bool:
    kind, _, rest = place.partition(" ")
    if kind == "entry":
        return rest in ENTRIES
    if kind == "rule":
        return rest in {check.code for check in CHECKS}
    if kind == "tile-agent":
        return is_call_of_the_program(place)
    file, _, anchor = place.partition("#")
    path = ROOT / file
    return path.exists() and (not anchor or anchor in anchors(prose(path)))


def is_call_of_the_program(call: str) -> bool:
    words = call.split()
    options = [word for word in words if word.startswith("-")]
    command = COMMANDS.get(" ".join(word for word in words if word not in options))
    return command is not None and set(options) <= {o for p in command.params for o in p.opts}


def test_the_tests_that_a_row_names_exist() -> None:
    wrong = [f"{row.name}: {test}" for row in ROWS for test in row.test if not is_test(test)]
    assert wrong == []


def is_test(node: str) -> bool:
    file, _, function = node.partition("::")
    path = ROOT / file
    inside = path.is_relative_to(ROOT / "tests") and path.is_file()
    return inside and (function in functions_of(path) if function else bool(functions_of(path)))


@cache
def functions_of(path: Path) -> frozenset[str]:
    """The tests of a file as pytest names them: `test_x`, and `TestIt::test_x` of a class."""
    module = ast.parse(text(path))
    classes = [found for found in module.body if isinstance(found, ast.ClassDef)]
    return frozenset(
        f"{head}{found.name}"
        for head, body in (("", module.body), *((f"{c.name}::", c.body) for c in classes))
        for found in body
        if isinstance(found, ast.FunctionDef) and found.name.startswith("test_")
    )


def test_what_looks_finds_what_does_not_exist() -> None:
    for place in ("entry none", "rule CT999", "tile-agent fly", "tile-agent run --none",
                  "agent/none.py", "docs/limits.md#none"):  # fmt: skip
        assert not exists(place)
    for node in ("tests/none.py::test_x", "tests/docs/test_sources.py::test_none",
                 "agent/loop.py", "tests/docs/test_sources.py::exists"):  # fmt: skip
        assert not is_test(node)
    assert exists("tile-agent tileir apply --code")
    assert is_test("tests/docs/test_sources.py::test_the_page_is_what_the_rows_make")


def test_every_document_says_where_and_why() -> None:
    for row in ROWS:
        assert (row.where and row.test) or row.state is not State.DONE, row.name
        assert row.why or row.state is State.DONE, row.name


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('state = "done"\nwhere = ["agent"]', "needs `where` and `test`"),
        ('state = "partial"\nwhere = ["agent"]', "partial needs a reason"),
        ('state = "partial"\nwhy = "half"', "what is nowhere is missing"),
        ('state = "missing"', "missing needs a reason"),
        ('state = "half"\nwhy = "x"', "'half' is not a valid State"),
        ('state = "other"\nwhy = "x"\nbecause = "y"', "because is none of"),
    ],
)
def test_a_row_that_is_not_as_it_has_to_be(row: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(f"{HEAD}{row}")


def test_a_row_is_read() -> None:
    found = read(f'{HEAD}state = "other"\nwhy = "x"\n')
    assert found.rows == (Row("n", State.OTHER, why="x"),)
