"""What is known of a run, and what follows from it: phases, rows, `Run`, when it stops. Pure.

How an event changes it is in `agent.transitions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agent.causes import Diagnosis
from agent.events import (
    Baselined,
    Candidate,
    Failed,
    Finished,
    Offered,
    Proposed,
    Skipped,
    Started,
    Stopped,
    StopReason,
)
from agent.launches import ObservedLaunch, by_cost
from agent.least_time import LeastTimes
from agent.measuring.decision import Gain, Status, Verdict, decide, percent
from agent.measuring.looks import ComparisonPlan
from agent.measuring.measurement import Calibration
from agent.measuring.pair_cost import PairCost
from agent.measuring.scouting import Estimate
from agent.measuring.screening import ScreenResult
from agent.measuring.statistics import Comparison, Effect
from agent.measuring.subset import Subset
from agent.options import ASSISTANT, Options
from agent.usage import Usage


class Phase(StrEnum):
    """What the run does next."""

    SETUP = "setup"
    BASELINE = "baseline"
    CALIBRATE = "calibrate"
    PROPOSE = "propose"
    SCOUT = "scout"
    SCREEN = "screen"
    VERIFY = "verify"
    MEASURE = "measure"
    SETTLE = "settle"
    REPAIR = "repair"
    FINISH = "finish"
    DONE = "done"


# --- the run ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrongVariant:
    """A variant of a sweep that looked better than the one that was judged, and was wrong."""

    title: str
    reason: str


@dataclass(frozen=True)
class Row:
    """One iteration, as the table and the summary show it."""

    iteration: int
    optimization: str
    latency_ms: float | None
    correct: bool
    status: Status
    reason: str = ""
    sha: str = ""
    saves: str = ""
    """What it was kept for, where that is no latency."""
    attempts: int = 1
    """Candidates that it took: the first, and what that was mended to; the last one is shown."""
    at_least: float = 0.0
    """The lower bound of its improvement over all, by its comparison; 0 where there was none."""
    wrong: tuple[WrongVariant, ...] = ()
    """Of its sweep, those that failed the correctness tests."""
    doubts: tuple[str, ...] = ()
    """Of what was kept: what a person should look at in it, `agent.proposers.answer.doubts`."""


ATTEMPTS = 3
"""Candidates that an iteration may have where whoever wrote one may mend it."""


@dataclass(frozen=True)
class Attempt:
    """A candidate that was judged and not kept, and the verdict on it."""

    candidate: Candidate
    proposal: Proposed
    """What it is of: the others are the variants beside which it looked best."""
    verdict: Verdict
    comparison: Comparison | None


@dataclass(frozen=True)
class Run:
    """Everything known of a run; rebuilt from its events, never saved."""

    phase: Phase = Phase.SETUP
    started: Started | None = None
    baseline: Baselined | None = None
    calibration: Calibration | None = None
    subset: Subset | None = None
    """The configs that comparisons measure; None: all."""
    compile_s: float | None = None
    """What compiling the incumbent took, 0 where nothing is compiled; None: not known."""
    calibrated_at: int = 0
    """The iteration before which the noise floor was last measured."""
    iteration: int = 0
    incumbent_sha: str = ""
    incumbent_ms: float = 0.0
    since_origin: Mapping[str, Effect] = field(default_factory=dict)
    """Config -> the incumbent against the origin, by the comparisons that kept what is in it."""
    elsewhere_since_origin: Mapping[str, Effect] = field(default_factory=dict)
    """The same for configs that comparisons leave out, by those on them."""
    stage: int = 0
    """Which of the proposers is at work."""
    launches: tuple[ObservedLaunch, ...] = ()
    """What the perf tests launch of the incumbent, as far as that was seen."""
    diagnosis: Diagnosis | None = None
    """What holds the incumbent back."""
    profiled: bool = True
    """Whether that of the origin asks a profiler, where there is one."""
    least_times: LeastTimes | None = None
    """What the GPU needs for the configs at least, as far as that is known."""
    offer: Offered | None = None
    """What the assistant has been asked for and has not tried yet."""
    proposal: Proposed | None = None
    candidates: tuple[Candidate, ...] = ()
    """Of the current iteration, most promising first."""
    candidate: Candidate | None = None
    """The one that passed verification."""
    looked_at: Mapping[str, ScreenResult] = field(default_factory=dict)
    """Commit -> what a short look at a variant gave, or why its results were wrong."""
    candidate_launches: tuple[ObservedLaunch, ...] = ()
    comparison: Comparison | None = None
    elsewhere: Comparison | None = None
    """The same on configs that comparisons leave out, where that was asked."""
    verdict: Verdict | None = None
    candidate_correct: bool = False
    failed: Failed | None = None
    """Why the candidate was not measured, or not in the end."""
    earlier: tuple[Attempt, ...] = ()
    """Of the current iteration, before what is under judgement now."""
    gathered: Mapping[str, Proposed | Skipped] = field(default_factory=dict)
    """Optimization -> its variants on the incumbent, committed and compiled, or why there are none;
    as far as that was found out before one was chosen."""
    scouted: Mapping[str, ScreenResult] = field(default_factory=dict)
    """Commit -> what a short look at one of those gave."""
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    """Optimization -> what the last short look says of it."""
    tried: Mapping[str, int] = field(default_factory=dict)
    """Optimization -> the iteration in which it was last looked at."""
    spent_out: frozenset[str] = frozenset()
    """Optimizations that gave nothing to try when they were last looked at."""
    at_the_end: frozenset[str] = frozenset()
    """Optimizations whose kept value was the first or the last of its sweep: one beyond it may be
    better still."""
    kept_families: Mapping[str, int] = field(default_factory=dict)
    """Family -> the iteration in which one of it was last kept."""
    demoted: frozenset[str] = frozenset()
    """Families whose last keep gained only 2 to 5 %: they come last."""
    misses: int = 0
    """Iterations in a row of which a comparison found no gain; where nothing was compared, nothing
    is known of what is left to gain."""
    unmeasured: int = 0
    """Iterations in a row that could not be measured."""
    refusals: int = 0
    """Times in a row that a model or a program was asked and gave no candidate."""
    usage: Usage = field(default_factory=Usage)
    """What asking them took so far."""
    last_gain: Gain = Gain.NONE
    escalation: str = ""
    rows: tuple[Row, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    branch_behind: str = ""
    """Why the user's branch does not hold the best commit, if it does not."""
    stopped: Stopped | None = None
    finished: Finished | None = None
    spent_s: float = 0.0
    spent_by_phase_s: dict[str, float] = field(default_factory=dict)

    @property
    def timings_of_tests(self) -> dict[str, int]:
        """Node id -> how many timings the perf test takes, as the baseline saw it."""
        costs = self.baseline.costs if self.baseline else ()
        return {cost.nodeid: len(cost.latencies_ms) for cost in costs}

    @property
    def options(self) -> Options:
        """The options of the run; the defaults before it has started."""
        return self.started.options if self.started else Options()

    @property
    def levels_ms(self) -> Mapping[str, float]:
        """Config -> latency of the incumbent, in ms: of its calibration, else of the baseline."""
        if self.calibration and self.calibration.levels_ms:
            return self.calibration.levels_ms
        records = self.baseline.records if self.baseline else ()
        return {record.config: record.latency_ms for record in records}

    @property
    def pair_cost(self) -> PairCost | None:
        """What process pairs cost, by the calibration where there is one; None before the baseline.

        An older journal has only what a pair took, and not where that went.
        """
        if self.baseline is None:
            return None
        cost = PairCost.expected(self.baseline.costs, self.baseline.start_s)
        calibration = self.calibration
        if calibration is None or not calibration.pair_s:
            return cost
        if calibration.pair_time is not None:
            return cost.seen(calibration.pair_time)
        return cost.scaled(self.subset, calibration.pair_s)

    @property
    def proposer(self) -> str:
        """Whose turn it is."""
        return self.options.proposers[self.stage]

    @property
    def next_proposer(self) -> str | None:
        """Who goes on when this one ends; None when it is the last."""
        left = self.options.proposers[self.stage + 1 :]
        return left[0] if left else None

    @property
    def attempt(self) -> int:
        """Which candidate of its iteration is under judgement, 1 for the first."""
        return len(self.earlier) + 1

    @property
    def shown(self) -> Candidate:
        """The candidate that a verdict is on: of a sweep the one that was right and looked best."""
        return self.candidate or self.candidates[0]

    @property
    def wrong(self) -> tuple[WrongVariant, ...]:
        """The variants that looked better than the candidate, and failed the correctness tests."""
        if self.candidate is None:
            return ()
        better = self.candidates[: self.candidates.index(self.candidate)]
        return tuple(WrongVariant(c.title, self.looked_at[c.sha].reason) for c in better)

    @property
    def possible_attempts(self) -> int:
        """How many candidates an iteration may have: whoever comes back may mend what it wrote."""
        return ATTEMPTS if self.proposer == ASSISTANT else 1

    @property
    def kernel_class(self) -> str:
        """What bounds the kernels that are timed, by their source; at first the whole file."""
        timed = self.baseline.kernel_class if self.baseline else ""
        return timed or (self.started.kernel_class if self.started else "")

    @property
    def timed_kernels(self) -> tuple[str, ...]:
        """Names of the kernels that the perf tests launch, the most expensive first.

        Where a few configs are compared, those that they launch: a change of another kernel would
        be judged by the noise of what does not hold it.
        """
        if self.baseline is None:
            return ()
        names = by_cost(self.launches, self.baseline.longest_ms)
        tests = self.subset.tests if self.subset else ()
        shown = {name for test in tests for name in self.baseline.kernels.get(test, ())}
        return tuple(name for name in names if name in shown) or names

    def family_rank(self, family: str) -> int:
        """Where a family of optimizations stands; smaller is earlier.

        What the diagnosis points to comes first, in its order; what gained little comes last.
        """
        named = self.diagnosis.families if self.diagnosis else ()
        if family in self.demoted:
            return len(named) + 1
        return named.index(family) if family in named else len(named)

    @property
    def kept(self) -> tuple[Row, ...]:
        """The rows of the kept optimizations, without the baseline."""
        return tuple(r for r in self.rows if r.iteration > 0 and r.status is Status.KEEP)


