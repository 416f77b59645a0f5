"""The state machine: which event belongs to which phase, and what it makes of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.causes import Cause, Diagnosis
from agent.errors import TransitionError
from agent.events import (
    EVENTS,
    Baselined,
    Calibrated,
    Dropped,
    Event,
    Failed,
    Finished,
    Gathered,
    GivenUp,
    HandedOver,
    Measured,
    Offered,
    Proposed,
    Record,
    Scouted,
    Screened,
    Settled,
    Skipped,
    Started,
    Stopped,
    StopReason,
    Verified,
)
from agent.journal import replay
from agent.least_time import LeastTime, LeastTimes
from agent.measuring.decision import Gain, Status, Verdict
from agent.measuring.measurement import Failure
from agent.measuring.statistics import ConfigComparison, Effect
from agent.measuring.subset import Subset
from agent.options import Options
from agent.report.progress import lines
from agent.report.result import notes
from agent.state import Phase, Run, decided, may_mend, stop_detail, stop_reason
from agent.transitions import advance
from agent.usage import Usage
from tests.support.history import (
    BASELINED,
    CALIBRATED,
    GATHERED,
    HISTORY,
    LAUNCH,
    SCOUTED,
    SCREENED,
    STARTED,
    comparison,
    proposed,
    run_in,
)

LEGAL: dict[tuple[Phase, type[Event]], Phase] = {
    (Phase.SETUP, Started): Phase.BASELINE,
    (Phase.BASELINE, Baselined): Phase.CALIBRATE,
    (Phase.CALIBRATE, Calibrated): Phase.PROPOSE,
    (Phase.CALIBRATE, Skipped): Phase.CALIBRATE,
    (Phase.CALIBRATE, Stopped): Phase.FINISH,
    (Phase.PROPOSE, Calibrated): Phase.PROPOSE,
    (Phase.PROPOSE, Skipped): Phase.PROPOSE,
    (Phase.PROPOSE, Offered): Phase.PROPOSE,
    (Phase.PROPOSE, HandedOver): Phase.PROPOSE,
    (Phase.PROPOSE, Proposed): Phase.VERIFY,
    (Phase.PROPOSE, Gathered): Phase.SCOUT,
    (Phase.SCOUT, Scouted): Phase.PROPOSE,
    (Phase.PROPOSE, Stopped): Phase.FINISH,
    (Phase.SCREEN, Screened): Phase.VERIFY,
    (Phase.SCREEN, Failed): Phase.SETTLE,
    **{(phase, Dropped): Phase.PROPOSE for phase in list(Phase)[5:9]},
    (Phase.VERIFY, Verified): Phase.MEASURE,
    (Phase.VERIFY, Failed): Phase.SETTLE,
    (Phase.MEASURE, Measured): Phase.SETTLE,
    (Phase.MEASURE, Failed): Phase.SETTLE,
    (Phase.SETTLE, Settled): Phase.PROPOSE,
    (Phase.REPAIR, Proposed): Phase.VERIFY,
    (Phase.REPAIR, Skipped): Phase.REPAIR,
    (Phase.REPAIR, GivenUp): Phase.PROPOSE,
    (Phase.FINISH, Finished): Phase.DONE,
}
EXAMPLES: dict[type[Event], Event] = {
    Started: STARTED,
    Baselined: BASELINED,
    Calibrated: CALIBRATED,
    Skipped: Skipped("pipelining", "no loop"),
    Offered: Offered("split-k", "tiles", "split K"),
    Dropped: Dropped("its try never ends"),
    HandedOver: HandedOver("model", "the playbook is exhausted"),
    Proposed: proposed("block_size", "a1"),
    Gathered: GATHERED,
    Scouted: SCOUTED,
    Screened: SCREENED,
    Verified: Verified("a1", 12),
    Measured: Measured(comparison(0.1)),
    Failed: Failed(Status.CRASH, True, "timed out"),
    GivenUp: GivenUp("it cannot be mended"),
    Settled: Settled("a2"),
    Stopped: Stopped(StopReason.TIME),
    Finished: Finished(None),
}


def started(**options: object) -> Run:
    """A run with a baseline and these options."""
    begun = replace(STARTED, options=Options(**options))  # type: ignore[arg-type]
    return replay([begun, BASELINED, CALIBRATED])


def iterate(run: Run, outcome: float | Failed, family: str = "tiles", name: str = "x") -> Run:
    """One iteration that measures that improvement, or fails."""
    run = advance(run, proposed(name, "a1", family=family))
    if isinstance(outcome, Failed):
        run = advance(run, outcome)
    else:
        run = advance(run, Verified("a1", 12))
        run = advance(run, Measured(comparison(outcome)))
    assert run.verdict is not None
    kept = run.verdict.status is Status.KEEP
    return advance(run, Settled(f"kept-{run.iteration}" if kept else run.incumbent_sha))


CRASHED = Failed(Status.CRASH, True, "timed out")
SICK = Failed(Status.CRASH, True, "the incumbent failed its own perf test", incumbent=True)
UNMEASURED = Failed(Status.CRASH, True, "could not be measured: throttled", unmeasured=True)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_is_taken_in_its_phases_and_refused_in_every_other(
    phase: Phase, kind: type[Event]
) -> None:
    run = run_in(phase)
    event = EXAMPLES[kind]
    if isinstance(event, Verified):
        event = replace(event, sha=run.candidates[0].sha if run.candidates else "a1")
    if (phase, kind) in LEGAL:
        assert advance(run, event).phase is LEGAL[phase, kind]
        return
    with pytest.raises(TransitionError, match=f"{kind.__name__} does not belong to phase {phase}"):
        advance(run, event)


def test_every_event_type_is_listed_and_belongs_to_a_phase() -> None:
    assert set(EVENTS) == {kind for _, kind in LEGAL}


@pytest.mark.parametrize("length", range(len(HISTORY) + 1))
def test_replaying_equals_stepping(length: int) -> None:
    run = Run()
    for event in HISTORY[:length]:
        run = advance(run, event)
    assert replay(HISTORY[:length]) == run


def test_advancing_leaves_the_run_before_as_it_was() -> None:
    run = run_in(Phase.SETTLE)
    again = run_in(Phase.SETTLE)
    advance(run, Settled("a2"))
    assert run == again


def test_the_history_as_rows() -> None:
    run = replay(HISTORY)
    assert [(r.iteration, r.optimization, r.status.value, r.correct, r.sha) for r in run.rows] == [
        (0, "baseline", "keep", True, STARTED.origin_sha),
        (1, "block_size (n=0)", "keep", True, "a2"),
        (2, "occupancy (n=0)", "revert", True, "b1"),
        (3, "reciprocal (n=0)", "revert", False, "c1"),
        (4, "split-k (n=0)", "revert", True, "d2"),
    ]
    assert [r.attempts for r in run.rows] == [1, 1, 1, 1, 2]
    assert [r.latency_ms for r in run.rows] == [
        pytest.approx(0.82),
        pytest.approx(0.738),
        pytest.approx(0.984),
        None,
        pytest.approx(0.902),
    ]
    assert run.incumbent_sha == "a2"
    assert run.incumbent_ms == pytest.approx(0.738)
    assert [row.iteration for row in run.kept] == [1]
    assert set(run.tried) == {"block_size", "occupancy", "reciprocal", "own-idea", "split-k"}
    assert [skipped.optimization for skipped in run.skipped] == ["pipelining", "own-idea"]
    assert run.notes == ("the branch is checked out",)
    assert run.spent_s == pytest.approx(sum(event.took_s for event in HISTORY))


def test_the_baseline_latency_is_the_geometric_mean_of_its_configs() -> None:
    records = (Record("a", 1.0, "m"), Record("b", 4.0, "m"))
    run = replay([STARTED, replace(BASELINED, records=records)])
    assert run.incumbent_ms == pytest.approx(2.0)
    assert run.rows[0].latency_ms == pytest.approx(2.0)


def test_what_was_gathered_is_the_playbooks_and_of_one_incumbent() -> None:
    """Whoever comes next has candidates of its own; after a keep there is another text."""
    run = advance(advance(started(proposers=("playbook", "model")), GATHERED), SCOUTED)
    assert set(run.gathered) == {"block_size", "occupancy", "pipelining"}
    assert set(run.scouted) == {"a1"}
    handed = advance(run, HandedOver("model", "the playbook is exhausted"))
    kept = iterate(run, 0.1)
    assert kept.incumbent_sha != run.incumbent_sha
    for after in (handed, kept):
        assert (after.gathered, after.scouted) == ({}, {})
        assert after.estimates == run.estimates


def test_where_one_optimization_has_variants_there_is_nothing_to_choose_by_looks() -> None:
    run = advance(started(), replace(GATHERED, proposals=GATHERED.proposals[:1]))
    assert run.phase is Phase.PROPOSE
    assert set(run.gathered) == set(run.estimates) == {"block_size", "pipelining"}


def test_a_proposal_of_several_variants_is_screened_and_ordered() -> None:
    run = advance(started(), proposed("occupancy", "b1", "b2", "b3"))
    assert run.phase is Phase.SCREEN
    run = advance(run, SCREENED)
    assert [candidate.sha for candidate in run.candidates] == ["b3", "b1"]
    run = advance(run, Verified("b1", 12))
    assert run.candidate is not None and run.candidate.sha == "b1"


def test_a_failed_sweep_is_named_without_a_variant() -> None:
    run = advance(started(), proposed("occupancy", "b1", "b2"))
    run = advance(run, Failed(Status.CRASH, False, "none of 2 variants could be timed"))
    run = advance(run, Settled(run.incumbent_sha))
    row = run.rows[-1]
    assert (row.optimization, row.latency_ms, row.correct) == ("occupancy", None, False)


def test_nothing_of_one_iteration_leaks_into_the_next() -> None:
    run = advance(iterate(started(), 0.1), proposed("y", "b1"))
    assert run.candidate is None
    assert run.comparison is None
    assert run.verdict is None
    assert not run.candidate_correct
    run = advance(advance(run, CRASHED), Settled(run.incumbent_sha))
    assert run.rows[-1].latency_ms is None


def test_a_skipped_optimization_costs_no_iteration_and_no_patience() -> None:
    run = started()
    after = advance(run, Skipped("pipelining", "no loop"))
    assert (after.iteration, after.misses, after.rows) == (run.iteration, run.misses, run.rows)
    assert set(after.tried) == {"pipelining"}


def test_a_reverted_candidate_leaves_the_incumbent() -> None:
    run = started()
    after = iterate(run, -0.2)
    assert (after.incumbent_sha, after.incumbent_ms) == (run.incumbent_sha, run.incumbent_ms)
    assert after.misses == 1
    assert iterate(after, 0.1).misses == 0


# --- stopping -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "outcomes", "reason"),
    [
        ({}, [], None),
        ({}, [0.1, 0.1, 0.03, -0.1], None),
        ({}, [-0.1, -0.1], StopReason.NO_IMPROVEMENT),
        ({}, [-0.1, CRASHED, CRASHED], None),
        ({}, [-0.1, CRASHED, -0.1], StopReason.NO_IMPROVEMENT),
        ({}, [-0.1, 0.1, -0.1], None),
        ({"patience": 3}, [-0.1, -0.1], None),
        ({"patience": 3}, [-0.1, -0.1, -0.1], StopReason.NO_IMPROVEMENT),
        ({}, [0.01], StopReason.SMALL_IMPROVEMENT),
        ({"keep_going": True}, [0.01], None),
        ({}, [0.01, -0.1], None),
        ({"max_iterations": 2}, [0.1], None),
        ({"max_iterations": 2}, [0.1, 0.1], StopReason.ITERATIONS),
        ({"max_iterations": 0}, [], StopReason.ITERATIONS),
        ({"time_budget_s": 24.6}, [], None),
        ({"time_budget_s": 24.5}, [], StopReason.TIME),
        ({"time_budget_s": 25.0}, [0.1], StopReason.TIME),
        ({}, [SICK], StopReason.ESCALATED),
        ({}, [UNMEASURED], None),
        ({}, [-0.1, UNMEASURED, 0.1, UNMEASURED], None),
        ({}, [UNMEASURED, UNMEASURED], StopReason.ESCALATED),
        ({"patience": 3}, [UNMEASURED, UNMEASURED], None),
    ],
)
def test_when_a_run_stops(
    options: dict[str, object], outcomes: Sequence[float | Failed], reason: StopReason | None
) -> None:
    run = started(**options)
    for outcome in outcomes:
        run = iterate(run, outcome)
    assert stop_reason(run) is reason


@pytest.mark.parametrize(
    ("gains", "comparisons"),
    [((), 0), ((0.1,), 1), ((0.03,), 1), ((0.1, 0.2), 1), ((0.1, 0.03), 2), ((0.03, 0.03), 3)],
)
def test_the_last_comparisons_count_in_the_time_of_a_run(
    gains: Sequence[float], comparisons: int
) -> None:
    """Of the best with the origin and, of several kept steps, of each in doubt: 5 pairs."""

    def after(budget_s: float) -> Run:
        calibration = replace(CALIBRATED.calibration, pair_s=2.0)
        run = advance(started(time_budget_s=budget_s), replace(CALIBRATED, calibration=calibration))
        for gain in gains:
            run = iterate(run, gain)
        return run

    whole_s = after(1e6).spent_s + 10.0 * comparisons
    assert len(after(1e6).kept) == len(gains)
    assert stop_reason(after(whole_s)) is StopReason.TIME
    assert stop_reason(after(whole_s + 0.1)) is None


def test_a_run_stops_where_the_bandwidth_leaves_nothing_to_gain() -> None:
    least = LeastTime("c", memory_ms=0.5, compute_ms=0.0, tensor_bytes=2**31)
    times = LeastTimes((least,), 4200.0, measured=True, l2_bytes=2**25)

    def at(latency_ms: float, **options: object) -> Run:
        calibration = replace(CALIBRATED.calibration, levels_ms={"c": latency_ms})
        seen = replace(CALIBRATED, calibration=calibration, least_times=times)
        return advance(started(**options), seen)

    assert stop_reason(at(0.55)) is None
    assert stop_reason(at(0.505)) is StopReason.AT_ROOF
    assert stop_detail(at(0.505), StopReason.AT_ROOF).startswith("99.0 % of the 4200 GB/s")
    assert stop_reason(at(0.505, keep_going=True)) is None
    assert advance(at(0.55), CALIBRATED).least_times == times, "another calibration leaves it"
    kept = iterate(at(0.55), 0.1)
    assert kept.calibration is not None
    (level_ms,) = kept.calibration.levels_ms.values()
    reached = replace(times, configs=(replace(least, memory_ms=0.99 * level_ms),))
    assert stop_reason(kept) is None
    assert stop_reason(replace(kept, least_times=reached)) is StopReason.AT_ROOF


def test_an_escalation_comes_before_every_other_reason() -> None:
    run = started(max_iterations=1, time_budget_s=0.0, patience=1)
    assert stop_reason(iterate(run, CRASHED)) is StopReason.TIME
    run = iterate(run, SICK)
    assert stop_reason(run) is StopReason.ESCALATED
    assert run.escalation == SICK.reason
    assert run.rows[-1].status is Status.CRASH


def test_a_failing_candidate_is_no_escalation() -> None:
    assert iterate(started(), CRASHED).escalation == ""


def test_what_could_not_be_measured_is_no_miss() -> None:
    run = iterate(iterate(started(), -0.1), UNMEASURED)
    assert (run.misses, run.unmeasured) == (1, 1)
    assert iterate(run, CRASHED).unmeasured == 0


# --- calibration --------------------------------------------------------------------------------


def test_an_improvement_below_the_noise_floor_is_not_kept() -> None:
    noisy = replace(CALIBRATED, calibration=replace(CALIBRATED.calibration, noise_floor=0.12))
    run = iterate(advance(started(), noisy), 0.1)
    assert run.rows[-1].status is Status.REVERT
    assert "within the noise floor of 12.0 %" in run.rows[-1].reason


def test_a_kept_candidate_sets_the_level_that_the_incumbent_is_held_to() -> None:
    run = started()
    assert run.calibration is not None and run.calibration.levels_ms == {"c": 0.821}
    reverted, kept = iterate(run, -0.1), iterate(run, 0.1)
    assert reverted.calibration == run.calibration
    assert kept.calibration is not None
    assert kept.calibration.levels_ms == {"c": pytest.approx(0.738)}
    assert kept.calibration.noise_floor == run.calibration.noise_floor


def test_a_run_remembers_when_it_was_calibrated() -> None:
    run = iterate(iterate(started(), 0.1), 0.1)
    assert (run.calibrated_at, run.iteration) == (1, 3)
    again = advance(run, CALIBRATED)
    assert (again.calibrated_at, again.calibration) == (3, CALIBRATED.calibration)


def test_the_time_of_each_phase_is_kept() -> None:
    run = replay(HISTORY)
    assert sum(run.spent_by_phase_s.values()) == pytest.approx(run.spent_s)
    assert run.spent_by_phase_s["calibrate"] == CALIBRATED.took_s


# --- demotion -----------------------------------------------------------------------------------


def test_a_minor_gain_demotes_its_family_and_a_major_one_restores_it() -> None:
    run = iterate(started(), 0.03, family="cache")
    assert run.last_gain is Gain.MINOR
    assert run.demoted == {"cache"}
    run = iterate(run, 0.1, family="tiles")
    assert run.demoted == {"cache"}
    run = iterate(run, -0.1, family="cache")
    assert run.demoted == {"cache"}, "a revert says nothing about the family"
    run = iterate(run, 0.1, family="cache")
    assert run.demoted == frozenset()


def test_a_revert_forgets_the_last_gain() -> None:
    run = iterate(started(keep_going=True), 0.01)
    assert run.last_gain is Gain.MARGINAL
    assert iterate(run, -0.1).last_gain is Gain.NONE


def test_the_rules_of_the_run_decide() -> None:
    run = started()
    strict = replace(run.options.rules, major=0.5, minor=0.4)
    run = iterate(started(rules=strict), 0.1)
    assert run.last_gain is Gain.MARGINAL


def test_no_config_loses_by_several_keeps_what_it_may_not_by_one() -> None:
    """Each costs one config 1.9 % and gains 10 % in all."""

    def costly(run: Run, name: str) -> Run:
        found = comparison(0.1)
        effects = {"fast": Effect(0.2, 0.19, 0.21), "slow": Effect(-0.019, -0.02, -0.018)}
        configs = tuple(
            ConfigComparison(config, 1.0, 1.0 - e.improvement, e) for config, e in effects.items()
        )
        for event in (
            proposed(name, f"{name}1"),
            Verified(f"{name}1", 1),
            Measured(replace(found, configs=configs)),
        ):
            run = advance(run, event)
        kept = run.verdict is not None and run.verdict.status is Status.KEEP
        return advance(run, Settled(f"{name}2" if kept else run.incumbent_sha))

    run = costly(costly(started(), "a"), "b")
    assert [row.status for row in run.rows[1:]] == [Status.KEEP, Status.REVERT]
    assert run.rows[-1].reason.startswith("slow would be 3.8 % slower than the origin")
    assert run.since_origin["slow"].improvement == -0.019
    assert run.since_origin["fast"].improvement == 0.2


def test_the_verdict_of_an_event_holds_whatever_the_rules_are_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = advance(advance(started(), proposed("x", "a1")), Verified("a1", 12))
    then = decided(run, comparison(0.03))
    assert (then.status, then.gain) == (Status.KEEP, Gain.MINOR)
    monkeypatch.setattr("agent.state.decide", lambda *_, **__: Verdict(Status.HELD, Gain.NONE, ""))
    after = advance(run, Measured(comparison(0.03), then))
    assert after.verdict == then
    after = advance(after, Settled("a2"))
    assert (after.rows[-1].status, after.rows[-1].reason) == (Status.KEEP, then.reason)
    assert (after.incumbent_sha, after.demoted) == ("a2", {"tiles"})
    now = advance(run, Measured(comparison(0.03))).verdict
    assert now is not None and now.status is Status.HELD, "none is held: the rules are asked"


@pytest.mark.parametrize(("improvement", "gain"), [(0.1, Gain.MAJOR), (0.0, Gain.NONE)])
def test_what_was_kept_before_verdicts_were_journaled_stays_kept(
    improvement: float, gain: Gain, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Verdict(Status.REVERT, Gain.NONE, "slow is 3.8 % slower")
    monkeypatch.setattr("agent.state.decide", lambda *_, **__: now)
    run = advance(advance(started(), proposed("x", "a1")), Verified("a1", 12, launches=(LAUNCH,)))
    run = advance(run, Measured(comparison(improvement)))
    run = advance(run, Settled("a2", "the branch is checked out"))
    row = run.rows[-1]
    assert (row.status, row.sha) == (Status.KEEP, "a2")
    assert row.reason == "it was kept; today's rules say: slow is 3.8 % slower"
    assert (run.incumbent_sha, run.misses, run.last_gain) == ("a2", 0, gain)
    assert run.incumbent_ms == pytest.approx(0.82 * (1 - improvement))
    assert (run.since_origin.keys(), run.launches) == ({"c"}, (LAUNCH,))
    assert run.branch_behind == "the branch is checked out"


@pytest.mark.parametrize("sha", ["a2", STARTED.origin_sha])
def test_what_was_set_aside_before_verdicts_were_journaled_stays_that(sha: str) -> None:
    """A settlement that agrees with today's rules changes nothing of what they say."""
    run = advance(advance(started(), proposed("x", "a1")), Verified("a1", 12))
    run = advance(run, Measured(comparison(0.1)))
    assert run.verdict is not None and run.verdict.status is Status.KEEP
    after = advance(run, Settled(sha))
    if sha == "a2":
        assert (after.rows[-1].reason, after.verdict) == (run.verdict.reason, run.verdict)
        return
    row = after.rows[-1]
    assert (row.status, row.sha) == (Status.REVERT, "a1")
    assert row.reason.startswith("it was set aside; today's rules say: faster by +10.0 %")
    assert (after.incumbent_sha, after.incumbent_ms) == (run.incumbent_sha, run.incumbent_ms)
    assert (after.misses, after.kept, after.since_origin) == (1, (), {})


