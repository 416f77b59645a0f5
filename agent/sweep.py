"""Ranks the variants of a sweep: a short look at all of them, longer ones at those that may win.

The winner's figure is biased by being the winner's, so it decides nothing: the winner is verified
and measured afresh. For the same reason a few configs do where all of them would take long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.candidates import Candidates
from agent.events import Failed, Screened
from agent.harness.measuring.budget import screened_subset
from agent.harness.measuring.judge import Judge
from agent.harness.measuring.line_ups import LineUps
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.measuring.decision import Status
from agent.measuring.measurement import Failure
from agent.measuring.screening import FAR_BEHIND, SHORT_QUADS, Look, LookRules, halve
from agent.measuring.subset import Subset
from agent.state import Run, may_mend

SHARE = 0.5
"""The part of an iteration's time that the variants of a sweep may take together."""
PROCESSES = 2.0
"""Times the noise floor, which is a mean over pairs: how far apart two processes of a screen may
put the same code."""

LEAST_NEAR = 0.005
"""Where processes differ by less, the first of a sweep are as good as each other: five seconds of
looks in new ones would choose between 0.1555 and 0.1554 ms, as of a softmax on an H200."""


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
            found = self._ranked(run, stop, looked_at(run, subset))
        finally:
            self.judge.compare_on(run.subset)
        if isinstance(found, Failed) or subset == run.subset or subset is None:
            return found
        return Screened(found.results, found.order, subset.configs)

    def _ranked(self, run: Run, stop: float, configs: int | None) -> Screened | Failed:
        shas = [candidate.sha for candidate in run.candidates]
        variants = dict(zip(shas, self.candidates.checkouts(run, shas), strict=True))
        incumbent = self.candidates.checkout(run, run.incumbent_sha)
        near = told_apart(near_noise(run))
        try:
            with self.judge.line_ups(incumbent, variants, configs) as line_ups:
                looks = _Looks(self, run, incumbent, variants, line_ups, stop)
                results, ranking = halve(
                    tuple(variants), looks, near, run.looked_at, look_rules(run)
                )
        finally:
            self.candidates.release(variants)
        blamed = looks.blamed
        if ranking and blamed is None:
            self.candidates.timed(run, {r.sha for r in results if r.latency_ms is not None})
            return Screened(results, ranking)
        reason = blamed.reason if blamed else results[0].reason
        unmeasured = all(each.unmeasured for each in looks.failures)  # of none: out of time
        return Failed(
            Status.CRASH,
            correct=False,
            reason=f"none of {len(results)} variants could be timed: {reason}",
            incumbent=blamed is not None,
            unmeasured=unmeasured,
            detail=looks.failures[0].detail if looks.failures else "",
            mendable=may_mend(run) and blamed is None and not unmeasured,
        )


@dataclass
class _Looks:
    """Gives looks at variants: together where that can be, one by one where not."""

    sweep: Sweep
    run: Run
    incumbent: Checkout
    variants: Mapping[str, Checkout]
    line_ups: LineUps
    stop: float
    failures: list[Failure] = field(default_factory=list)
    together: bool = True
    """Whether variants can be looked at together: tests that time themselves cannot be."""

    @property
    def blamed(self) -> Failure | None:
        """A failure of the incumbent, after which nothing can be looked at."""
        return next((failure for failure in self.failures if failure.incumbent), None)

    def __call__(
        self, shas: tuple[str, ...], quads: int, fresh: bool
    ) -> Mapping[str, Look | Failure]:
        """See `agent.measuring.screening.Looks`."""
        seen: dict[str, Look | Failure] = {}
        if self.together and len(shas) > 1 and not self._is_over():
            length = "short" if quads == SHORT_QUADS else "longer"
            self.sweep.doing(self.run, f"a {length} look at {len(shas)} variants")
            looks = self.line_ups.look(shas, quads, self.stop, fresh=fresh)
            self.together = bool(looks)
            # one that was cut off is of other configs than the rest, or of one that hangs
            seen |= {sha: look for sha, look in looks.items() if not look.is_cut}
        for sha in shas:
            if sha not in seen and (found := self._alone(sha, quads)) is not None:
                seen[sha] = found
        return seen

    def _alone(self, sha: str, quads: int) -> Look | Failure | None:
        """A pair of a variant with the incumbent; None when there is no time for it."""
        if self._is_over():
            return None
        self.line_ups.close()
        place = next(n for n, each in enumerate(self.run.candidates, 1) if each.sha == sha)
        self.sweep.doing(self.run, variant(self.run, place))
        judge, variants = self.sweep.judge, self.variants
        seen = judge.quick_compare(self.incumbent, variants[sha], quads, self.stop)
        if isinstance(seen, Failure):
            if time.monotonic() > self.stop:
                return None  # it was cut off: that says nothing of the variant
            self.failures.append(seen)
        return seen

    def _is_over(self) -> bool:
        return time.monotonic() > self.stop or self.blamed is not None


def near_noise(run: Run) -> float:
    """How far apart two processes may put the same code, as a log ratio."""
    return PROCESSES * run.calibration.noise_floor if run.calibration else 0.0


def look_rules(run: Run) -> LookRules:
    """What a config may lose in a run, as far as looks tell."""
    return LookRules(run.options.rules, run.calibration.resolvable if run.calibration else {})


def told_apart(near: float) -> float:
    """Within which difference variants are looked at again, in new processes; 0: not at all.

    Args:
        near: how far apart two processes may put the same code, as a log ratio.
    """
    return near if LEAST_NEAR <= near < FAR_BEHIND else 0.0  # else it would tell too little


def looked_at(run: Run, subset: Subset | None) -> int | None:
    """How many configs a look has; None where nobody knows."""
    if subset is not None:
        return len(subset.configs)
    return len(run.baseline.records) if run.baseline else None


def variant(run: Run, place: int) -> str:
    """Which of the candidates it is, counted from 1."""
    return f"variant {place} of {len(run.candidates)}: {run.candidates[place - 1].title}"
