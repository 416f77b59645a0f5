"""Whether what is finalized is right, and whether each of its steps is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent.errors import UsageError
from agent.finalizing.replay import KeptSteps
from agent.harness.measuring.budget import final_subset
from agent.harness.measuring.judge import as_at_baseline
from agent.harness.measuring.result_check import Allowance
from agent.harness.processes.worker_session import deadline_in
from agent.measuring.decision import signed
from agent.measuring.measurement import Failure
from agent.measuring.statistics import Comparison
from agent.report.iterations import Iteration
from agent.session import Session
from agent.state import Run

EACH_STEP_S = 60.0
"""The tests are run on each step where they take no longer than this for all of them."""


@dataclass
class Checks:
    """Asks the tests of a run, on the machine as it is."""

    session: Session
    run: Run

    def __post_init__(self) -> None:
        started = self.run.started
        assert started is not None
        self._frozen = self.session.plan.correctness == started.tests.correctness
        if self._frozen:  # else they were collected anew, and what the baseline saw is of others
            as_at_baseline(self.session.judge, self.run)

    def are_cheap(self, steps: int) -> bool:
        """Whether so many commits can be tested in about `EACH_STEP_S`, by what the run took."""
        baseline = self.run.baseline
        return baseline is not None and steps * baseline.correctness_s <= EACH_STEP_S

    def verify(self, sha: str, origin: str | None, known: Sequence[Iteration]) -> str:
        """Run the correctness tests on a commit.

        Args:
            sha: the commit.
            origin: with it results at the timed shapes are compared with those of this commit.
            known: the iterations of the run, for how precise their results have to be.

        Returns:
            What is wrong; empty where all tests pass.
        """
        rounding = max((each.proposal.rounding for each in known), default=0.0)
        outcome = self.session.judge.verify(
            self.session.checkout(sha),
            self._deadline(),
            may_skip=not self._frozen,
            origin=self.session.checkout(origin) if origin else None,
            allowance=Allowance(rounding, anything=self.run.options.allow_precision_loss),
        )
        if isinstance(outcome, Failure):
            return self.session.with_log(outcome.reason)
        if not self._frozen:
            outcome.check(self.session.target.kernel)
        return ""

    def check_machine(self) -> None:
        """Raise UsageError unless this is the GPU of the run, or neither has one."""
        started, gpu = self.run.started, self.session.environment.gpu
        assert started is not None
        measured_on = [each["name"] for each in started.environment["gpus"][:1]]
        here = [gpu.name] if gpu else []
        if here != measured_on:
            raise UsageError(
                f"--measure: the run measured on {measured_on[0] if measured_on else 'no GPU'}, "
                f"and here is {here[0] if here else 'none'}: leave --measure out, or go there"
            )

    def compare(self, before: str, after: str, *, whole: bool = False) -> Comparison | Failure:
        """Two commits in fresh interleaved process pairs; on all configs that there is time for."""
        self.session.judge.compare_on(final_subset(self.run) if whole else self.run.subset)
        ours, theirs = (self.session.checkout(sha) for sha in (before, after))
        return self.session.judge.compare(ours, theirs, None, self._deadline())

    def _deadline(self) -> float:
        return deadline_in(self.run.options.iteration_timeout_s)


def needless(replay: KeptSteps, looks: dict[int, Comparison | Failure]) -> dict[int, str]:
    """The steps that were measured to contribute nothing.

    Args:
        replay: the steps.
        looks: a step's place -> the end without it against the end.

    Returns:
        Its place -> why.
    """
    found = {}
    for place, look in looks.items():
        if isinstance(look, Failure) or look.overall.low > 0 or replay.steps[place].saves:
            continue
        gain = look.overall
        found[place] = (
            f"the end with it is not told from the end without it: {signed(gain.improvement)} "
            f"[{signed(gain.low)}, {signed(gain.high)}]"
        )
    return found
