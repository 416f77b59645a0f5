"""How often decisions are right, through the real decision code, on sources with a known truth.

Fixed seeds: these are not flaky, they fail when the protocol gets worse.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import pytest

from agent.measuring.blocks import Block, ConfigBlocks, RawPair, Telemetry
from agent.measuring.decision import Gain, Rules, Status, Verdict, decide
from agent.measuring.disturbance import disturbance
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Calibration, Failure, calibrate, measure
from agent.measuring.statistics import Comparison
from agent.state import ATTEMPTS
from tests.support.simulated import HOSTILE, QUIET, TYPICAL, SimulatedPairs, Surroundings

TRIALS = 400
ONE = {"c": 1.0}
EIGHT = {f"c{n}": 1.0 for n in range(8)}
ALONE = ComparisonPlan()
MENDABLE = ComparisonPlan(attempts=ATTEMPTS)


@cache
@cache
def calibration_of(
    surroundings: Surroundings, configs: tuple[str, ...], seed: int, *, cut_off: bool = False
) -> Calibration:
    """The same code against itself, as at a run's baseline; with a budget of the fewest pairs.

    By its seed it is the same in every test, and for each attempt of one.
    """
    source = SimulatedPairs(surroundings, dict.fromkeys(configs, 1.0), seed=seed)
    outcome = calibrate(source, ComparisonPlan(), draws=200, within_budget=lambda: not cut_off)
    assert isinstance(outcome, Calibration)
    assert not cut_off or outcome.pairs == ComparisonPlan().least
    return outcome


def verdicts(
    surroundings: Surroundings,
    slower: Mapping[str, float],
    trials: int = TRIALS,
    *,
    plan: ComparisonPlan = ALONE,
    attempt: int = 0,
    cut_off: bool = False,
) -> list[Verdict]:
    """Decisions on a candidate of known speed, each in a run of its own."""
    found = []
    for seed in range(trials):
        calibration = calibration_of(
            surroundings, tuple(slower), seed=10_000 + seed, cut_off=cut_off
        )
        source = SimulatedPairs(surroundings, slower, seed=seed + 100_000 * attempt)
        comparison = measure(source, Rules(), plan, calibration)
        assert not isinstance(comparison, Failure)
        found.append(decide(comparison, Rules(), noise_floor=calibration.noise_floor))
    return found


def kept(found: list[Verdict]) -> float:
    return sum(verdict.status is Status.KEEP for verdict in found) / len(found)


def regressed(found: list[Verdict]) -> float:
    return sum("slower" in verdict.reason for verdict in found) / len(found)


@pytest.mark.full
@pytest.mark.parametrize(
    ("surroundings", "most"), [(QUIET, 0.01), (TYPICAL, 0.01), (HOSTILE, 0.02)]
)
def test_an_edit_that_changes_nothing_is_not_kept(surroundings: Surroundings, most: float) -> None:
    assert kept(verdicts(surroundings, ONE, trials=1000)) <= most


@pytest.mark.full
@pytest.mark.parametrize(("surroundings", "most"), [(TYPICAL, 0.01), (HOSTILE, 0.02)])
def test_nor_is_it_where_the_budget_cut_the_calibration_off(
    surroundings: Surroundings, most: float
) -> None:
    assert kept(verdicts(surroundings, ONE, trials=1000, cut_off=True)) <= most


@pytest.mark.full
@pytest.mark.parametrize(
    ("surroundings", "gain", "least"),
    [(QUIET, 0.01, 0.90), (TYPICAL, 0.05, 0.95), (TYPICAL, 0.03, 0.90), (HOSTILE, 0.05, 0.95)],
)
def test_a_real_improvement_is_kept(surroundings: Surroundings, gain: float, least: float) -> None:
    assert kept(verdicts(surroundings, {"c": 1 - gain})) >= least


@pytest.mark.full
@pytest.mark.parametrize(
    ("surroundings", "most"), [(QUIET, 0.01), (TYPICAL, 0.01), (HOSTILE, 0.02)]
)
def test_an_iteration_that_is_mended_twice_keeps_what_changes_nothing_no_more_often(
    surroundings: Surroundings, most: float
) -> None:
    """Three null edits, one after the other, until one of them is kept: as rarely as of one."""
    attempts = [
        verdicts(surroundings, ONE, 1000, plan=MENDABLE, attempt=n) for n in range(ATTEMPTS)
    ]
    kept_one = [any(v.status is Status.KEEP for v in each) for each in zip(*attempts, strict=True)]
    assert statistics.fmean(kept_one) <= most


@pytest.mark.full
@pytest.mark.parametrize(
    ("surroundings", "gain", "least"),
    [(QUIET, 0.01, 0.90), (TYPICAL, 0.05, 0.95), (TYPICAL, 0.03, 0.90), (HOSTILE, 0.05, 0.95)],
)
def test_a_real_improvement_is_kept_in_an_iteration_that_may_be_mended(
    surroundings: Surroundings, gain: float, least: float
) -> None:
    assert kept(verdicts(surroundings, {"c": 1 - gain}, plan=MENDABLE)) >= least


@pytest.mark.full
def test_a_slower_config_is_seen_as_well_in_an_iteration_that_may_be_mended() -> None:
    slower = {**dict.fromkeys(EIGHT, 0.95), "c3": 1.06}
    found = [
        regressed(verdicts(HOSTILE, slower, trials=200, plan=plan)) for plan in (ALONE, MENDABLE)
    ]
    assert min(found) >= 0.95


def test_attempts_share_the_error_rate_of_a_keep_and_not_that_of_a_slowdown() -> None:
    pairs = [SimulatedPairs(TYPICAL, {"c": 0.97, "d": 0.97}, seed=1).pair(n) for n in range(5)]
    alone, mendable = (plan.compare(pairs, plan.alpha) for plan in (ALONE, MENDABLE))
    third = replace(ALONE, alpha=ALONE.alpha / ATTEMPTS).compare(pairs, ALONE.alpha / ATTEMPTS)
    assert mendable.overall == third.overall != alone.overall
    assert mendable.resolvable == third.resolvable > alone.resolvable
    assert mendable.configs == alone.configs


@pytest.mark.full
@pytest.mark.parametrize("surroundings", [TYPICAL, HOSTILE])
def test_unchanged_configs_are_not_called_slower(surroundings: Surroundings) -> None:
    assert regressed(verdicts(surroundings, EIGHT, trials=200)) <= 0.02


@pytest.mark.full
@pytest.mark.parametrize("surroundings", [TYPICAL, HOSTILE])
def test_one_slower_config_among_eight_reverts(surroundings: Surroundings) -> None:
    """Though the other seven are faster, and the whole with them."""
    slower = {**dict.fromkeys(EIGHT, 0.95), "c3": 1.06}
    found = verdicts(surroundings, slower, trials=200)
    assert regressed(found) >= 0.95
    assert kept(found) <= 0.05


@pytest.mark.parametrize(
    ("takes", "pairs"),
    [(0.8, ComparisonPlan().sure_after), (0.93, ComparisonPlan().looks[0])],
    ids=str,
)
def test_a_large_gain_needs_few_pairs(takes: float, pairs: int) -> None:
    calls = []

    class Counting(SimulatedPairs):
        def pair(self, number: int, following: int):  # type: ignore[no-untyped-def]
            calls.append(number)
            return super().pair(number, following)

    comparison = measure(Counting(TYPICAL, {"c": takes}, seed=1), Rules(), ComparisonPlan())
    assert not isinstance(comparison, Failure)
    assert decide(comparison, Rules()).gain is Gain.MAJOR
    assert len(calls) == pairs


def test_a_small_gain_beyond_doubt_is_mostly_looked_at_once() -> None:
    pairs = []
    for seed in range(20):
        source = SimulatedPairs(QUIET, {"c": 0.99}, seed)
        comparison = measure(source, Rules(), ComparisonPlan())
        assert not isinstance(comparison, Failure)
        assert decide(comparison, Rules()).gain is Gain.MARGINAL
        pairs.append(comparison.pairs)
    assert statistics.median(pairs) == ComparisonPlan().looks[0]


def test_one_config_in_doubt_among_large_gains_is_looked_at_longer() -> None:
    source = SimulatedPairs(TYPICAL, {"c": 0.5, "d": 0.97}, seed=1)
    comparison = measure(source, Rules(), ComparisonPlan())
    assert not isinstance(comparison, Failure)
    assert comparison.pairs == ComparisonPlan().looks[0]


COOL = Telemetry(sm_mhz=1980, power_w=400, temperature_c=50, event_reasons=0)


@pytest.mark.parametrize(
    ("telemetry", "says"),
    [
        (Telemetry(1200, 700, 90, 0x40), "hardware thermal slowdown"),
        (Telemetry(1200, 700, 90, 0x20), "software thermal slowdown"),
        (Telemetry(1200, 700, 60, 0x8), "hardware slowdown"),
        (Telemetry(1200, 700, 60, 0x80), "power brake"),
        (Telemetry(1980, 400, 50, 0, (4711,)), "another process uses the GPU (pid 4711)"),
    ],
)
def test_a_disturbed_source_is_no_verdict(telemetry: Telemetry, says: str) -> None:
    source = SimulatedPairs(TYPICAL, {"c": 0.5}, seed=1, telemetry=telemetry)
    outcome = measure(source, Rules(), ComparisonPlan())
    assert isinstance(outcome, Failure)
    assert outcome.unmeasured and outcome.correct and not outcome.incumbent
    assert says in outcome.reason


def test_the_power_cap_is_no_disturbance() -> None:
    capped = Telemetry(1500, 700, 60, 0x4)
    source = SimulatedPairs(TYPICAL, {"c": 0.8}, seed=1, telemetry=capped)
    assert not isinstance(measure(source, Rules(), ComparisonPlan()), Failure)


@pytest.mark.parametrize("reports", [0.5, 0.1, 4.0])
def test_a_worker_that_lies_about_its_time_is_no_verdict(reports: float) -> None:
    source = SimulatedPairs(TYPICAL, ONE, seed=1, telemetry=COOL, reports=reports)
    outcome = measure(source, Rules(), ComparisonPlan())
    assert isinstance(outcome, Failure)
    assert outcome.unmeasured
    assert "worker" in outcome.reason


def test_an_incumbent_that_is_slower_than_it_was_is_no_verdict() -> None:
    calibration = Calibration(0.01, {"c": 0.35}, band=0.1, pairs=8)
    source = SimulatedPairs(TYPICAL, {"c": 0.8}, seed=1, telemetry=COOL)
    outcome = measure(source, Rules(), ComparisonPlan(), calibration)
    assert isinstance(outcome, Failure)
    assert "the machine has changed" in outcome.reason


def test_an_incumbent_that_stays_faster_than_it_was_is_compared_at_its_new_level() -> None:
    calibration = Calibration(0.01, {"c": 2.0}, band=0.1, pairs=8)
    source = SimulatedPairs(TYPICAL, {"c": 0.8}, seed=1, telemetry=COOL)
    outcome = measure(source, Rules(), ComparisonPlan(), calibration)
    assert not isinstance(outcome, Failure)
    assert outcome.pairs == 3  # those that showed it are evidence too
    assert outcome.overall.improvement == pytest.approx(0.2, abs=0.02)


class Levels(SimulatedPairs):
    """Both arms of each config take so many times what they should, pair by pair."""

    factors: Mapping[str, Sequence[float]] = MappingProxyType({})

    def pair(self, number: int, following: int):  # type: ignore[no-untyped-def]
        raw = super().pair(number, following)
        configs = []
        for config in raw.configs:
            of = self.factors[config.config]
            factor = of[min(number, len(of) - 1)]
            blocks = (replace(b, latency_ms=factor * b.latency_ms) for b in config.blocks)
            configs += [ConfigBlocks(config.config, tuple(blocks))] if factor else []
        return RawPair(tuple(configs))


def at_levels(
    factors: Mapping[str, Sequence[float]], levels_ms: Mapping[str, float]
) -> Comparison | Failure:
    source = Levels(QUIET, dict.fromkeys(factors, 1.0), seed=1, telemetry=COOL)
    source.factors = factors
    calibration = Calibration(0.01, dict(levels_ms), band=0.1, pairs=8)
    return measure(source, Rules(), ComparisonPlan(), calibration)


@pytest.mark.parametrize(
    ("factors", "levels_ms"),
    [
        ({"c": (1.0, 0.5, 0.25) * 4}, {"c": 2.0}),
        ({"c": (1.0, 1.0), "d": (1.0, 1.0)}, {"c": 0.7, "d": 0.35}),
        ({"c": (0.5, 0.5, 0.5, 0.7)}, {"c": 0.5}),
        ({"a": (0.5,), "b": (1.08, 1.08, 1.08, 1.17)}, {"a": 0.5, "b": 0.5}),
    ],
    ids=["it jumps", "slower in one config", "it leaves the new level", "another creeps up"],
)
def test_an_incumbent_at_no_level_is_no_verdict(
    factors: Mapping[str, Sequence[float]], levels_ms: Mapping[str, float]
) -> None:
    outcome = at_levels(factors, levels_ms)
    assert isinstance(outcome, Failure)
    assert "the machine has changed" in outcome.reason


def test_an_incumbent_that_comes_back_to_its_level_is_compared_there() -> None:
    outcome = at_levels({"c": (0.5, 0.5, 0.5, 1.0)}, {"c": 0.5})
    assert not isinstance(outcome, Failure)
    (config,) = outcome.configs
    assert config.incumbent_ms == pytest.approx(0.5, rel=0.05)


def test_fast_pairs_of_other_configs_are_no_verdict() -> None:
    outcome = at_levels({"c": (0.5,), "d": (0.5, 0.5, 0.0)}, {"c": 0.5, "d": 0.5})
    assert isinstance(outcome, Failure)
    assert outcome.unmeasured


def test_a_disturbance_that_passes_costs_nothing_but_time() -> None:
    class Passing(SimulatedPairs):
        def pair(self, number: int, following: int):  # type: ignore[no-untyped-def]
            self.telemetry = Telemetry(1200, 700, 90, 0x40) if number < 3 else COOL
            return super().pair(number, following)

    outcome = measure(Passing(TYPICAL, {"c": 0.8}, seed=1), Rules(), ComparisonPlan())
    assert not isinstance(outcome, Failure)


def test_too_little_time_is_no_verdict() -> None:
    class Hurried(SimulatedPairs):
        def has_time(self) -> bool:
            return False

    outcome = measure(Hurried(TYPICAL, {"c": 0.8}, seed=1), Rules(), ComparisonPlan())
    assert isinstance(outcome, Failure) and outcome.unmeasured


@pytest.mark.parametrize(("reports", "told"), [(1.0, False), (0.25, True)])
def test_a_busy_machine_does_not_hide_a_false_clock(reports: float, told: bool) -> None:
    """Of 60 ms, a worker waits 20 for a processor while it times, and 20 before it answers."""
    blocks = [
        Block(n % 2 == 0, 1.0, 40.0 * (reports if n % 2 else 1.0), 60.0, processor_ms=21.0)
        for n in range(4)
    ]
    found = disturbance(RawPair((ConfigBlocks("c", tuple(blocks)),)))
    assert (found is not None) is told
    assert not told or "does not report 22.0 ms of them" in str(found)


def test_short_blocks_are_not_taken_for_a_false_clock() -> None:
    """What a message takes is no work; who was interrupted while it timed shows none of it."""
    ours = Block(True, 1.0, 3.0, 5.0, processor_ms=1.6)
    theirs = Block(False, 1.0, 0.5, 1.6, processor_ms=1.5)
    raw = RawPair((ConfigBlocks("c", (ours, theirs, theirs, ours)),))
    assert disturbance(raw) is None


@pytest.mark.parametrize(("waited_ms", "told"), [(9.0, False), (2.0, True)])
def test_who_waited_for_a_processor_between_its_calls_reports_no_less(
    waited_ms: float, told: bool
) -> None:
    ours = Block(True, 1.0, 10.0, 12.0, processor_ms=11.0)
    theirs = Block(False, 1.0, 10.0, 20.0, processor_ms=11.0, waited_ms=waited_ms)
    raw = RawPair((ConfigBlocks("c", (ours, theirs, theirs, ours)),))
    assert (disturbance(raw) is not None) is told


def test_what_was_waited_for_a_processor_excuses_no_more_than_itself() -> None:
    """It may be the candidate's own doing: it yields to a process that does its work."""
    ours = Block(True, 1.0, 40.0, 42.0, processor_ms=30.0, waited_ms=10.0)
    for theirs, share in (
        (Block(False, 1.0, 16.0, 42.0, waited_ms=10.0), "50%"),
        (Block(False, 1.0, 1.0, 1110.0, waited_ms=1109.0), "0%"),
    ):
        raw = RawPair((ConfigBlocks("c", (ours, theirs, theirs, ours)),))
        assert f"the candidate's worker reports {share} of the time" in str(disturbance(raw))