def started(run: Run) -> Started:
    """How the run began; every phase but SETUP comes after it."""
    assert run.started is not None
    return run.started


def decided(run: Run, comparison: Comparison) -> Verdict:
    """The verdict on the candidate of this iteration, by the rules as they are now.

    For who has just measured it: the event then holds the verdict, and the rules are asked again
    only where an old journal holds none.
    """
    verdict = decide(
        comparison,
        run.options.rules,
        noise_floor=run.calibration.noise_floor if run.calibration else 0.0,
        saves=run.proposal.saves if run.proposal else "",
        since_origin=run.since_origin,
    )
    if run.subset is None:
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; on {run.subset.coverage}")


def may_mend(run: Run) -> bool:
    """Whether another attempt may follow in this iteration when the one under judgement fails."""
    return run.attempt < run.possible_attempts


def is_at_roof(run: Run) -> bool:
    """Whether no more is left to gain than what would end the run: an improvement under 2 %."""
    if run.least_times is None or run.calibration is None:
        return False
    return run.least_times.reached(run.calibration.levels_ms, run.options.rules.minor)


def doubtful(run: Run) -> tuple[tuple[str, Row], ...]:
    """The kept steps that are measured once more at the end, each with the commit before it.

    A candidate is kept where it looked best, so that its figure is too good on average. What was
    bound to have gained more than the rules reward most needs no second look, and of a single step
    the comparison of best and origin says everything.
    """
    if len(run.kept) < 2:
        return ()
    before = [started(run).origin_sha, *(row.sha for row in run.kept)]
    steps = zip(before, run.kept, strict=False)
    major = run.options.rules.major
    return tuple((sha, row) for sha, row in steps if row.at_least <= major and not row.saves)