def test_three_keeps_that_the_rules_of_today_would_not_all_allow() -> None:
    """As written when no loss was added up: the run goes on from the last of them."""
    effects = {"fast": Effect(0.2, 0.19, 0.21), "slow": Effect(-0.019, -0.02, -0.018)}
    configs = tuple(ConfigComparison(c, 1.0, 1.0 - e.improvement, e) for c, e in effects.items())
    measured = Measured(replace(comparison(0.1), configs=configs))
    events: list[Event] = [STARTED, BASELINED, CALIBRATED]
    for name in "abc":
        events += [proposed(name, f"{name}1"), Verified(f"{name}1", 1), measured]
        events.append(Settled(f"{name}2"))
    run = replay(events)
    assert [row.sha for row in run.kept] == ["a2", "b2", "c2"]
    assert [row.reason.startswith("it was kept; ") for row in run.kept] == [False, True, True]
    assert run.incumbent_sha == "c2"
    assert run.since_origin["slow"].improvement == pytest.approx(1 - 1.019**3)
    assert stop_reason(run) is None


def test_the_summary_names_every_config_that_lost() -> None:
    effects = {"a": Effect(0.2, 0.19, 0.21), "b": Effect(-0.004, -0.006, -0.002)}
    configs = tuple(ConfigComparison(name, 1.0, 1.1, effect) for name, effect in effects.items())
    run = replay(HISTORY)
    run = replace(run, finished=Finished(replace(comparison(0.1), configs=configs)))
    told = [note for note in notes(run) if "than at the origin" in note]
    assert told == ["b takes 0.4 % more than at the origin: look at it before you take the branch"]


