"""What holds a commit of a run back, asked of the diagnostician where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.candidates import Candidates
from agent.causes import Diagnosis
from agent.harness.diagnostician import UNPROFILED, Diagnostician
from agent.launches import of_one_timing
from agent.least_time import LeastTimes
from agent.state import Run


@dataclass(frozen=True)
class Diagnosing:
    """Of the commits of a run, whose latencies are known."""

    diagnostician: Diagnostician | None
    candidates: Candidates

    def of(
        self, run: Run, sha: str, levels_ms: Mapping[str, float], until: float, profiles: bool
    ) -> Diagnosis | None:
        """What holds a commit back; None where nobody can say."""
        if self.diagnostician is None:
            return None
        is_known = sha == run.incumbent_sha
        return self.diagnostician.diagnose(
            self.candidates.checkout(run, sha),
            levels_ms,
            self.candidates.compiled(run, sha, until),
            of_one_timing(
                run.launches if is_known else run.candidate_launches, run.timings_of_tests
            ),
            until if profiles else UNPROFILED,
        )

    def least_times(self, run: Run, levels_ms: Mapping[str, float]) -> LeastTimes | None:
        """What the GPU needs for what the origin's perf tests do."""
        if self.diagnostician is None:
            return None
        return self.diagnostician.least_times(
            self.candidates.checkout(run, run.incumbent_sha),
            levels_ms,
            self.candidates.known(run.incumbent_sha),
            of_one_timing(run.launches, run.timings_of_tests),
        )
