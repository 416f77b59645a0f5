"""What host code may leave out is seen where it does: as a parameter, by a choice, in a tuple."""

from __future__ import annotations

import pytest

from agent.analysis.common.absent import may_be_none, may_be_number
from agent.syntax import Source, argument


def given(head: str, lines: str) -> tuple[bool, bool]:
    """Whether what `launch(...)` is given may be None, and whether it may be a number."""
    source = Source(f"def f({head}):\n    {lines}\n    launch(x)\n")
    value = argument(source.calls[-1], 0, "x")
    assert value is not None
    return may_be_none(source, value), may_be_number(source, value)


@pytest.mark.parametrize(
    ("head", "lines", "expected"),
    [
        ("x", "pass", (False, False)),
        ("x=None", "pass", (True, False)),
        ("x: Tensor | None", "pass", (True, False)),
        ("x=0", "pass", (False, True)),
        ("x=-1.0", "pass", (False, True)),
        ("x=False", "pass", (False, True)),
        ("y", "x = None if y else y.grad", (True, False)),
        ("y", "x = y.grad if y else 0", (False, True)),
        ("y", "if y:\n        x = y.grad\n    else:\n        z, x = None, None", (True, False)),
        ("y", "if y:\n        x = y.grad\n    else:\n        z, x = None, 0", (False, True)),
        ("y", "z, x = None, y.grad", (False, False)),
        ("x=None", "if x is None:\n        x = empty()", (False, False)),
        ("x=None", "if x is None or x.size(0) < 4:\n        x = empty()", (False, False)),
        ("x=None", "if x is None and y:\n        x = empty()", (True, False)),
        ("x=None", "assert x is not None", (False, False)),
        ("x=None", "if x is None:\n        x = 0", (False, True)),
        ("x=None", "if y:\n        assert x is not None", (True, False)),
        ("x=None", "for z in y:\n        if x is None:\n            x = empty()", (True, False)),
        ("x=None", "if x is None:\n        return", (False, False)),
        ("x=0", "if x is None:\n        x = empty()", (False, True)),
    ],
)
def test_what_may_be_absent(head: str, lines: str, expected: tuple[bool, bool]) -> None:
    assert given(head, lines) == expected


def test_what_is_seen_to_later_or_elsewhere_says_nothing() -> None:
    source = Source("def f(x=None):\n    launch(x)\n    assert x is not None\n    launch(x)\n")
    first, second = (argument(call, 0, "x") for call in source.calls)
    assert first is not None
    assert second is not None
    assert may_be_none(source, first)
    assert not may_be_none(source, second)
