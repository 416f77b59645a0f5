"""The last word of a run: its best against its origin, measured afresh."""

from __future__ import annotations

from dataclasses import dataclass

from agent.candidates import Candidates
from agent.events import Finished
from agent.harness.measuring.budget import final_subset
from agent.harness.measuring.judge import Judge
from agent.harness.processes.worker_session import deadline_in
from agent.measuring.measurement import Failure
from agent.measuring.statistics import Comparison
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
        self.judge.compare_on(whole)
        outcome = self._again(run, started(run).origin_sha, run.incumbent_sha) if run.kept else None
        self.judge.compare_on(run.subset)
        faded = []
        for before, row in doubtful(run):
            step = self._again(run, before, row.sha)
            if not (isinstance(step, Failure) or step.overall.low > 0):
                faded.append(row.iteration)
        self.candidates.workspace.close()
        if isinstance(outcome, Failure):
            return Finished(None, f"the final comparison failed: {outcome.reason}", tuple(faded))
        left_out = whole.until_later if whole and outcome else ()
        return Finished(outcome, faded=tuple(faded), left_out=left_out)

    def _again(self, run: Run, before: str, after: str) -> Comparison | Failure:
        ours, theirs = (self.candidates.checkout(run, sha) for sha in (before, after))
        return self.judge.compare(ours, theirs, None, deadline_in(run.options.iteration_timeout_s))
