"""Names that nobody has, and what was probably meant."""

from __future__ import annotations

import pytest

from agent.errors import did_you_mean

KNOWN = ("softmax-20251125-122812", "hoisted-reciprocal", "reciprocal-square-root")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("hoisted-recpirocal", "hoisted-reciprocal"),
        ("hoisted", "hoisted-reciprocal"),
        ("softmax", "softmax-20251125-122812"),
        ("square", "reciprocal-square-root"),
        ("recip", "reciprocal-square-root"),
        ("5", ""),
        ("", ""),
        ("nope", ""),
    ],
)
def test_what_was_meant(name: str, meant: str) -> None:
    assert did_you_mean(name, KNOWN) == (f"did you mean {meant}?" if meant else "")
