"""Names that nobody has, and what was probably meant."""

from __future__ import annotations

import pytest

from agent.errors import did_you_mean

KNOWN = ("softmax-20251125-122812", "persistent-programs", "warp-specialized-loops")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("persistent-porgrams", "persistent-programs"),
        ("persistent", "persistent-programs"),
        ("softmax", "softmax-20251125-122812"),
        ("specialized", "warp-specialized-loops"),
        ("warp", "warp-specialized-loops"),
        ("5", ""),
        ("", ""),
        ("nope", ""),
    ],
)
def test_what_was_meant(name: str, meant: str) -> None:
    assert did_you_mean(name, KNOWN) == (f"did you mean {meant}?" if meant else "")
