"""The state machine of a run: phases, events, `Run` and `advance()`. Pure.

A `Run` is never saved. It is rebuilt by folding `advance` over the events of the journal, so
resuming is the normal path and not a feature. An event is written only after `advance` has
accepted it; an effect can therefore be repeated after a crash and must not mind.

    SETUP -> BASELINE -> PROPOSE -> SCREEN -> VERIFY -> MEASURE -> SETTLE -+
                            ^  |      (a sweep)                            |
                            |  +--------> FINISH -> DONE                   |
                            +----------------------------------------------+
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from agent.decision import Gain, Rules, Status, Verdict, decide
from agent.errors import TransitionError
from agent.statistics import Comparison, geometric_mean


class Phase(StrEnum):
    """What the run does next."""

    SETUP = "setup"
    BASELINE = "baseline"
    PROPOSE = "propose"
    SCREEN = "screen"
    VERIFY = "verify"
    MEASURE = "measure"
    SETTLE = "settle"
    FINISH = "finish"
    DONE = "done"


class StopReason(StrEnum):
    """Why a run ended."""

    EXHAUSTED = "the playbook is exhausted"
    NO_IMPROVEMENT = "no improvement in consecutive iterations"
    SMALL_IMPROVEMENT = "the last improvement was under 2 %"
    ITERATIONS = "the iteration limit is reached"
    TIME = "the time budget is spent"
    ESCALATED = "escalated to the user"


@dataclass(frozen=True)
class Options:
    """What the user may set for a run; recorded with it, so that a resumed run is the same run."""

    max_iterations: int = 25
    patience: int = 2
    """Iterations in a row without improvement after which the run stops."""
    keep_going: bool = False
    """Go on after an improvement under 2 %."""
    time_budget_s: float | None = None
    iteration_timeout_s: float = 600.0
    only: tuple[str, ...] = ()
    """Names of the optimizations to try; all when empty."""
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True)
class Record:
    """The timing of one config in one pass of the perf tests.

    `method` says how it was taken, in words: 'CUDA events, L2 flushed', 'pytest-benchmark'.
    """

    config: str
    latency_ms: float
    method: str
    samples_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class TestPlan:
    """The frozen tests of a run: node ids, in pytest's order."""

    __test__ = False

    files: tuple[str, ...]
    correctness: tuple[str, ...]
    perf: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A commit under judgement: one optimization with its parameters filled in."""

    sha: str
    params: dict[str, Any]
    title: str
    """What the table says: 'occupancy hint (occupancy=4)'."""


@dataclass(frozen=True)
class ScreenResult:
    """What the cheap look at one variant of a sweep gave."""

    sha: str
    latency_ms: float | None
    """None: the variant failed, and `reason` says how."""
    reason: str = ""


# --- events: past participles, each a fact that the journal keeps -------------------------------


@dataclass(frozen=True)
class Event:
    """Something that happened. `took_s` is the wall time of the effect behind it."""

    took_s: float = field(default=0.0, kw_only=True)


@dataclass(frozen=True)
class Started(Event):
    run_id: str
    kernel: str
    backend: str
    kernel_class: str
    branch: str
    origin_sha: str
    began_at_s: int
    """Seconds since the epoch."""
    python: str
    """The interpreter that runs the tests."""
    tests: TestPlan
    environment: dict[str, Any]
    latency_meaning: str
    """What 'latency' means on the machine of the run, in one sentence."""
    options: Options


@dataclass(frozen=True)
class Baselined(Event):
    records: tuple[Record, ...]
    correctness_tests: int
    pass_s: float
    """Wall time of one pass of the perf tests in a ready worker."""


@dataclass(frozen=True)
class Skipped(Event):
    """An optimization that does not apply here; it costs no iteration."""

    optimization: str
    reason: str


@dataclass(frozen=True)
class Proposed(Event):
    optimization: str
    family: str
    hypothesis: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Screened(Event):
    """The variants of a sweep, looked at cheaply; `order` is the shas, most promising first."""

    results: tuple[ScreenResult, ...]
    order: tuple[str, ...]


@dataclass(frozen=True)
class Verified(Event):
    sha: str
    passed: int
    rejected: tuple[ScreenResult, ...] = ()
    """More promising variants whose results were wrong."""


@dataclass(frozen=True)
class Measured(Event):
    comparison: Comparison


@dataclass(frozen=True)
class Failed(Event):
    """The candidate ended before a comparison: wrong, dead, hung, or not measurable."""

    status: Status
    correct: bool
    """Whether its results were found right before it failed."""
    reason: str
    incumbent: bool = False
    """The incumbent failed, not the candidate: the tests or the machine are at fault."""


@dataclass(frozen=True)
class Settled(Event):
    """Git has followed the verdict; `sha` is the incumbent from here on."""

    sha: str
    note: str = ""
    """Why the user's branch could not be moved, if it could not."""


@dataclass(frozen=True)
class Stopped(Event):
    reason: StopReason
    detail: str = ""


@dataclass(frozen=True)
class Finished(Event):
    """The last word: origin against best, measured afresh. None when nothing was kept."""

    comparison: Comparison | None
    note: str = ""


EVENTS: tuple[type[Event], ...] = (
    Started,
    Baselined,
    Skipped,
    Proposed,
    Screened,
    Verified,
    Measured,
    Failed,
    Settled,
    Stopped,
    Finished,
)