def refuted(run: Run) -> frozenset[int]:
    """The kept iterations whose gain the last comparisons did not find.

    Of a single one the comparison of best and origin says it.
    """
    if run.finished is None:
        return frozenset()
    final, alone = run.finished.comparison, len(run.kept) == 1
    gone = alone and final is not None and not final.overall.low > 0
    return frozenset((*run.finished.faded, *(row.iteration for row in run.kept if gone)))


def final_s(run: Run) -> float:
    """What the comparisons at the end of a run take, about; 0 where nothing was kept."""
    comparisons = bool(run.kept) + len(doubtful(run))
    pair_s = run.calibration.pair_s if run.calibration else 0.0
    return comparisons * ComparisonPlan().looks[0] * pair_s


def stop_reason(run: Run) -> StopReason | None:
    """Whether the run must stop before its next iteration, and why; the playbook aside."""
    options = run.options
    if run.escalation:
        return StopReason.ESCALATED
    if options.time_budget_s is not None and run.spent_s + final_s(run) >= options.time_budget_s:
        return StopReason.TIME
    if run.iteration > options.max_iterations:
        return StopReason.ITERATIONS
    if is_at_roof(run) and not options.keep_going:
        return StopReason.AT_ROOF
    if run.last_gain is Gain.MARGINAL and not options.keep_going:
        return StopReason.SMALL_IMPROVEMENT
    if run.misses >= options.patience:
        return StopReason.NO_IMPROVEMENT
    return None


def stop_detail(run: Run, reason: StopReason) -> str:
    """What makes a reason to stop certain, in a few words; empty where there is no more to say."""
    if reason is StopReason.ESCALATED:
        return run.escalation
    if reason is not StopReason.AT_ROOF or run.least_times is None or run.calibration is None:
        return ""
    shares = run.least_times.shares(run.calibration.levels_ms)
    return (
        f"{percent(min(shares.values()))} of the {run.least_times.bandwidth_gb_s:.0f} GB/s "
        "that this card moves"
    )
