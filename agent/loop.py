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
from pathlib import Path

from agent.backends.base import KernelClass
from agent.decision import Status
from agent.environment import describe
from agent.errors import UsageError
from agent.events import (
    Baselined,
    Calibrated,
    Candidate,
    Event,
    Failed,
    Finished,
    Measured,
    Proposed,
    Screened,
    ScreenResult,
    Settled,
    Skipped,
    SortedOut,
    Started,
    Stopped,
    StopReason,
    Verified,
)
from agent.harness.arm import Checkout, deadline_in
from agent.harness.examiner import Examiner
from agent.harness.judge import Judge
from agent.harness.sifter import Sifter, in_short
from agent.harness.subset import Cost, comparison_s, representative
from agent.journal import Journal
from agent.measurement import Calibration, Failure, Plan
from agent.playbook.base import Hardware, Subject
from agent.prompting import render
from agent.proposers.base import Declined, Proposal, Proposer
from agent.screening import Look, halve
from agent.state import Phase, Run, advance, stop_reason
from agent.statistics import Comparison
from agent.syntax import Source
from agent.workspace import Workspace

PAIRS = Plan().looks[0]
"""Process pairs that a comparison usually takes."""

Effect = Callable[[Run], Event]
Observer = Callable[[Run, Event], None]

SCREEN_SHARE = 0.5
"""The part of an iteration's time that the variants of a sweep may take together."""


