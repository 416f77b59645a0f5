"""Looks by the parent's clock: what holds a burst up accuses nobody, and what is hidden is seen."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from agent.harness.measuring.warm_launches import ROUNDS, ROUNDS_OF_HOST, warm_launches
from agent.harness.processes.call_orders import WarmLaunch
from agent.measuring.disturbance import clock_problem

TRIALS = 2000
REPORTED_MS = {True: 0.04, False: 0.04}


def told(look: Callable[[bool], WarmLaunch]) -> str | None:
    found = warm_launches(look, REPORTED_MS)
    return clock_problem(REPORTED_MS, found.ms, keeps_host=found.keeps_host)


def autograd(chance: random.Random, hidden_ms: float = 0.0) -> Callable[[bool], WarmLaunch]:
    """A call that keeps the host for 0.2 ms, and in a third of all bursts for up to 0.4.

    What a candidate hides on the GPU shows where it takes longer than the host.
    """

    def look(whose: bool) -> WarmLaunch:
        held_up_ms = chance.uniform(0.0, 0.2) if chance.random() < 1 / 3 else 0.0
        host_ms = 0.2 + held_up_ms
        return WarmLaunch(host_ms if whose else max(host_ms, hidden_ms), keeps_host=True)

    return look


def test_a_host_that_is_held_up_now_and_again_accuses_nobody() -> None:
    chance = random.Random(0)
    accused = [told(autograd(chance)) for _ in range(TRIALS)]
    assert [text for text in accused if text] == []


def test_work_that_is_hidden_shows_in_every_round() -> None:
    chance = random.Random(0)
    accused = [told(autograd(chance, hidden_ms=0.6)) for _ in range(TRIALS)]
    assert None not in accused
    assert "the candidate's worker reports 0.040000 ms a launch" in str(accused[0])


@pytest.mark.parametrize("late", range(1, ROUNDS + 2))
def test_the_least_look_counts_where_the_host_keeps_nobody_waiting(late: int) -> None:
    """A burst of both arms is held up until a look that comes too late."""
    looks = {True: 0, False: 0}

    def look(whose: bool) -> WarmLaunch:
        looks[whose] += 1
        return WarmLaunch(0.05 if looks[whose] >= late else 0.9, keeps_host=False)

    assert (told(look) is None) is (late <= ROUNDS)


def test_the_arms_take_turns_and_an_honest_pair_is_looked_at_once() -> None:
    asked: list[bool] = []

    def look(whose: bool, shown_ms: float) -> WarmLaunch:
        asked.append(whose)
        return WarmLaunch(shown_ms, keeps_host=True)

    assert told(lambda whose: look(whose, 0.3)) is None
    assert asked == [True, False]
    asked.clear()
    assert told(lambda whose: look(whose, 0.3 if whose else 0.9))
    assert asked == [True, False, False, True] * (ROUNDS_OF_HOST // 2)
