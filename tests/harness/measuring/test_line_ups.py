"""How the time of a look is shared out among screens that follow each other."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.frozen_tests import TestPlan
from agent.harness.measuring import line_ups
from agent.harness.measuring.block_timing import BlockTiming
from agent.measuring.screening import Look

PLAN = TestPlan(("test_kernel.py",), (), ("test_kernel.py::test_perf",))
SECONDS = 100.0


@pytest.mark.parametrize("last", [False, True])
def test_half_of_the_time_is_kept_for_those_that_follow(
    monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    """In a sweep those are the pairs of whom no screen saw; after a scouting there is nobody."""
    given_s: list[float] = []

    class Noted:
        def __init__(self, *_: Any, **__: Any) -> None:
            """No workers: what is looked at here is the clock."""

        def holds(self, names: Collection[str]) -> bool:
            return False

        def look(self, names: Collection[str], _: Any, deadline: float) -> Mapping[str, Look]:
            given_s.append(deadline - time.monotonic())
            return {name: Look(0.0, 1.0) for name in names}

        def close(self) -> None:
            """Nothing to end."""

    monkeypatch.setattr(line_ups, "InterleavedScreen", Noted)
    names = [f"v{n}" for n in range(3 * line_ups.AT_ONCE)]
    any_: Any = object()
    with line_ups.LineUps(
        any_,
        PLAN,
        dict.fromkeys([line_ups.INCUMBENT, *names], any_),
        lambda: Path("log"),
        lambda _: BlockTiming(),
        {},
    ) as looks:
        found = looks.look(names, 2, time.monotonic() + SECONDS, last=last)
    assert set(found) == set(names)
    assert given_s == [
        pytest.approx(SECONDS / 2, abs=1),
        pytest.approx(SECONDS / 2, abs=1),
        pytest.approx(SECONDS if last else SECONDS / 2, abs=1),
    ]