def drive(run: Run, journal: Journal, effects: Mapping[Phase, Effect], observe: Observer) -> Run:
    """Go on until the run is done.

    An event that the state machine refuses never reaches the journal; one that it accepts is on
    disk before the next effect begins.
    """
    while run.phase is not Phase.DONE:
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
    judge: Judge
    proposer: Proposer
    kernel_class: KernelClass
    hardware: Hardware
    python_path: Callable[[Path], tuple[Path, ...]]
    """Where Python finds the modules of a checkout, given its root."""
    examiner: Examiner | None = None
    """Compiles candidates before they run; None where nothing can be compiled."""

    def __post_init__(self) -> None:
        self._sifter = Sifter(self.examiner)
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
                self.judge.compare_on(() if run.phase is Phase.FINISH else baseline.compared)
            return effect(run)

        return call

    def baseline(self, run: Run) -> Event:
        """The kernel as the user gave it must be right and measurable.

        Raises:
            UsageError: it is not, and the user has to mend that first.
        """
        deadline = self._deadline(run)
        checkout = self._checkout(run, run.incumbent_sha)
        verified = self.judge.verify(checkout, deadline, may_skip=True)
        if isinstance(verified, Failure):
            raise UsageError(f"the correctness tests fail before any change: {verified.reason}")
        checkout = self._checkout(run, run.incumbent_sha)  # a test may have written into it
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
        return Calibrated(outcome)

    def propose(self, run: Run) -> Event:
        """Choose ONE optimization and commit its variants, or stop."""
        if reason := stop_reason(run):
            return Stopped(reason, run.escalation if reason is StopReason.ESCALATED else "")
        if self._calibration_is_due(run):
            outcome = self._calibrate(run)
            if isinstance(outcome, Failure):
                return Stopped(StopReason.ESCALATED, outcome.reason)
            return Calibrated(outcome)
        kernel = _started(run).kernel
        text = self.workspace.repository.read(run.incumbent_sha, kernel).decode()
        subject = Subject(Source(text, kernel), self.kernel_class, self.hardware)
        proposal = self.proposer.propose(run, subject)
        if proposal is None:
            return Stopped(StopReason.EXHAUSTED)
        if isinstance(proposal, Declined):
            return Skipped(proposal.optimization, proposal.reason)
        committed = self._commit_variants(run, proposal)
        out = self._sorted_out(run, committed)
        if len(out) == len(committed):
            return Skipped(proposal.optimization, in_short(tuple(out.values())))
        return Proposed(
            optimization=proposal.optimization,
            family=proposal.family,
            hypothesis=proposal.hypothesis,
            candidates=tuple(c for c in committed if c.sha not in out),
            sorted_out=tuple(SortedOut(c.title, out[c.sha]) for c in committed if c.sha in out),
        )

    def _sorted_out(self, run: Run, candidates: list[Candidate]) -> Mapping[str, str]:
        """Commit -> why it need not be timed, by what the compiler makes of it."""
        assert run.baseline is not None
        tests = run.baseline.compared or _started(run).tests.perf
        out = self._sifter.sort_out(
            run.incumbent_sha, candidates, lambda sha: self._checkout(run, sha), tests
        )
        for candidate in candidates:
            self.workspace.release(candidate.sha)
        return out

    def screen(self, run: Run) -> Event:
        """Rank the variants of a sweep with few blocks, against the incumbent.

        The winner's figure is biased by being the winner's, so it decides nothing: the winner is
        verified and measured afresh.
        """
        end = self._deadline(run)
        stop = min(end, deadline_in(SCREEN_SHARE * run.options.iteration_timeout_s))

        failures: list[Failure] = []

        def look(sha: str, quads: int) -> Look | Failure | None:
            if time.monotonic() > stop or any(failure.incumbent for failure in failures):
                return None
            incumbent = self._checkout(run, run.incumbent_sha)
            seen = self.judge.glance(incumbent, self._checkout(run, sha), quads, stop)
            self.workspace.release(sha)
            if isinstance(seen, Failure):
                if time.monotonic() > stop:
                    return None  # it was cut off: that says nothing of the variant
                failures.append(seen)
            return seen

        results, ranking = halve(tuple(c.sha for c in run.candidates), look)
        blamed = next((failure for failure in failures if failure.incumbent), None)
        if ranking and blamed is None:
            self._sifter.remember(
                run.candidates, {r.sha for r in results if r.latency_ms is not None}
            )
            return Screened(results, ranking)
        reason = blamed.reason if blamed else results[0].reason
        return Failed(
            Status.CRASH,
            correct=False,
            reason=f"none of {len(results)} variants could be timed: {reason}",
            incumbent=blamed is not None,
            unmeasured=bool(failures) and all(failure.unmeasured for failure in failures),
        )

    def verify(self, run: Run) -> Event:
        """Run the correctness tests; a sweep is represented by its best variant that passes."""
        rejected: list[ScreenResult] = []
        failure: Failure | None = None
        for candidate in run.candidates:
            outcome = self.judge.verify(self._checkout(run, candidate.sha), self._deadline(run))
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
            self._checkout(run, run.incumbent_sha),
            self._checkout(run, run.candidate.sha),
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
            self._sifter.remember(run.candidates, {run.candidate.sha})
        return Measured(outcome)

    def settle(self, run: Run) -> Event:
        """Let git follow the verdict: the branch moves to a kept candidate, or does not."""
        assert run.verdict is not None
        sha, note = run.incumbent_sha, None
        if run.verdict.status is Status.KEEP:
            sha = self._commit_kept(run)
            note = self.workspace.advance_branch(_started(run).branch, sha)
        for candidate in run.candidates:
            self.workspace.release(candidate.sha)
        if sha != run.incumbent_sha:
            self.workspace.release(run.incumbent_sha)
        return Settled(sha, note or "")

    def finish(self, run: Run) -> Event:
        """The last word: best against origin, and every kept step against the one before it.

        A candidate is kept when it looked best, so its figure is too good on average. The figures
        of fresh processes are the ones to report, and a step that no longer shows its gain is
        named.
        """
        outcome = (
            self._again(run, _started(run).origin_sha, run.incumbent_sha) if run.kept else None
        )
        faded = []
        if len(run.kept) > 1:  # of one step the comparison above has said everything
            shas = [_started(run).origin_sha, *(row.sha for row in run.kept)]
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
        checkout = self._checkout(run, run.incumbent_sha)
        return self.judge.calibrate(checkout, deadline_in(run.options.iteration_timeout_s))

    def _again(self, run: Run, before: str, after: str) -> Comparison | Failure:
        return self.judge.compare(
            self._checkout(run, before),
            self._checkout(run, after),
            None,
            deadline_in(run.options.iteration_timeout_s),
        )

    def _deadline(self, run: Run) -> float:
        """When the current iteration must be over. A resumed iteration has its time again."""
        if run.iteration != self._iteration:
            self._iteration = run.iteration
            self._iteration_ends = deadline_in(run.options.iteration_timeout_s)
        return self._iteration_ends

    def _checkout(self, run: Run, sha: str) -> Checkout:
        root = self.workspace.checkout(sha)
        return Checkout(root, self.python_path(root), _started(run).kernel)

    def _commit_variants(self, run: Run, proposal: Proposal) -> list[Candidate]:
        started = _started(run)
        candidates = []
        for number, variant in enumerate(proposal.variants, start=1):
            sha = self.workspace.commit_candidate(
                run.incumbent_sha,
                started.kernel,
                variant.source.encode(),
                f"tile-agent: try {variant.title}\n",
                _when(run),
            )
            self.workspace.keep_ref(f"{run.iteration:02d}-{proposal.optimization}-{number}", sha)
            candidates.append(Candidate(sha, dict(variant.params), variant.title))
        return candidates

    def _commit_kept(self, run: Run) -> str:
        """One commit a kept optimization: what, why, and the figures."""
        started, candidate, proposal = _started(run), run.candidate, run.proposal
        assert candidate is not None and proposal is not None
        message = render(
            "commit_message.j2",
            kernel=Path(started.kernel).stem,
            title=candidate.title,
            hypothesis=proposal.hypothesis,
            comparison=run.comparison,
            machine=describe(started.environment),
            run_id=started.run_id,
            iteration=run.iteration,
        )
        return self.workspace.commit_kept(run.incumbent_sha, candidate.sha, message, _when(run))


def _started(run: Run) -> Started:
    assert run.started is not None  # every phase but SETUP comes after it
    return run.started


def _when(run: Run) -> float:
    """A time that repeating the effect gives again, so that commits come out the same."""
    return _started(run).began_at_s + run.spent_s
