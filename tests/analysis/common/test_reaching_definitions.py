"""Which assignment gives a name its value, and whether the value is the same at two places."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from agent.analysis.common.reaching_definitions import augmentation, definition, is_unchanged
from agent.syntax import Source, descendants


def source_of(body: str) -> Source:
    return Source("def kernel(x, n):\n" + textwrap.indent(textwrap.dedent(body), "    "))


def at(source: Source, mark: str) -> cst.Call:
    """The call of `one(...)` or `other(...)`, which stands for a place."""
    return next(c for c in descendants(source.module, cst.Call) if source.code(c.func) == mark)


@pytest.mark.parametrize(
    ("body", "same"),
    [
        ("one(x)\nother(x)", True),
        # In one way or another: it counts that the two places see the same.
        ("if n:\n    x = 1\nelse:\n    x = 2\none(x)\nother(x)", True),
        ("if n:\n    x = 1\none(x)\nif n:\n    other(x)", True),
        ("one(x)\nif n:\n    x = 1\nother(x)", False),
        ("one(x)\nx += 1\nother(x)", False),
        ("other(x)\nx += 1\none(x)", False),
        ("one(x)\nfor x in range(n):\n    pass\nother(x)", False),
        ("one(x)\nx, y = n, n\nother(x)", False),
        ("one(x)\nx: int = n\nother(x)", False),
        ("one(x)\nif (x := n):\n    pass\nother(x)", False),
        ("one(x)\nwith n as x:\n    pass\nother(x)", False),
        ("one(x)\nimport x\nother(x)", False),
        ("one(x)\nmatch n:\n    case [x, *_]:\n        pass\nother(x)", False),
        ("one(x)\nmatch n:\n    case [_, *x]:\n        pass\nother(x)", False),
        ("one(x)\nmatch n:\n    case {**x}:\n        pass\nother(x)", False),
        ("one(x)\ntry:\n    n()\nexcept OSError as x:\n    pass\nother(x)", False),
        # Whoever calls it has another value from then on.
        ("def f():\n    nonlocal x\n    x = 1\none(x)\nf()\nother(x)", False),
        ("def f():\n    x = 1\n    return x\none(x)\nf()\nother(x)", True),
        # A statement gives the name its value after it has read it.
        ("one(x)\nx = other(x)", True),
        ("x = one(x)\nother(x)", False),
        # In a loop the round counts.
        ("for i in range(n):\n    one(x)\n    other(x)\n    x += 1", True),
        ("for i in range(n):\n    x += 1\n    one(x)\n    other(x)", True),
        ("for i in range(n):\n    one(x)\n    x += 1\n    other(x)", False),
        ("one(x)\nfor i in range(n):\n    other(x)", True),
        ("one(x)\nfor i in range(n):\n    other(x)\n    x += 1", False),
        ("for i in range(n):\n    one(x)\n    x += 1\nother(x)", False),
        ("one(x)\nwhile n:\n    other(x)\n    x += 1", False),
        ("one(x)\ny = [other(x) for x in n]", False),
        ("one(x)\nx[0] = n\nother(x)", True),
    ],
)
def test_the_same_value_at_two_places(body: str, same: bool) -> None:
    source = source_of(body)
    one, other = at(source, "one"), at(source, "other")
    assert is_unchanged(source, "x", one, other) is same
    assert is_unchanged(source, "x", other, one) is same


def test_another_function_has_values_of_its_own() -> None:
    source = Source("def f(x):\n    one(x)\n\ndef g(x):\n    other(x)\n")
    assert not is_unchanged(source, "x", at(source, "one"), at(source, "other"))


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("x += n\none(x)", 2),
        ("x += n\nx += 2 * n\none(x)", 3),
        ("x = x + n\none(x)", None),
        ("x += n\nif n:\n    x += 1\none(x)", None),
        ("x += n\nfor i in range(n):\n    one(x)\n    x += 1", None),
        ("x += n\nx = n\none(x)", None),
    ],
)
def test_what_a_name_was_moved_on_by(body: str, line: int | None) -> None:
    source = source_of(body)
    (name,) = descendants(at(source, "one").args[0], cst.Name)
    found = augmentation(source, name)
    assert (source.line(found) if found is not None else None) == line
    if found is not None:
        assert definition(source, "x", name) is None  # no expression of the text is its value