def skipped(name: str, usage: Usage | None = None) -> Skipped:
    return Skipped(name, "no loop", usage)


def test_the_next_proposer_may_do_what_no_program_could_and_not_what_was_tried() -> None:
    run = started(proposers=("playbook", "model"))
    run = advance(run, skipped("declined"))
    run = iterate(run, 0.0, name="tried")
    assert (run.misses, set(run.tried)) == (1, {"declined", "tried"})
    run = advance(run, HandedOver("model", "nothing left"))
    assert (run.proposer, run.next_proposer) == ("model", None)
    assert (run.misses, set(run.tried)) == (0, {"tried"})
    assert [s.optimization for s in run.skipped] == ["declined"]


def test_nobody_comes_after_the_last_proposer() -> None:
    with pytest.raises(TransitionError, match="nobody comes after the playbook"):
        advance(started(), HandedOver("model", "nothing left"))


def test_what_asking_took_is_summed_and_an_unknown_price_stays_unknown() -> None:
    run = advance(started(), skipped("a", Usage(2, 100, 10, 0.5, 3.0)))
    assert (run.usage, run.refusals) == (Usage(2, 100, 10, 0.5, 3.0), 1)
    run = advance(run, skipped("b"))
    assert run.refusals == 1
    run = advance(run, replace(proposed("c", "a1"), usage=Usage(1, 50, 5, None, 1.0)))
    assert (run.usage, run.refusals) == (Usage(3, 150, 15, None, 4.0), 0)


