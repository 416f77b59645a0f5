"""The last word of a run: its best against its origin, measured afresh."""

from __future__ import annotations

from dataclasses import dataclass

from agent.candidates import Candidates
from agent.events import Finished
from agent.harness.measuring.budget import final_subset
from agent.harness.measuring.held_twice import compare_what_fits
from agent.harness.measuring.judge import Judge
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.measurement import Failure
from agent.measuring.statistics import Comparison
from agent.measuring.subset import Subset
from agent.state import Run, doubtful, started


@dataclass(frozen=True)
class Finishing:
    """The comparisons at the end of a run."""

    judge: Judge
    candidates: Candidates

    def finish(self, run: Run) -> Finished:
        """Compare best and origin, and kept steps that are in doubt once more.

        The figures of fresh processes are the ones to report; a step that no longer shows its gain
        is named. The best is compared on all configs, as far as they fit into the time of an
        iteration.
        """
        whole = final_subset(run)
        outcome: Comparison | Failure | None = None
        if run.kept:
            outcome, whole = self._whole(run, whole)
        self.judge.compare_on(run.subset)
        faded = []
        for before, row in doubtful(run):
            step = self._again(run, before, row.sha)
            if not (isinstance(step, Failure) or step.overall.low > 0):
                faded.append(row.iteration)
        self.candidates.workspace.close()
        if isinstance(outcome, Failure):
            return Finished(None, f"the final comparison failed: {outcome.reason}", tuple(faded))
        covers = whole if outcome else None
        return Finished(
            outcome,
            faded=tuple(faded),
            left_out=covers.until_later if covers else (),
            too_large=covers.too_large if covers else (),
        )

    def _whole(self, run: Run, subset: Subset | None) -> tuple[Comparison | Failure, Subset | None]:
        assert run.baseline is not None
        arms = self._arms(run, started(run).origin_sha, run.incumbent_sha)
        deadline = deadline_in(run.options.iteration_timeout_s)
        return compare_what_fits(self.judge, run.baseline.costs, arms, subset, deadline)

    def _again(self, run: Run, before: str, after: str) -> Comparison | Failure:
        arms = self._arms(run, before, after)
        return self.judge.compare(*arms, None, deadline_in(run.options.iteration_timeout_s))

    def _arms(self, run: Run, before: str, after: str) -> tuple[Checkout, Checkout]:
        return self.candidates.checkout(run, before), self.candidates.checkout(run, after)
