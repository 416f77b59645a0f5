"""Ranks the variants of a sweep: a short look at all of them, longer ones at those that may win.

The winner's figure is biased by being the winner's, so it decides nothing: the winner is verified
and measured afresh. For the same reason a few configs do where all of them would take long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.candidates import Candidates
from agent.events import Failed, Screened
from agent.harness.measuring.budget import screened_subset
from agent.harness.measuring.judge import Judge
from agent.harness.processes.worker_session import deadline_in
from agent.measuring.decision import Status
from agent.measuring.measurement import Failure
from agent.measuring.screening import SHORT_QUADS, Look, halve
from agent.state import Run

SHARE = 0.5
"""The part of an iteration's time that the variants of a sweep may take together."""
FEWEST_TOGETHER = 3
"""Variants that are looked at all at once; a pair of its own for each takes no longer for fewer."""


@dataclass(frozen=True)
class Sweep:
    """The candidates of an iteration, where there are several."""

    judge: Judge
    candidates: Candidates
    doing: Callable[[Run, str], None]
    """Told in a few words which variant is looked at."""

    def screen(self, run: Run, ends: float) -> Screened | Failed:
        """Look at them, on the configs that stand for the others.

        Args:
            run: in whose iteration they are.
            ends: when that must be over.
        """
        stop = min(ends, deadline_in(SHARE * run.options.iteration_timeout_s))
        subset = screened_subset(run)
        self.judge.compare_on(subset)
        try:
            found = self._ranked(run, stop)
        finally:
            self.judge.compare_on(run.subset)
        if isinstance(found, Failed) or subset == run.subset or subset is None:
            return found
        return Screened(found.results, found.order, subset.configs)

    def _ranked(self, run: Run, stop: float) -> Screened | Failed:
        failures: list[Failure] = []
        ahead = self._interleaved(run, stop)
        places = {candidate.sha: place for place, candidate in enumerate(run.candidates, 1)}

        def look(sha: str, quads: int) -> Look | Failure | None:
            if quads == SHORT_QUADS and sha in ahead:
                return ahead[sha]
            if time.monotonic() > stop or any(failure.incumbent for failure in failures):
                return None
            self.doing(run, variant(run, places[sha]))
            incumbent = self.candidates.checkout(run, run.incumbent_sha)
            seen = self.judge.quick_compare(
                incumbent, self.candidates.checkout(run, sha), quads, stop
            )
            self.candidates.release([sha])
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
            unmeasured=all(failure.unmeasured for failure in failures),  # of none: out of time
        )

    def _interleaved(self, run: Run, stop: float) -> Mapping[str, Look]:
        """The short looks, of those that can be taken together."""
        if len(run.candidates) < FEWEST_TOGETHER:
            return {}
        variants = {c.sha: self.candidates.checkout(run, c.sha) for c in run.candidates}
        incumbent = self.candidates.checkout(run, run.incumbent_sha)
        self.doing(run, f"a short look at all {len(variants)} variants")
        seen = self.judge.interleaved_screen(incumbent, variants, SHORT_QUADS, stop)
        self.candidates.release(variants)
        return seen


def variant(run: Run, place: int) -> str:
    """Which of the candidates it is, counted from 1."""
    return f"variant {place} of {len(run.candidates)}: {run.candidates[place - 1].title}"
