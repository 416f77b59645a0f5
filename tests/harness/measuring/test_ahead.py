"""How many pairs may make inputs beside another, by what one of them was seen to hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent.harness.measuring.ahead import Ahead


class Started:
    """In place of the workers: notes what is asked of them."""

    beside, ahead = True, 0

    def __init__(self) -> None:
        self.waiting = 0
        self.begun: list[bool] = []

    def start(self, pairs: int) -> int:
        self.waiting = max(self.waiting, pairs)
        return self.waiting

    def await_waiting(self, deadline: float, *, begin: bool, call: bool) -> None:
        self.begun.append(begin)


def ahead_of(held_share: float | None, used_share: float = 0.05) -> tuple[Ahead, Started]:
    watch: Any = SimpleNamespace(used_share=lambda: used_share)
    workers: Any = Started()
    return Ahead(workers, watch, most=4, tunes=False, held_share=held_share), workers


@pytest.mark.parametrize(
    ("held_share", "waiting"),
    [(0.02, 4), (0.1, 4), (0.105, 3), (0.16, 2), (0.2, 1)],
)
def test_as_many_as_the_memory_holds_begin(held_share: float, waiting: int) -> None:
    ahead, workers = ahead_of(held_share)
    assert ahead.begin(following=9, deadline=0.0) == waiting
    assert workers.begun == [True]
    assert (1 + waiting) * held_share <= 0.5


@pytest.mark.parametrize("held_share", [None, 0.26, 0.9])
def test_they_only_collect_where_there_is_no_room_or_nobody_knows(held_share: float | None) -> None:
    ahead, workers = ahead_of(held_share)
    assert ahead.begin(following=9, deadline=0.0) == 4
    assert workers.begun == []


@pytest.mark.parametrize(("held_share", "begins"), [(0.1, True), (0.12, False)])
def test_those_that_wait_begin_where_all_of_them_fit(held_share: float, begins: bool) -> None:
    ahead, workers = ahead_of(held_share)
    workers.start(4)
    ahead.settle(0.0, known_to_fit=True)
    assert workers.begun == [begins]


def test_of_a_pair_that_comes_soon_no_more_begin_than_follow() -> None:
    ahead, workers = ahead_of(0.02)
    assert ahead.begin(following=2, deadline=0.0) == 2
    assert workers.begun == [True]


@pytest.mark.parametrize(("held_share", "begun"), [(0.1, [True]), (0.2, [])])
def test_those_that_began_early_count_too(held_share: float, begun: list[bool]) -> None:
    """Three wait already: more than there is room for only collect."""
    ahead, workers = ahead_of(held_share)
    ahead.begin_early(4)
    assert ahead.begin(following=2, deadline=0.0) == 3
    assert workers.begun == begun