def test_an_offer_stands_until_it_is_tried_or_set_aside() -> None:
    offered = advance(started(), Offered("split-k", "tiles", "split K"))
    assert offered.offer == Offered("split-k", "tiles", "split K")
    assert advance(offered, proposed("split-k", "a1")).offer is None
    assert advance(offered, skipped("split-k")).offer is None


def test_what_is_dropped_before_it_is_tried_costs_no_iteration() -> None:
    offered = advance(started(), Offered("split-k", "tiles", "split K"))
    run = advance(offered, Dropped("no idea"))
    assert (run.offer, run.iteration, run.rows) == (None, offered.iteration, offered.rows)
    assert run.skipped == (Skipped("split-k", "dropped: no idea"),)
    with pytest.raises(TransitionError, match="Dropped does not belong to phase propose"):
        advance(run, Dropped("once more"))


@pytest.mark.parametrize("phase", [Phase.SCREEN, Phase.VERIFY, Phase.MEASURE, Phase.SETTLE])
def test_an_iteration_that_is_dropped_is_a_crash_wherever_it_stood(phase: Phase) -> None:
    before = run_in(phase)
    run = advance(before, Dropped("its try never ends"))
    row = run.rows[-1]
    assert (row.status, row.reason) == (Status.CRASH, "dropped: its try never ends")
    assert (row.latency_ms, row.iteration) == (None, before.iteration)
    assert (run.iteration, run.misses) == (before.iteration + 1, before.misses)
    assert (run.incumbent_sha, run.kept) == (before.incumbent_sha, before.kept)
    after = iterate(run, 0.1)  # and the run goes on as after any crash
    assert after.rows[-1].status is Status.KEEP