@pytest.mark.parametrize(("reports", "told"), [(1.0, False), (0.5, True)])
def test_a_worker_that_reports_less_than_passed_is_no_evidence(reports: float, told: bool) -> None:
    blocks = [Block(n % 2 == 0, 1.0, 20.0 * (reports if n % 2 else 1.0), 21.0) for n in range(4)]
    found = disturbance(RawPair((ConfigBlocks("c", tuple(blocks)),)))
    assert (found is not None) is told
    assert not told or "the candidate's worker reports 48% of the time" in str(found)


@pytest.mark.parametrize(
    ("ours_ms", "theirs_ms", "keeps_host", "told"),
    [
        (0.31, 0.9, False, "candidate"),
        (0.9, 0.31, False, "incumbent"),
        (0.31, 0.9, True, "candidate"),
        (0.9, 0.9, True, ""),  # the host's time
        (0.31, 0.31, True, ""),
        (0.9, 1.3, True, "candidate"),  # and what it hides beside it
        (0.45, 50.0, True, "candidate"),
        (5.0, 0.9, True, ""),
    ],
)
def test_a_clock_that_shows_the_hosts_time_accuses_nobody(
    ours_ms: float, theirs_ms: float, keeps_host: bool, told: str
) -> None:
    """Both report 0.3 ms a launch; the parent's clock shows the two times."""
    seen = Telemetry(1980, 300.0, 40, 0, ())
    blocks = tuple(Block(n % 2 == 0, 0.3, 20.0, 21.0, seen) for n in range(4))
    warm_ms = {True: ours_ms, False: theirs_ms}
    found = disturbance(RawPair((ConfigBlocks("c", blocks, warm_ms, keeps_host=keeps_host),)))
    assert (found is None) == (told == "")
    assert not told or f"the {told}'s worker reports 0.300000 ms a launch" in str(found)
