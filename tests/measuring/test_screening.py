"""Successive halving: what is looked at how often, and who wins."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from agent.measuring.decision import Status
from agent.measuring.measurement import Failure
from agent.measuring.screening import (
    LONG_QUADS,
    SHORT_QUADS,
    Look,
    LookRules,
    Looks,
    ScreenResult,
    halve,
)

SHAS = tuple("abcdefgh")


def each(look: Callable[[str, int], Look | Failure | None]) -> Looks:
    """One look after the other; None ends them, as a deadline does."""

    def all_of(shas: tuple[str, ...], quads: int, _fresh: bool) -> Mapping[str, Look | Failure]:
        seen: dict[str, Look | Failure] = {}
        for sha in shas:
            if (found := look(sha, quads)) is None:
                break
            seen[sha] = found
        return seen

    return all_of


def faster_by(percent: float) -> Look:
    return Look(math.log(1 + percent / 100), 1 / (1 + percent / 100))


def test_time_goes_to_those_that_may_win() -> None:
    looks: Counter[str] = Counter()

    def look(sha: str, quads: int) -> Look:
        looks[sha] += quads
        return faster_by(SHAS.index(sha))

    results, ranking = halve(SHAS, each(look))
    assert ranking == tuple(reversed(SHAS))
    assert looks["a"] == SHORT_QUADS
    assert looks["h"] == SHORT_QUADS + 2 * LONG_QUADS
    assert sum(looks.values()) == 8 * SHORT_QUADS + 6 * LONG_QUADS
    assert [r.sha for r in results] == list(SHAS)
    assert math.isclose(results[4].improvement or 0, 1 - 1 / 1.04)


def test_two_variants_get_one_long_look() -> None:
    taken = []

    def look(sha: str, quads: int) -> Look:
        taken.append((sha, quads))
        return faster_by(1.0 if sha == "b" else -1.0)

    assert halve(("a", "b"), each(look))[1] == ("b", "a")
    assert taken == [("a", LONG_QUADS), ("b", LONG_QUADS)]


def test_a_variant_that_fails_is_out_even_if_it_fails_late() -> None:
    def look(sha: str, quads: int) -> Look | Failure:
        if sha == "c" or (sha == "b" and quads == LONG_QUADS):
            return Failure(Status.CRASH, correct=True, reason="out of memory")
        return faster_by(5.0 if sha == "b" else 1.0)

    results, ranking = halve(("a", "b", "c", "d"), each(look))
    assert ranking == ("a", "d")
    assert [r.reason for r in results] == ["", "out of memory", "out of memory", ""]
    assert results[1].latency_ms is None


def test_what_is_far_behind_is_not_looked_at_again() -> None:
    """Four variants: halving alone would look at two of them longer."""
    looks: list[str] = []

    def look(sha: str, _quads: int) -> Look:
        looks.append(sha)
        return faster_by({"a": 30.0, "b": 10.0, "c": -50.0, "d": 5.0}[sha])

    _, ranking = halve(("a", "b", "c", "d"), each(look))
    assert looks == ["a", "b", "c", "d"]
    assert ranking[0] == "a"


def test_when_time_runs_out_what_was_seen_is_ranked() -> None:
    left = iter([faster_by(1), faster_by(3), None])
    results, ranking = halve(("a", "b", "c"), each(lambda _sha, _quads: next(left)))
    assert ranking == ("b", "a")
    assert results[2].reason == "not reached in time"


def test_all_failing_ranks_nobody() -> None:
    def look(_sha: str, _quads: int) -> Failure:
        return Failure(Status.CRASH, correct=True, reason="no")

    assert halve(SHAS, each(look))[1] == ()


def test_it_finds_the_best_more_often_than_one_look_of_the_same_cost() -> None:
    """Under the 2 % scatter of a power-capped product, with the best 3 % ahead of the next."""
    gains = (0.0, -4.0, -6.0, 3.0, 0.0, -1.0, -8.0, -3.0)
    generator = random.Random(0)

    def noisy(sha: str, quads: int) -> Look:
        scatter = 0.02 * math.sqrt(LONG_QUADS / quads)
        gain = math.log(1 + gains[SHAS.index(sha)] / 100)
        return Look(gain + generator.gauss(0, scatter), 1.0)

    rounds = 500
    halved = sum(halve(SHAS, each(noisy))[1][0] == "d" for _ in range(rounds))
    cost = (8 * SHORT_QUADS + 6 * LONG_QUADS) // 8
    single = sum(max(SHAS, key=lambda s: noisy(s, cost).log_ratio) == "d" for _ in range(rounds))
    assert halved > single
    assert halved >= 0.75 * rounds


def test_what_processes_make_alike_is_looked_at_in_others() -> None:
    """A power-capped product: processes of the same code differ by 1.6 %, their blocks hardly."""
    gains = {"a": 0.0, "b": -4.0, "c": 1.5, "d": 3.0, "e": -1.0}
    generator = random.Random(0)
    rounds = 500
    found = dict.fromkeys((0.0, 0.03), 0)
    fresh_looks = 0
    for near in found:
        for _ in range(rounds):
            of_process: dict[str, float] = {}

            def look(
                shas: tuple[str, ...],
                quads: int,
                fresh: bool,
                offsets: dict[str, float] = of_process,
            ) -> Mapping[str, Look | Failure]:
                nonlocal fresh_looks
                fresh_looks += len(shas) if fresh else 0
                if fresh or not offsets:
                    offsets |= {sha: generator.gauss(0, 0.016) for sha in shas}
                return {
                    sha: Look(
                        math.log(1 + gains[sha] / 100)
                        + offsets[sha]
                        + generator.gauss(0, 0.004 / math.sqrt(quads)),
                        1.0,
                    )
                    for sha in shas
                }

            found[near] += halve(tuple("abcde"), look, near)[1][0] == "d"
    assert found[0.03] > found[0.0]
    assert 2 * rounds <= fresh_looks <= 3 * rounds * 0.9


def test_quiet_variants_need_no_other_processes() -> None:
    asked = []

    def look(shas: tuple[str, ...], _quads: int, fresh: bool) -> Mapping[str, Look | Failure]:
        asked.append(fresh)
        return {sha: faster_by(SHAS.index(sha)) for sha in shas}

    assert halve(SHAS, look, near=0.005)[1][0] == "h"
    assert not any(asked)


@pytest.mark.parametrize(
    ("percents", "again"),
    [((0, 30), 0), ((30, 0), 0), ((0, 5), 2 * LONG_QUADS), ((0, 30, 2), 0)],
)
def test_what_earlier_looks_leave_no_doubt_of_is_not_looked_at_again(
    percents: tuple[int, ...], again: int
) -> None:
    taken: Counter[str] = Counter()

    def look(sha: str, quads: int) -> Look:
        taken[sha] += quads
        return faster_by(percents[SHAS.index(sha)])

    shas = SHAS[: len(percents)]
    before = {
        sha: ScreenResult(sha, 1.0, improvement=1 - 1 / (1 + percent / 100))
        for sha, percent in zip(shas, percents, strict=True)
    }
    results, ranking = halve(shas, each(look), before=before)
    assert ranking[0] == shas[percents.index(max(percents))]
    assert sum(taken.values()) == again
    assert [result.sha for result in results] == list(shas)


def test_one_that_earlier_looks_did_not_see_is_not_behind_for_that() -> None:
    before = {"a": ScreenResult("a", 1.0, improvement=0.0)}
    percents = {"a": 0, "b": 40}
    _, ranking = halve(("a", "b"), each(lambda sha, _: faster_by(percents[sha])), before=before)
    assert ranking == ("b", "a")


def of_configs(percents: Mapping[str, float], scatter: Callable[[], float] = lambda: 0.0) -> Look:
    log_ratios = {name: math.log(1 + p / 100) + scatter() for name, p in percents.items()}
    return Look(sum(log_ratios.values()) / len(log_ratios), 1.0, log_ratios=log_ratios)


SIZES: Mapping[str, Mapping[str, float]] = {
    "fast": {"384": -3.5, "1024": 12, "2048": 15},
    "faster": {"384": -5, "1024": 14, "2048": 16},
    "even": {"384": 0, "1024": 5, "2048": 6},
    "flat": {"384": 0.1, "1024": 0, "2048": 0.2},
    "slow": {"384": -9, "1024": -9, "2048": -9},
    "slower": {"384": -10, "1024": -10, "2048": -10},
}
"""Variants of which the best on average would be reverted for its smallest config."""


def test_the_best_that_slows_no_config_down_wins_where_the_others_would_be_reverted() -> None:
    looks: Counter[str] = Counter()

    def look(sha: str, quads: int) -> Look:
        looks[sha] += quads
        return of_configs(SIZES[sha])

    results, ranking = halve(tuple(SIZES), each(look))
    assert ranking == ("even", "flat", "faster", "fast", "slow", "slower")
    assert {r.sha: r.slowed for r in results if r.slowed} == {
        "fast": "384", "faster": "384", "slow": "384", "slower": "384",
    }  # fmt: skip
    assert looks["even"] == looks["faster"] == looks["fast"] > looks["slow"] == SHORT_QUADS


def test_what_gains_nothing_that_is_rewarded_does_not_win_by_slowing_nothing_down() -> None:
    others = [sha for sha in SIZES if sha != "even"]
    assert halve(tuple(others), each(lambda sha, _: of_configs(SIZES[sha])))[1][0] == "faster"


def test_what_comparisons_cannot_tell_apart_slows_nothing_down() -> None:
    rules = LookRules(resolvable={"384": 0.05})
    ranking = halve(tuple(SIZES), each(lambda sha, _: of_configs(SIZES[sha])), rules=rules)[1]
    assert ranking[0] == "faster"
    noisy = LookRules(resolvable={"short": 0.1})
    log_ratios = {"short": math.log(0.93), "long": math.log(0.96), "other": 0.1}
    assert noisy.slowed(log_ratios, LONG_QUADS) == "long"
    assert noisy.slowed({}, LONG_QUADS) == ""


def test_an_earlier_look_counts_as_one_that_saw_a_config_slowed_down() -> None:
    known = {
        "fast": ScreenResult("fast", 1.0, improvement=0.2, slowed="384"),
        "even": ScreenResult("even", 1.0, improvement=0.05),
    }
    before = {sha: known[sha] for sha in ("fast", "even")}
    assert halve(("fast", "even"), each(lambda *_: None), before=before)[1] == ("even", "fast")


def test_scatter_of_many_configs_hardly_costs_the_best_its_place() -> None:
    """Nine of eighteen configs stay as they are, and of nine that scatter by 2 % in a short look
    the least looks slowed down. By the rules' 2 % alone the best would lose its place in a quarter.
    """
    generator = random.Random(0)
    gains = {"even": [3.0] * 18, "best": [0.0] * 9 + [14.0] * 9, "flat": [0.0] * 18}

    def noisy(sha: str, quads: int) -> Look:
        percents = {str(n): gain for n, gain in enumerate(gains[sha])}
        return of_configs(percents, lambda: generator.gauss(0, 0.03 / math.sqrt(quads)))

    rounds = 300
    found = Counter(halve(tuple(gains), each(noisy))[1][0] for _ in range(rounds))
    assert found["best"] >= 0.9 * rounds, found