# --- repair -------------------------------------------------------------------------------------


def in_repair(*outcomes: float | Failed) -> Run:
    """A run that an assistant leads, whose candidate came to these, one attempt after the other."""
    run = advance(started(proposers=("assistant",)), Offered("x", "tiles", "x"))
    for number, outcome in enumerate(outcomes, start=1):
        run = advance(run, proposed("x", f"a{number}"))
        if not isinstance(outcome, Failed):
            run = advance(run, Verified(f"a{number}", 12))
            found = Measured(comparison(outcome), mendable=may_mend(run))
            run = advance(run, found)
            continue
        run = advance(run, replace(outcome, mendable=may_mend(run)))
    return run


def test_what_failed_may_be_mended_twice_within_its_iteration() -> None:
    run = in_repair(CRASHED, -0.1)
    assert (run.phase, run.iteration, run.attempt, may_mend(run)) == (Phase.REPAIR, 1, 2, True)
    assert [(a.candidate.sha, a.verdict.reason) for a in run.earlier] == [("a1", "timed out")]
    run = advance(run, proposed("x", "a3"))
    assert (run.attempt, may_mend(run), run.comparison, run.failed) == (3, False, None, None)
    run = advance(run, Verified("a3", 12))
    run = advance(advance(run, Measured(comparison(0.1))), Settled("kept"))
    (row,) = run.rows[1:]
    assert (row.iteration, row.attempts, row.status, row.sha) == (1, 3, Status.KEEP, "kept")
    assert (run.iteration, run.attempt, run.earlier, run.misses) == (2, 1, (), 0)


