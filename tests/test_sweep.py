"""How a sweep is ranked: what is looked at once more."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.measuring.screening import Look, halve
from agent.sweep import told_apart


@pytest.mark.parametrize(
    ("near", "again"),
    [(0.004, []), (0.008, ["fast", "faster"]), (0.03, ["fast", "faster"]), (0.2, [])],
)
def test_the_first_are_looked_at_again_where_that_may_matter(near: float, again: list[str]) -> None:
    """Not where processes hardly differ, nor where they differ by more than any look tells."""
    gains = {"slow": 0.02, "fast": 0.300, "faster": 0.302}
    asked: list[tuple[str, ...]] = []

    def look(shas: tuple[str, ...], _: int, fresh: bool) -> Mapping[str, Look]:
        if fresh:
            asked.append(shas)
        return {sha: Look(gains[sha], 1.0) for sha in shas}

    _, order = halve(tuple(gains), look, told_apart(near))
    assert order[0] == "faster"
    assert [sorted(shas) for shas in asked] == ([again] if again else [])
