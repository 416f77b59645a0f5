"""What several versions of a text differ in, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agent.proposers.values import in_words, values_of

CASES: Mapping[str, tuple[tuple[str, ...], tuple[dict[str, Any], ...]]] = {
    "a constant": (("A = 1", "A = 2"), ({"A": 1}, {"A": 2})),
    "with a type": (("A: int = 1", "A: int = 2"), ({"A": 1}, {"A": 2})),
    "an argument": (("f(x, w=4)", "f(x, w=8)"), ({"w": 4}, {"w": 8})),
    "a default": (
        ("def f(x, a=1, *, b=2): ...", "def f(x, a=3, *, b=4): ..."),
        ({"a": 1, "b": 2}, {"a": 3, "b": 4}),
    ),
    "a key": (("f({'B': 1})", "f({'B': 2})"), ({"B": 1}, {"B": 2})),
    "twice the same": (("f(w=4); g(w=4)", "f(w=8); g(w=8)"), ({"w": 4}, {"w": 8})),
    "twice, not alike": (
        ("f(w=4); g(w=4)", "f(w=8); g(w=4)", "f(w=4); g(w=8)"),
        ({"w": 4, "w 2": 4}, {"w": 8, "w 2": 4}, {"w": 4, "w 2": 8}),
    ),
    "within an expression": (("A = 2 * 8", "A = 4 * 8"), ({"A": 2}, {"A": 4})),
    "without a name": (("f(1)", "f(2)"), ({"value": 1}, {"value": 2})),
    "a byte": (("A = b'a'", "A = b'b'"), ({"A": "b'a'"}, {"A": "b'b'"})),
    "more than constants": (("A = 1", "A = 1 + 1"), ({"variant": "1"}, {"variant": "2"})),
    "a docstring": (("'one'\nA = 1", "'two'\nA = 1"), ({"variant": "1"}, {"variant": "2"})),
    "a key of another name": (("{'a': 1}", "{'b': 1}"), ({"variant": "1"}, {"variant": "2"})),
    "one alone": (("A = 1",), ({},)),
}


@pytest.mark.parametrize(("texts", "values"), CASES.values(), ids=CASES)
def test_what_differs(texts: tuple[str, ...], values: tuple[dict[str, Any], ...]) -> None:
    assert values_of(texts) == values


def test_what_differs_in_more_than_values_is_told_by_names() -> None:
    texts, called = ("A = 1", "A = 1 + 1"), ("draft", "wide.py")
    assert values_of(texts, called) == ({"variant": "draft"}, {"variant": "wide.py"})
    assert values_of(texts, ("a.py", "a.py")) == ({"variant": "1"}, {"variant": "2"})
    assert values_of(("A = 1", "A = 2"), called) == ({"A": 1}, {"A": 2})


def test_in_words() -> None:
    assert in_words({"A": 1, "b": "x"}) == "(A=1, b=x)"
    assert in_words({}) == ""
    assert len(in_words({"A": "x" * 1000})) < 70
