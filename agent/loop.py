"""The effects of each phase, and the while loop that drives them.

An effect looks at the run, does something to the world and returns the event that says what
happened. It can be repeated: a crash may come after the effect and before its event is on disk.
What is wrong with a candidate is an event; only a fault of ours, or a baseline that the user has
to mend, is an exception.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.candidates import Candidates, perf_tests, started
from agent.causes import Diagnosis
from agent.errors import UsageError
from agent.events import (
    Baselined,
    Calibrated,
    Event,
    Failed,
    FilteredOut,
    Finished,
    HandedOver,
    Measured,
    Proposed,
    Screened,
    Settled,
    Skipped,
    Stopped,
    StopReason,
    Verified,
)
from agent.harness.compiling.candidate_filter import in_short
from agent.harness.diagnostician import Diagnostician
from agent.harness.measuring.judge import Judge
from agent.harness.measuring.subset import Cost, comparison_s, representative
from agent.harness.processes.worker_session import deadline_in
from agent.journal import Journal
from agent.measuring.decision import Status
from agent.measuring.measurement import Calibration, ComparisonPlan, Failure
from agent.measuring.screening import SHORT_QUADS, Look, ScreenResult, halve
from agent.measuring.statistics import Comparison
from agent.proposers.base import Declined, Exhausted, Proposer
from agent.state import Phase, Run, advance, stop_reason
from agent.syntax import Source
from agent.workspace import Workspace

PAIRS = ComparisonPlan().looks[0]
"""Process pairs that a comparison usually takes."""

Effect = Callable[[Run], Event]
Observer = Callable[[Run, Event], None]

OF_ONE_PROPOSER = frozenset(
    {StopReason.EXHAUSTED, StopReason.NO_IMPROVEMENT, StopReason.SMALL_IMPROVEMENT}
)
"""Reasons to stop that say nothing of what another proposer could do."""

SCREEN_SHARE = 0.5
"""The part of an iteration's time that the variants of a sweep may take together."""


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
        begin = time.monotonic()
        event = effects[run.phase](run)
        event = replace(event, took_s=round(time.monotonic() - begin, 3))
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
    kernel_class: KernelClass
    hardware: Hardware
    diagnostician: Diagnostician | None = None
    """Says what holds the incumbent back; None where nobody asks."""

    def __post_init__(self) -> None:
        self._iteration_ends = 0.0
        self._iteration = -1

    def table(self) -> Mapping[Phase, Effect]:
        """Phase -> effect."""
        effects: dict[Phase, Effect] = {
            Phase.BASELINE: self.baseline,
            Phase.CALIBRATE: self.calibrate,
            Phase.PROPOSE: self.propose,
            Phase.SCREEN: self.screen,
            Phase.VERIFY: self.verify,
            Phase.MEASURE: self.measure,
            Phase.SETTLE: self.settle,
            Phase.FINISH: self.finish,
        }
        return {phase: self._with_frozen_tests(effect) for phase, effect in effects.items()}

    def _with_frozen_tests(self, effect: Effect) -> Effect:
        """An effect that leaves out the tests the baseline left out, in a resumed run too."""

        def call(run: Run) -> Event:
            if baseline := run.baseline:
                self.judge.leave_out(baseline.skipped)
                self.judge.expect_launches(baseline.launching)
                self.judge.compare_on(() if run.phase is Phase.FINISH else baseline.compared)
            return effect(run)

        return call

    def baseline(self, run: Run) -> Event:
        """The kernel as the user gave it must be right and measurable.

        Raises:
            UsageError: it is not, and the user has to mend that first.
        """
        deadline = self._deadline(run)
        checkout = self.candidates.checkout(run, run.incumbent_sha)
        verified = self.judge.verify(checkout, deadline, may_skip=True)
        if isinstance(verified, Failure):
            raise UsageError(f"the correctness tests fail before any change: {verified.reason}")
        verified.check(started(run).kernel)
        checkout = self.candidates.checkout(
            run, run.incumbent_sha
        )  # a test may have written into it
        timing = self.judge.time(checkout, deadline, may_skip=True)
        if isinstance(timing, Failure):
            raise UsageError(f"the perf tests fail before any change: {timing.reason}")
        compared = self._compared(run, timing.costs)
        chosen = [cost for cost in timing.costs if cost.nodeid in compared]
        return Baselined(
            records=timing.records,
            correctness_tests=verified.passed,
            pass_s=timing.pass_s,
            skipped=(*verified.skipped, *timing.skipped),
            launching=verified.launching,
            notes=verified.notes,
            compared=compared if len(chosen) < len(timing.costs) else (),
            comparison_s=round(comparison_s(chosen, PAIRS), 1),
        )

    def _compared(self, run: Run, costs: tuple[Cost, ...]) -> tuple[str, ...]:
        """The perf tests that comparisons run: the user's choice, or a representative few."""
        wanted = run.options.compare_on
        if not wanted:
            return representative(costs, PAIRS, run.options.iteration_timeout_s)
        chosen = tuple(c.nodeid for c in costs if any(part in c.nodeid for part in wanted))
        if not chosen:
            raise UsageError(
                f"no perf test holds {' or '.join(map(repr, wanted))} in its id; there are: "
                f"{', '.join(c.nodeid for c in costs[:5])}"
            )
        return chosen

    def calibrate(self, run: Run) -> Event:
        """Compare the incumbent with itself: what differs then is noise.

        Raises:
            UsageError: nothing can be measured here, and the user has to mend that first.
        """
        outcome = self._calibrate(run)
        if isinstance(outcome, Failure):
            raise UsageError(f"the kernel cannot be compared with itself: {outcome.reason}")
        if not outcome.launched:
            kernel = started(run).kernel
            raise UsageError(f"no perf test launches a kernel of {kernel}: name one with --tests")
        return Calibrated(outcome, self._diagnose(run, run.incumbent_sha, outcome.levels_ms))

    def propose(self, run: Run) -> Event:
        """Choose ONE optimization and commit its variants, or stop."""
        if reason := stop_reason(run):
            detail = run.escalation if reason is StopReason.ESCALATED else ""
            return self._stop(run, reason, detail)
        if self._calibration_is_due(run):
            outcome = self._calibrate(run)
            if isinstance(outcome, Failure):
                return Stopped(StopReason.ESCALATED, outcome.reason)
            return Calibrated(outcome)
        kernel = started(run).kernel
        text = self.workspace.repository.read(run.incumbent_sha, kernel).decode()
        subject = Subject(Source(text, kernel), self.kernel_class, self.hardware)
        proposal = self.proposers[run.proposer].propose(run, subject)
        if isinstance(proposal, Exhausted):
            return self._stop(run, StopReason.EXHAUSTED, proposal.reason)
        if isinstance(proposal, Declined):
            return Skipped(proposal.optimization, proposal.reason, proposal.usage)
        committed = self.candidates.commit(run, proposal)
        out = self.candidates.filtered_out(run, committed)
        if len(out) == len(committed):
            why = in_short(tuple(out.values()))
            return Skipped(proposal.optimization, why, proposal.usage)
        return Proposed(
            optimization=proposal.optimization,
            family=proposal.family,
            hypothesis=proposal.hypothesis,
            candidates=tuple(c for c in committed if c.sha not in out),
            filtered_out=tuple(FilteredOut(c.title, out[c.sha]) for c in committed if c.sha in out),
            expected_gain=proposal.expected_gain,
            risk=proposal.risk,
            usage=proposal.usage,
        )

    def _stop(self, run: Run, reason: StopReason, detail: str) -> Stopped | HandedOver:
        """End the run, or let the next proposer go on where this one gains nothing any more.

        Nothing gained, and a cause that no entry of the playbook removes: that is for a person.
        """
        if reason not in OF_ONE_PROPOSER:
            return Stopped(reason, detail)
        if run.next_proposer is not None:
            return HandedOver(run.next_proposer, detail or reason.value)
        cause = run.diagnosis
        if cause is not None and cause.escalates and not run.kept:
            return Stopped(StopReason.ESCALATED, f"{cause.cause.value}: {cause.evidence[0]}")
        return Stopped(reason, detail)

    def screen(self, run: Run) -> Event:
        """Rank the variants of a sweep with few blocks, against the incumbent.

        The winner's figure is biased by being the winner's, so it decides nothing: the winner is
        verified and measured afresh.
        """
        end = self._deadline(run)
        stop = min(end, deadline_in(SCREEN_SHARE * run.options.iteration_timeout_s))

        failures: list[Failure] = []
        ahead = self._interleaved_screen(run, stop)

        def look(sha: str, quads: int) -> Look | Failure | None:
            if quads == SHORT_QUADS and sha in ahead:
                return ahead[sha]
            if time.monotonic() > stop or any(failure.incumbent for failure in failures):
                return None
            incumbent = self.candidates.checkout(run, run.incumbent_sha)
            seen = self.judge.quick_compare(
                incumbent, self.candidates.checkout(run, sha), quads, stop
            )
            self.workspace.release(sha)
            if isinstance(seen, Failure):
                if time.monotonic() > stop:
                    return None  # it was cut off: that says nothing of the variant
                failures.append(seen)
            return seen

        results, ranking = halve(tuple(c.sha for c in run.candidates), look)
        blamed = next((failure for failure in failures if failure.incumbent), None)
        if ranking and blamed is None:
            self.candidates.timed(run, {r.sha for r in results if r.latency_ms is not None})
            return Screened(results, ranking)
        reason = blamed.reason if blamed else results[0].reason
        return Failed(
            Status.CRASH,
            correct=False,
            reason=f"none of {len(results)} variants could be timed: {reason}",
            incumbent=blamed is not None,
            unmeasured=bool(failures) and all(failure.unmeasured for failure in failures),
        )

    def _interleaved_screen(self, run: Run, stop: float) -> Mapping[str, Look]:
        """The short looks of a sweep, of those that can be taken together."""
        if len(run.candidates) < 3:
            return {}
        variants = {c.sha: self.candidates.checkout(run, c.sha) for c in run.candidates}
        incumbent = self.candidates.checkout(run, run.incumbent_sha)
        seen = self.judge.interleaved_screen(incumbent, variants, SHORT_QUADS, stop)
        self.candidates.release(run.candidates)
        return seen

    def verify(self, run: Run) -> Event:
        """Run the correctness tests; a sweep is represented by its best variant that passes."""
        rejected: list[ScreenResult] = []
        failure: Failure | None = None
        for candidate in run.candidates:
            outcome = self.judge.verify(
                self.candidates.checkout(run, candidate.sha), self._deadline(run)
            )
            if not isinstance(outcome, Failure):
                return Verified(candidate.sha, outcome.passed, tuple(rejected))
            failure = failure or outcome
            rejected.append(ScreenResult(candidate.sha, None, outcome.reason))
            self.workspace.release(candidate.sha)
        assert failure is not None  # a proposal has at least one candidate
        return Failed(
            failure.status, correct=False, reason=failure.reason, incumbent=failure.incumbent
        )

    def measure(self, run: Run) -> Event:
        """Candidate against incumbent, interleaved."""
        assert run.candidate is not None
        outcome = self.judge.compare(
            self.candidates.checkout(run, run.incumbent_sha),
            self.candidates.checkout(run, run.candidate.sha),
            run.calibration,
            self._deadline(run),
        )
        if isinstance(outcome, Failure):
            return Failed(
                outcome.status,
                outcome.correct,
                outcome.reason,
                incumbent=outcome.incumbent,
                unmeasured=outcome.unmeasured,
            )
        if len(run.candidates) == 1:  # those of a sweep were remembered when they were ranked
            self.candidates.timed(run, {run.candidate.sha})
        return Measured(outcome)

    def settle(self, run: Run) -> Event:
        """Let git follow the verdict: the branch moves to a kept candidate, or does not."""
        assert run.verdict is not None
        sha, note, diagnosis = run.incumbent_sha, "", None
        if run.verdict.status is Status.KEEP:
            assert run.candidate is not None and run.comparison is not None
            levels_ms = {c.config: c.candidate_ms for c in run.comparison.configs}
            diagnosis = self._diagnose(run, run.candidate.sha, levels_ms)
            sha, note = self.candidates.keep(run)
        self.candidates.release(run.candidates)
        if sha != run.incumbent_sha:
            self.workspace.release(run.incumbent_sha)
        return Settled(sha, note, diagnosis)

    def finish(self, run: Run) -> Event:
        """The last word: best against origin, and every kept step against the one before it.

        A candidate is kept when it looked best, so its figure is too good on average. The figures
        of fresh processes are the ones to report, and a step that no longer shows its gain is
        named.
        """
        outcome = self._again(run, started(run).origin_sha, run.incumbent_sha) if run.kept else None
        faded = []
        if len(run.kept) > 1:  # of one step the comparison above has said everything
            shas = [started(run).origin_sha, *(row.sha for row in run.kept)]
            for row, before in zip(run.kept, shas, strict=False):
                step = self._again(run, before, row.sha)
                if not isinstance(step, Failure) and not step.overall.low > 0:
                    faded.append(row.iteration)
        self.workspace.close()
        if isinstance(outcome, Failure):
            return Finished(None, f"the final comparison failed: {outcome.reason}", tuple(faded))
        return Finished(outcome, faded=tuple(faded))

    # --- helpers --------------------------------------------------------------------------------

    def _calibration_is_due(self, run: Run) -> bool:
        """At intervals, and when somebody changed the driver, the clocks or the power limit."""
        if run.iteration - run.calibrated_at >= run.options.recalibrate_every:
            return True
        return run.calibration is not None and run.calibration.setting != self.judge.setting()

    def _calibrate(self, run: Run) -> Calibration | Failure:
        checkout = self.candidates.checkout(run, run.incumbent_sha)
        return self.judge.calibrate(checkout, deadline_in(run.options.iteration_timeout_s))

    def _diagnose(self, run: Run, sha: str, levels_ms: Mapping[str, float]) -> Diagnosis | None:
        """What holds a commit back, whose latencies are known."""
        if self.diagnostician is None:
            return None
        return self.diagnostician.diagnose(
            self.candidates.checkout(run, sha),
            perf_tests(run),
            levels_ms,
            self.candidates.compiled(sha),
        )

    def _again(self, run: Run, before: str, after: str) -> Comparison | Failure:
        return self.judge.compare(
            self.candidates.checkout(run, before),
            self.candidates.checkout(run, after),
            None,
            deadline_in(run.options.iteration_timeout_s),
        )

    def _deadline(self, run: Run) -> float:
        """When the current iteration must be over. A resumed iteration has its time again."""
        if run.iteration != self._iteration:
            self._iteration = run.iteration
            self._iteration_ends = deadline_in(run.options.iteration_timeout_s)
        return self._iteration_ends
