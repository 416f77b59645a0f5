"""How many samples a test takes that is run by itself, or at the baseline."""

from __future__ import annotations

import pytest

from tile_agent_pytest.bench import MAX_SAMPLES, MIN_SAMPLES, Sampler, Turns, sampled


class Counting:
    """A sampler of so many launches a sample; notes how many it was asked for."""

    method, label, calls, keeps_host = "Counting", "counted", False, False
    turns: Turns | None = None

    def __init__(self, launches: int) -> None:
        self.launches = launches
        self.asked: list[int] = []

    def sample(self, count: int) -> list[float]:
        self.asked.append(count)
        return [1.0] * count

    def burst(self, count: int) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("launches", "estimate_ms", "rep_ms", "asked"),
    [
        (1, 0.5, 100.0, [50, 200]),
        (50, 0.02, 100.0, [25, 100]),  # each sample is fifty launches
        (50, 0.0001, 100.0, [MAX_SAMPLES, MAX_SAMPLES]),
        (1, 500.0, 100.0, [1, MIN_SAMPLES]),
        (1, 0.5, 0.0, [50, MIN_SAMPLES]),
    ],
)
def test_as_many_as_fit_into_the_time(
    launches: int, estimate_ms: float, rep_ms: float, asked: list[int]
) -> None:
    sampler = Counting(launches)
    checked: Sampler = sampler
    samples, label = sampled(checked, estimate_ms, 25.0, rep_ms)
    assert sampler.asked == asked
    assert (len(samples), label) == (asked[-1], "counted")
