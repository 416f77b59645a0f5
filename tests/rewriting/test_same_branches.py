"""Branches on a name that an edit adds are one branch, where they follow one another."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.proposers.playbook import edited
from agent.rewriting.common.same_branches import with_one_branch_each
from agent.syntax import Source

BEFORE = """\
def kernel(x_ptr, y_ptr):
    x = load(x_ptr)
    y = load(y_ptr)
    z = x + y
"""
AFTER = """\
def kernel(x_ptr, y_ptr, FAST):
    if FAST:
        x = desc.load(0)
    else:
        x = load(x_ptr)
    if FAST:
        y = desc.load(x)
    else:
        y = load(y_ptr)
    z = x + y
"""


def test_they_are_one_with_all_that_each_does_in_its_order() -> None:
    assert (
        with_one_branch_each(BEFORE, AFTER)
        == """\
def kernel(x_ptr, y_ptr, FAST):
    if FAST:
        x = desc.load(0)
        y = desc.load(x)
    else:
        x = load(x_ptr)
        y = load(y_ptr)
    z = x + y
"""
    )


def test_one_without_else_joins_those_with_one() -> None:
    after = AFTER.replace(
        "    if FAST:\n        x =", "    if FAST:\n        setup()\n    if FAST:\n        x ="
    )
    found = with_one_branch_each(BEFORE, after)
    assert found.count("if FAST:") == 1
    assert found.index("setup()") < found.index("x = desc.load(0)") < found.index("else:")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    if FAST:\n        y", "    # the second\n    if FAST:\n        y"),
        ("    if FAST:\n        y", "    w = 1\n    if FAST:\n        y"),
        ("        x = desc.load(0)\n", "        FAST = desc.load(0)\n"),
        ("    if FAST:\n        y", "    if not FAST:\n        y"),
    ],
    ids=["a comment", "a statement", "another value", "another condition"],
)
def test_what_stands_between_keeps_them_apart(old: str, new: str) -> None:
    after = AFTER.replace(old, new)
    assert after != AFTER and with_one_branch_each(BEFORE, after) == after


def test_branches_of_the_authors_own_stay() -> None:
    assert with_one_branch_each(AFTER, AFTER + "\n") == AFTER + "\n"


def conditions_of(text: str) -> Iterator[tuple[str, ...]]:
    """The conditions of the branches of each block, in a row."""
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            yield tuple(ast.unparse(n.test) if isinstance(n, ast.If) else "" for n in body)


def test_a_product_on_descriptors_asks_once_for_both_operands() -> None:
    entry = playbook.get("tile-descriptors")
    subject = Subject(Source(entry.before), KernelClass.COMPUTE, Hardware(sm=90))
    apart = entry.apply(subject, entry.variants(subject)[0])
    found = edited(entry, subject, entry.variants(subject)[0])
    pairs = ("DESCRIPTORS", "DESCRIPTORS")
    assert any(pairs == row[n : n + 2] for row in conditions_of(apart) for n in range(len(row)))
    assert not any(pairs == row[n : n + 2] for row in conditions_of(found) for n in range(len(row)))