def test_the_third_attempt_is_the_last() -> None:
    assert in_repair(CRASHED, CRASHED, CRASHED).phase is Phase.SETTLE


@pytest.mark.parametrize(
    ("outcomes", "misses"),
    [((CRASHED,), 0), ((-0.1,), 1), ((-0.1, CRASHED), 1), ((CRASHED, CRASHED), 0)],
)
def test_what_is_given_up_ends_as_its_last_attempt_and_is_a_miss_if_one_was_compared(
    outcomes: tuple[float | Failed, ...], misses: int
) -> None:
    before = in_repair(*outcomes)
    assert before.verdict is not None
    run = advance(before, GivenUp("no idea"))
    row = run.rows[-1]
    assert (row.status, row.attempts) == (before.verdict.status, len(outcomes))
    assert row.reason == f"{before.verdict.reason}; given up: no idea"
    assert (run.phase, run.misses, run.incumbent_sha) == (
        Phase.PROPOSE,
        misses,
        before.incumbent_sha,
    )


def test_whoever_does_not_come_back_mends_nothing() -> None:
    assert not may_mend(advance(started(), proposed("x", "a1")))


@pytest.mark.parametrize("event", [SICK, UNMEASURED])
def test_what_is_not_the_candidates_fault_is_not_for_it_to_mend(event: Failed) -> None:
    failure = Failure(
        event.status,
        event.correct,
        event.reason,
        incumbent=event.incumbent,
        unmeasured=event.unmeasured,
    )
    assert not Failed.of(failure, may_mend=True).mendable


