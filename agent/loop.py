"""The effects of each phase, and the while loop that drives them.

An effect looks at the run, does something to the world and returns the event that says what
happened. It can be repeated: a crash may come after the effect and before its event is on disk.
What is wrong with a candidate is an event; only a fault of ours, or a baseline that the user has
to mend, is an exception.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from agent.analysis.common.subject import Hardware
from agent.asking import Asking
from agent.candidates import Candidates, allowance
from agent.diagnosing import Diagnosing
from agent.errors import UsageError
from agent.events import (
    ENDED_EARLY,
    Baselined,
    Calibrated,
    Event,
    Failed,
    HandedOver,
    Measured,
    Settled,
    Stopped,
    StopReason,
    Verified,
)
from agent.finishing import Finishing
from agent.harness.diagnostician import Diagnostician
from agent.harness.failed_baseline import failed_baseline
from agent.harness.measuring.budget import (
    USUAL_PAIRS,
    MeasuringBudget,
    baseline_s,
    chosen_configs,
    raise_outrun,
)
from agent.harness.measuring.calibration import BudgetedCalibration
from agent.harness.measuring.judge import Judge, as_at_baseline
from agent.harness.measuring.timed_pass import PassLimit
from agent.harness.processes.worker_session import deadline_in
from agent.journal import Journal, without_secrets
from agent.keeping import confirmed
from agent.measuring.decision import Status
from agent.measuring.measurement import Failure
from agent.measuring.pair_cost import PairCost
from agent.measuring.screening import ScreenResult
from agent.options import PLAYBOOK
from agent.proposers.base import Exhausted, Proposer
from agent.scouting import Scouting
from agent.state import Phase, Run, may_mend, started, stop_detail, stop_reason
from agent.sweep import Sweep, variant
from agent.target import left_alone
from agent.transitions import advance
from agent.watched import JUDGED, TOLD, Watch
from agent.without_choice import WithoutChoice
from agent.workspace import Workspace

Effect = Callable[[Run], Event]
Observer = Callable[[Run, Event], None]

OF_ONE_PROPOSER = ENDED_EARLY | {
    StopReason.EXHAUSTED,
    StopReason.NO_IMPROVEMENT,
    StopReason.SMALL_IMPROVEMENT,
}
"""Reasons to stop that say nothing of what another proposer could do."""


def drive(
    run: Run,
    journal: Journal,
    effects: Mapping[Phase, Effect],
    observe: Observer,
    until: Callable[[Run], bool] = lambda run: run.phase is Phase.DONE,
) -> Run:
    """Go on until the run is done, or as far as was asked.

    An event that the state machine refuses never reaches the journal; one that it accepts is on
    disk before the next effect begins.
    """
    while not until(run):
        begin, event = time.monotonic(), effects[run.phase](run)
        event = without_secrets(replace(event, took_s=round(time.monotonic() - begin, 3)))
        after = advance(run, event)
        journal.append(event)
        run = after
        observe(run, event)
    return run


@dataclass
class Effects:
    """What the phases do to the world. The journal and the state machine are not its matter."""

    workspace: Workspace
    candidates: Candidates
    judge: Judge
    proposers: Mapping[str, Proposer]
    hardware: Hardware
    diagnostician: Diagnostician | None = None
    """Says what holds the incumbent back; None where nobody asks."""
    doing: Callable[[Run, str], None] = lambda _run, _what: None
    """Told in a few words what goes on within a phase, for who watches."""
    scouts: bool = False
    """Whether what the playbook has left is looked at before it is chosen."""

    def __post_init__(self) -> None:
        self._iteration_ends, self._iteration = 0.0, (-1, 0)
        self._asking = Asking(self.candidates, self.proposers, self.hardware)
        self._scouting = Scouting(self.judge, self.candidates, self._asking, self.doing)
        self._foresight = self._scouting.foresight
        self._diagnosing = Diagnosing(self.diagnostician, self.candidates)
        self._without_choice = WithoutChoice(self._asking)

    def table(self) -> Mapping[Phase, Effect]:
        """Phase -> effect."""
        effects: dict[Phase, Effect] = {
            Phase.BASELINE: self.baseline,
            Phase.CALIBRATE: self.calibrate,
            Phase.PROPOSE: self.propose,
            Phase.SCOUT: self.scout,
            Phase.SCREEN: self.screen,
            Phase.VERIFY: self.verify,
            Phase.MEASURE: self.measure,
            Phase.SETTLE: self.settle,
            Phase.REPAIR: self.repair,
            Phase.FINISH: self.finish,
        }
        watched = Watch(self.candidates).over
        effects |= {phase: watched(effects[phase]) for phase in (*JUDGED, *TOLD)}
        return {phase: self._with_frozen_tests(effect) for phase, effect in effects.items()}

    def _with_frozen_tests(self, effect: Effect) -> Effect:
        """An effect that leaves out the tests the baseline left out, in a resumed run too."""

        def call(run: Run) -> Event:
            as_at_baseline(self.judge, run)
            try:
                return effect(run)
            except BaseException:
                self._foresight.give_up()
                raise

        return call

    def baseline(self, run: Run) -> Event:
        """The kernel as the user gave it must be right and measurable.

        Raises:
            UsageError: it is not, and the user has to mend that first.
        """
        begin = time.monotonic()
        ends = begin + baseline_s(run.options, run.spent_s)
        deadline = min(self._deadline(run), ends)
        checkout = self.candidates.checkout(run, run.incumbent_sha)
        tell = partial(self._tests_done, run)
        verified = self.judge.verify(checkout, deadline, may_skip=True, tell=tell)
        correctness_s = time.monotonic() - begin
        if isinstance(verified, Failure):
            raise_outrun("correctness", run.options, ends)
            raise failed_baseline("correctness", run.options, verified, started(run).tests)
        verified.check(started(run).kernel)
        written = self.candidates.written()
        checkout = self.candidates.checkout(run, run.incumbent_sha)
        self.doing(run, "the perf tests, once each")
        limit = PassLimit(MeasuringBudget.of(run.options).calibration_s, run.options.compare_on)
        timing = self.judge.time(checkout, deadline, may_skip=True, limit=limit)
        if isinstance(timing, Failure):
            raise_outrun("perf", run.options, ends)
            raise failed_baseline("perf", run.options, timing, started(run).tests)
        cost = PairCost.expected(timing.costs, timing.start_s)
        return Baselined(
            records=timing.records,
            correctness_tests=verified.passed,
            pass_s=timing.pass_s,
            skipped=(*verified.skipped, *timing.skipped),
            not_timed=timing.left_out,
            launching=verified.launching,
            notes=(*verified.notes, *left_alone(self._asking.source(run), timing.launches)),
            compared=chosen_configs(timing.costs, run.options.compare_on),
            comparison_s=round(USUAL_PAIRS * cost.pair_s(None), 1),
            costs=timing.costs,
            start_s=timing.start_s,
            correctness_s=round(verified.took_s if verified.workers > 1 else correctness_s, 1),
            workers=verified.workers,
            written=tuple(sorted({*written, *self.candidates.written()})),
            launches=timing.launches,
            kernel_class=self._asking.class_of(run, timing.launches),
        )

    def _tests_done(self, run: Run, done: int, nodeid: str) -> None:
        self.doing(run, f"{done} of {len(started(run).tests.correctness)} done, now {nodeid}")

    def calibrate(self, run: Run) -> Event:
        """Compare the incumbent with itself: what differs then is noise.

        Where nothing can be tried nobody needs to know: the run passes over all, and ends.

        Raises:
            UsageError: nothing can be measured here, and the user has to mend that first.
        """
        assert run.baseline is not None
        passed_over = self._without_choice.left(run)
        if passed_over is not None:
            return passed_over[0] if passed_over else self._end_uncalibrated(run)
        profiles = not self._goes_by_looks(run)
        if known := self.candidates.known_calibration(run, self.judge.setting(), profiles):
            return known
        budget = MeasuringBudget.of(run.options)
        until = deadline_in(budget.calibration_s)
        if self.diagnostician is not None:
            budget = budget.before_diagnosis()
        budgeted = BudgetedCalibration(self.judge, run.baseline, budget)
        if self.scouts and budgeted.holds_all:
            self._scouting.foresee_first(run)
        checkout = self.candidates.checkout(run, run.incumbent_sha)
        outcome = budgeted.measure(checkout, deadline_in(run.options.iteration_timeout_s))
        if isinstance(outcome, Failure):
            raise UsageError(f"the kernel cannot be compared with itself: {outcome.reason}")
        if not outcome.launched:
            kernel = started(run).kernel
            raise UsageError(f"no perf test launches a kernel of {kernel}: name one with --tests")
        run = replace(run, subset=budgeted.subset)
        diagnosis = self._diagnosing.of(run, run.incumbent_sha, outcome.levels_ms, until, profiles)
        compile_s = self.candidates.compile_s(run.incumbent_sha)
        least = run.least_times or self._diagnosing.least_times(run, outcome.levels_ms)
        return Calibrated(outcome, diagnosis, run.subset, compile_s, least, profiled=profiles)

    def _end_uncalibrated(self, run: Run) -> Event:
        """End a run that has nothing to try, with what holds the kernel back."""
        until = deadline_in(MeasuringBudget.of(run.options).calibration_s)
        cause = self._diagnosing.of(
            run, run.incumbent_sha, run.levels_ms, until, not self._goes_by_looks(run)
        )
        end = self._stop(replace(run, diagnosis=cause), StopReason.EXHAUSTED, "")
        assert isinstance(end, Stopped)  # nobody comes next
        return replace(end, diagnosis=end.diagnosis or cause)

    def propose(self, run: Run) -> Event:
        """Choose ONE optimization and commit its variants, or stop."""
        if reason := stop_reason(run):
            return self._stop(run, reason, stop_detail(run, reason))
        if self._calibration_is_due(run):
            checkout = self.candidates.checkout(run, run.incumbent_sha)
            deadline = deadline_in(run.options.iteration_timeout_s)
            until = deadline_in(MeasuringBudget.of(run.options).calibration_s)
            outcome = self.judge.calibrate(checkout, deadline, until=until)
            if isinstance(outcome, Failure):
                return Stopped(StopReason.ESCALATED, outcome.reason)
            return Calibrated(outcome, subset=run.subset)
        if self.scouts and (entries := self._scouting.due(run)):
            return self._scouting.gather(run, entries)
        self._foresight.give_up()
        answer = self._asking.ask(run)
        if isinstance(answer, Exhausted):
            return self._stop(run, answer.stop, answer.reason)
        return answer

    def scout(self, run: Run) -> Event:
        """Look shortly at what was gathered: what looks best is tried first."""
        return self._scouting.look(run)

    def repair(self, run: Run) -> Event:
        """Commit what a candidate was mended to."""
        answer = self._asking.ask(run)
        assert not isinstance(answer, Exhausted)  # whoever mends one hands it over
        return answer

    def _stop(self, run: Run, reason: StopReason, detail: str) -> Stopped | HandedOver:
        """End the run, or let the next proposer go on where this one gains nothing any more.

        Nothing gained, and a cause that no entry of the playbook removes: that is for a person.
        """
        if reason not in OF_ONE_PROPOSER:
            return Stopped(reason, detail)
        if run.next_proposer is not None:
            return HandedOver(
                run.next_proposer, detail or reason.value, early=reason in ENDED_EARLY
            )
        if reason in ENDED_EARLY:
            return Stopped(reason, detail)
        cause = run.diagnosis
        if cause is None or not cause.escalates or run.kept:
            return Stopped(reason, detail)
        if not run.profiled and run.levels_ms:  # nobody chose by that until now
            cause = self._diagnosing.of(
                run, run.incumbent_sha, run.levels_ms, math.inf, profiles=True
            )
        if cause is None or not cause.escalates:
            return Stopped(reason, detail, cause)
        told = f"{cause.cause.value}: {cause.evidence[0]}"
        return Stopped(StopReason.ESCALATED, f"{told}; {detail}" if detail else told, cause)

    def screen(self, run: Run) -> Event:
        """Rank the variants of a sweep with few blocks, against the incumbent."""
        return Sweep(self.judge, self.candidates, self.doing).screen(run, self._deadline(run))

    def verify(self, run: Run) -> Event:
        """Run the correctness tests; a sweep is represented by its best variant that passes."""
        rejected: list[ScreenResult] = []
        failure: Failure | None = None
        self._scouting.foresee_next(run, run.candidates[0].sha)
        origin = self.candidates.checkout(run, started(run).origin_sha)
        incumbent = self.candidates.checkout(run, run.incumbent_sha)
        for place, candidate in enumerate(run.candidates, 1):
            if len(run.candidates) > 1:
                self.doing(run, variant(run, place))
            there, now = self.candidates.checkout(run, candidate.sha), self.judge.setting()
            known = self.candidates.known_comparison(replace(run, candidate=candidate), now)
            outcome = self.judge.verify(
                there,
                self._deadline(run),
                origin=origin,
                allowance=allowance(run),
                incumbent=None if known else incumbent,  # nothing will be compared
            )
            if not isinstance(outcome, Failure):
                seen = outcome.launches
                return Verified(candidate.sha, outcome.passed, tuple(rejected), launches=seen)
            failure = failure or outcome
            rejected.append(ScreenResult(candidate.sha, None, outcome.reason))
            self.candidates.release([candidate.sha])
        assert failure is not None  # a proposal has at least one candidate
        return Failed.of(failure, may_mend=may_mend(run))

    def measure(self, run: Run) -> Event:
        """Candidate against incumbent, interleaved, and the verdict that follows."""
        assert run.candidate is not None
        if known := self.candidates.known_comparison(run, self.judge.setting()):
            return known
        there, ends = self.candidates.checkout(run, run.candidate.sha), self._deadline(run)
        incumbent = self.candidates.checkout(run, run.incumbent_sha)
        outcome = self.judge.compare(
            incumbent, there, run.calibration, ends, attempts=run.possible_attempts
        )
        if isinstance(outcome, Failure):
            return Failed.of(outcome, may_mend=may_mend(run))
        if len(run.candidates) == 1:  # those of a sweep were remembered when they were ranked
            self.candidates.timed(run, {run.candidate.sha})
        # a run knows configs by their names in the journal, where no secret is
        measured = without_secrets(Measured(outcome))
        found = confirmed(self.judge, run, measured, (incumbent, there), ends)
        if isinstance(found, Failure):
            return Failed.of(found, may_mend=may_mend(run))
        is_reverted = found.verdict is not None and found.verdict.status is Status.REVERT
        return replace(found, mendable=is_reverted and may_mend(run))

    def settle(self, run: Run) -> Event:
        """Let git follow the verdict: the branch moves to a kept candidate, or does not."""
        assert run.verdict is not None
        sha, note, diagnosis = run.incumbent_sha, "", None
        if run.verdict.status is Status.KEEP:
            assert run.candidate is not None and run.comparison is not None
            levels_ms = {c.config: c.candidate_ms for c in run.comparison.configs}
            profiles = not (self._is_over(run) or self._goes_by_looks(run))
            diagnosis = self._diagnosing.of(run, run.candidate.sha, levels_ms, math.inf, profiles)
            sha, note = self.candidates.keep(run)
        done_with = {run.incumbent_sha, *(candidate.sha for candidate in run.candidates)}
        self.candidates.release(done_with - {sha})
        return Settled(sha, note, diagnosis)

    def finish(self, run: Run) -> Event:
        """The last word: best against origin, and kept steps that are in doubt once more."""
        self._foresight.give_up()
        return Finishing(self.judge, self.candidates).finish(run)

    def _is_over(self, run: Run) -> bool:
        """Whether nobody chooses anything once the candidate is kept."""
        assert run.candidate is not None
        reason = stop_reason(advance(run, Settled(run.candidate.sha)))
        return reason is not None and (reason not in OF_ONE_PROPOSER or run.next_proposer is None)

    def _goes_by_looks(self, run: Run) -> bool:
        """Whether nobody is to choose by what a profile tells, which takes 10 to 20 s."""
        is_alone = run.proposer == PLAYBOOK and run.next_proposer is None
        return self.scouts and is_alone and self._scouting.has_time(run)

    # --- helpers --------------------------------------------------------------------------------

    def _calibration_is_due(self, run: Run) -> bool:
        """At intervals, and when somebody changed the driver, the clocks or the power limit."""
        if run.iteration - run.calibrated_at >= run.options.recalibrate_every:
            return True
        return run.calibration is not None and run.calibration.setting != self.judge.setting()

    def _deadline(self, run: Run) -> float:
        """When the current attempt must be over. A resumed one has its time again."""
        if (run.iteration, run.attempt) != self._iteration:
            self._iteration = (run.iteration, run.attempt)
            self._iteration_ends = deadline_in(run.options.iteration_timeout_s)
        return self._iteration_ends