# --- the run ------------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Run:
    """Everything known of a run; rebuilt from its events, never saved."""

    phase: Phase = Phase.SETUP
    started: Started | None = None
    baseline: Baselined | None = None
    iteration: int = 0
    incumbent_sha: str = ""
    incumbent_ms: float = 0.0
    proposal: Proposed | None = None
    candidates: tuple[Candidate, ...] = ()
    """Of the current iteration, most promising first."""
    candidate: Candidate | None = None
    """The one that passed verification."""
    comparison: Comparison | None = None
    verdict: Verdict | None = None
    candidate_correct: bool = False
    tried: frozenset[str] = frozenset()
    demoted: frozenset[str] = frozenset()
    """Families whose last keep gained only 2 to 5 %: they come last."""
    misses: int = 0
    """Iterations in a row without a keep."""
    last_gain: Gain = Gain.NONE
    escalation: str = ""
    rows: tuple[Row, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    stopped: Stopped | None = None
    finished: Finished | None = None
    spent_s: float = 0.0

    @property
    def options(self) -> Options:
        """The options of the run; the defaults before it has started."""
        return self.started.options if self.started else Options()

    @property
    def kept(self) -> tuple[Row, ...]:
        """The rows of the kept optimizations, without the baseline."""
        return tuple(r for r in self.rows if r.iteration > 0 and r.status is Status.KEEP)


def advance(run: Run, event: Event) -> Run:
    """The next state.

    Raises:
        TransitionError: the event does not belong to the run's phase.
    """
    return _step(replace(run, spent_s=run.spent_s + event.took_s), event)


def _step(run: Run, event: Event) -> Run:
    match run.phase, event:
        case Phase.SETUP, Started():
            return replace(run, phase=Phase.BASELINE, started=event, incumbent_sha=event.origin_sha)
        case Phase.BASELINE, Baselined():
            latency_ms = geometric_mean([record.latency_ms for record in event.records])
            row = Row(0, "baseline", latency_ms, True, Status.KEEP, sha=run.incumbent_sha)
            return replace(
                run,
                phase=Phase.PROPOSE,
                baseline=event,
                incumbent_ms=latency_ms,
                iteration=1,
                rows=(row,),
            )
        case Phase.PROPOSE, Skipped():
            return replace(
                run, tried=run.tried | {event.optimization}, skipped=(*run.skipped, event)
            )
        case Phase.PROPOSE, Proposed():
            return replace(
                run,
                phase=Phase.SCREEN if len(event.candidates) > 1 else Phase.VERIFY,
                proposal=event,
                candidates=event.candidates,
                candidate=None,
                comparison=None,
                verdict=None,
                candidate_correct=False,
                tried=run.tried | {event.optimization},
            )
        case Phase.PROPOSE, Stopped():
            return replace(run, phase=Phase.FINISH, stopped=event)
        case Phase.SCREEN, Screened():
            by_sha = {candidate.sha: candidate for candidate in run.candidates}
            return replace(
                run, phase=Phase.VERIFY, candidates=tuple(by_sha[sha] for sha in event.order)
            )
        case Phase.VERIFY, Verified():
            chosen = next(c for c in run.candidates if c.sha == event.sha)
            return replace(run, phase=Phase.MEASURE, candidate=chosen, candidate_correct=True)
        case Phase.MEASURE, Measured():
            verdict = decide(event.comparison, run.options.rules)
            return replace(run, phase=Phase.SETTLE, comparison=event.comparison, verdict=verdict)
        case ((Phase.SCREEN | Phase.VERIFY | Phase.MEASURE), Failed()):
            return replace(
                run,
                phase=Phase.SETTLE,
                candidate_correct=event.correct,
                verdict=Verdict(event.status, Gain.NONE, event.reason),
                escalation=event.reason if event.incumbent else run.escalation,
            )
        case Phase.SETTLE, Settled():
            return _settle(run, event)
        case Phase.FINISH, Finished():
            return replace(run, phase=Phase.DONE, finished=event)
    raise TransitionError(f"{type(event).__name__} does not belong to phase {run.phase.value}")


def _settle(run: Run, event: Settled) -> Run:
    if run.verdict is None or run.proposal is None:
        raise TransitionError("Settled without a verdict")
    verdict = run.verdict
    shown = run.candidate or run.candidates[0]
    single = run.candidate is not None or len(run.candidates) == 1
    row = Row(
        iteration=run.iteration,
        optimization=shown.title if single else run.proposal.optimization,
        latency_ms=run.comparison.candidate_ms if run.comparison else None,
        correct=run.candidate_correct,
        status=verdict.status,
        reason=verdict.reason,
        sha=event.sha if verdict.status is Status.KEEP else shown.sha,
    )
    after = replace(
        run,
        phase=Phase.PROPOSE,
        iteration=run.iteration + 1,
        rows=(*run.rows, row),
        notes=(*run.notes, event.note) if event.note else run.notes,
    )
    if verdict.status is not Status.KEEP or run.comparison is None:
        return replace(after, misses=run.misses + 1, last_gain=Gain.NONE)
    family = {run.proposal.family}
    return replace(
        after,
        incumbent_sha=event.sha,
        incumbent_ms=run.comparison.candidate_ms,
        misses=0,
        last_gain=verdict.gain,
        demoted=run.demoted | family if verdict.gain is Gain.MINOR else run.demoted - family,
    )


def stop_reason(run: Run) -> StopReason | None:
    """Whether the run must stop before its next iteration, and why; the playbook aside."""
    options = run.options
    if run.escalation:
        return StopReason.ESCALATED
    if options.time_budget_s is not None and run.spent_s >= options.time_budget_s:
        return StopReason.TIME
    if run.iteration > options.max_iterations:
        return StopReason.ITERATIONS
    if run.last_gain is Gain.MARGINAL and not options.keep_going:
        return StopReason.SMALL_IMPROVEMENT
    if run.misses >= options.patience:
        return StopReason.NO_IMPROVEMENT
    return None