def test_a_journal_of_before_holds_failures_that_settle() -> None:
    assert iterate(started(proposers=("assistant",)), CRASHED).phase is Phase.PROPOSE


def test_the_diagnosis_stands_until_there_is_another() -> None:
    first = Diagnosis(Cause.OCCUPANCY, ("compiled: 12 %",), ("occupancy", "tiles"))
    run = advance(started(), replace(CALIBRATED, diagnosis=first))
    assert [run.family_rank(f) for f in ("occupancy", "tiles", "cache")] == [0, 1, 2]
    run = iterate(run, 0.1)
    assert run.diagnosis == first
    run = advance(
        advance(advance(run, proposed("b", "b1")), Verified("b1", 1)), Measured(comparison(0.1))
    )
    second = Diagnosis(Cause.MEMORY, ("measured: 85 % of the bandwidth",))
    assert advance(run, Settled("b2", diagnosis=second)).diagnosis == second


@pytest.mark.parametrize(("saves", "kept"), [("", False), ("the time to tune", True)])
def test_what_is_as_fast_is_kept_for_what_else_it_saves(saves: str, kept: bool) -> None:
    run = replay([STARTED, BASELINED, CALIBRATED])
    run = advance(run, replace(proposed("x", "a1"), saves=saves))
    run = advance(run, Verified("a1", 12))
    run = advance(run, Measured(comparison(0.0)))
    run = advance(run, Settled("a2" if kept else run.incumbent_sha))
    row = run.rows[-1]
    assert (row.status is Status.KEEP, row.saves) == (kept, saves if kept else "")
    assert (f"iteration 1 was kept for what else it saves: {saves}" in notes(run)) is kept
    assert (run.last_gain, stop_reason(run)) == (Gain.NONE, None)
    assert run.misses == (0 if kept else 1)


def test_what_no_compared_config_launches_is_left_alone() -> None:
    """A kernel of another test, of which a comparison would see noise."""
    both = (("t.py::test_slow", ""),)
    launches = (
        replace(LAUNCH, kernel="fast", test="t.py::test_fast"),
        replace(LAUNCH, kernel="slow", test="t.py::test_slow"),
        replace(LAUNCH, kernel="shared", test="t.py::test_fast", timings=both),
    )
    run = Run(baseline=replace(BASELINED, launches=launches), launches=launches)
    assert {*run.timed_kernels} == {"fast", "slow", "shared"}
    one = Subset(tests=("t.py::test_slow",), configs=("slow",), left_out=("fast",))
    assert {*replace(run, subset=one).timed_kernels} == {"slow", "shared"}
    unseen = replace(one, tests=("t.py::test_other",))
    assert {*replace(run, subset=unseen).timed_kernels} == {"fast", "slow", "shared"}
    said = lines(replace(run, subset=one), replace(CALIBRATED, subset=one))
    assert any("seen to launch fast: left as it is" in line for line in said)
