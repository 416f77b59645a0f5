"""Setting a keyword of a call leaves the call laid out as it was."""

from __future__ import annotations

import pytest

from agent.syntax import Source, with_keyword


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(k=3)"),
        ("f(a, b)", "f(a, b, k=3)"),
        ("f(a, b,)", "f(a, b, k=3,)"),
        ("f(a, k=1)", "f(a, k=3)"),
        ("f(a, k = 1, b=2)", "f(a, k = 3, b=2)"),
        ("f(\n    a,\n    b,\n)", "f(\n    a,\n    b,\n    k=3,\n)"),
        ("f(\n    a,\n    b\n)", "f(\n    a,\n    b,\n    k=3\n)"),
        ("f(\n    a,\n)", "f(\n    a,\n    k=3,\n)"),
        ("f(\n    a\n)", "f(\n    a,\n    k=3\n)"),
        ("f(a,\n  b)", "f(a,\n  b,\n  k=3)"),
        ("f(\n    a, b,\n    c, d,\n)", "f(\n    a, b,\n    c, d, k=3,\n)"),
        ("f(\n    a,  # x\n    b,  # y\n)", "f(\n    a,  # x\n    b,  # y\n    k=3,\n)"),
        ("f(\n    a,  # x\n    b  # y\n)", "f(\n    a,  # x\n    b,  # y\n    k=3\n)"),
        ("f(\n    a,\n    b,\n    # z\n)", "f(\n    a,\n    b,\n    # z\n    k=3,\n)"),
        ("f(a, b  # y\n  )", "f(a, b,  # y\n  k=3\n  )"),
        ("f(\r\n    a,\r\n)", "f(\r\n    a,\r\n    k=3,\r\n)"),
        ("f(*a)", "f(*a, k=3)"),
        ("f(**a)", "f(**a, k=3)"),
    ],
)
def test_with_keyword(before: str, after: str) -> None:
    source = Source(before)
    call = source.calls[0]
    assert source.rewrite({call: lambda c: with_keyword(c, "k", "3")}) == after
