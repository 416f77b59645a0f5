"""The iterations of a run in full: what a `Run` forgets of each when the next one begins.

A `Run` keeps a row of every iteration; a person who reviews it wants the hypothesis, the variants,
the intervals and what was known before and after. All of that is in the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.causes import Diagnosis
from agent.events import (
    Event,
    Failed,
    Measured,
    Offered,
    Proposed,
    Screened,
    Skipped,
    Verified,
)
from agent.launches import ObservedLaunch
from agent.measuring.decision import Gain, Rules, Status, Verdict, percent
from agent.measuring.screening import ScreenResult
from agent.measuring.statistics import Comparison, Effect
from agent.state import Phase, Row, Run
from agent.transitions import advance


@dataclass(frozen=True)
class Iteration:
    """One iteration, finished or under way."""

    number: int
    proposer: str
    proposal: Proposed
    base_sha: str
    """The incumbent that it began with."""
    row: Row | None = None
    """None while it is under way."""
    verdict: Verdict | None = None
    comparison: Comparison | None = None
    known_from: str = ""
    """The earlier run that measured it; empty: this one did."""
    failure: Failed | None = None
    """What ended it in place of a comparison."""
    screened: tuple[ScreenResult, ...] = ()
    judged_sha: str = ""
    """Of its candidates the one that a verdict is on, where it came to that."""
    rejected: tuple[ScreenResult, ...] = ()
    """Variants that a sweep ranked higher, and whose results were wrong."""
    tests_passed: int | None = None
    launches_before: tuple[ObservedLaunch, ...] = ()
    launches_after: tuple[ObservedLaunch, ...] = ()
    diagnosis_before: Diagnosis | None = None
    diagnosis_after: Diagnosis | None = None
    """None where it was not looked into again: nothing was kept, or nothing new was seen."""
    since_origin: Mapping[str, Effect] = field(default_factory=dict)
    """Config -> the incumbent that it began with against the origin."""
    took_s: dict[str, float] = field(default_factory=dict)
    """Phase -> wall time."""
    earlier: tuple[Iteration, ...] = ()
    """The attempts that were mended to this one, each as it stood then."""

    @property
    def shown_sha(self) -> str:
        """The commit to look at: what was kept, or the candidate that was judged."""
        if self.row:
            return self.row.sha
        return self.judged_sha or self.proposal.candidates[0].sha


def iterations(events: Iterable[Event]) -> tuple[Iteration, ...]:
    """The iterations of a run, oldest first.

    Args:
        events: of its journal, in order.

    Raises:
        TransitionError: they make no run.
    """
    run, found = Run(), []
    current: Iteration | None = None
    asking_s = 0.0
    for event in events:
        before, run = run, advance(run, event)
        if isinstance(event, Proposed) and current is not None:
            current = _mended(current, before, event)
            continue
        if isinstance(event, Proposed):
            current = Iteration(
                number=before.iteration,
                proposer=before.proposer,
                proposal=event,
                base_sha=before.incumbent_sha,
                launches_before=before.launches,
                since_origin=before.since_origin,
                diagnosis_before=before.diagnosis,
                took_s={Phase.PROPOSE.value: asking_s + event.took_s},
            )
            asking_s = 0.0
            continue
        if current is None:
            # what was passed over on the way to a proposal is part of what that took
            asking_s += event.took_s if isinstance(event, Skipped | Offered) else 0.0
            continue
        current = _after(current, before, event)
        if len(run.rows) > len(before.rows):
            found.append(_settled(current, before, run))
            current = None
    return (*found, *([current] if current else []))


def _mended(current: Iteration, before: Run, event: Proposed) -> Iteration:
    """The iteration with its next attempt; nothing of the one before but the time is its own."""
    phase = before.phase.value
    return replace(
        current,
        proposal=event,
        comparison=None,
        known_from="",
        failure=None,
        screened=(),
        judged_sha="",
        rejected=(),
        tests_passed=None,
        launches_after=(),
        took_s={**current.took_s, phase: current.took_s.get(phase, 0.0) + event.took_s},
        earlier=(*current.earlier, replace(current, verdict=before.verdict, earlier=())),
    )


def _after(current: Iteration, before: Run, event: Event) -> Iteration:
    phase = before.phase.value
    took_s = {**current.took_s, phase: current.took_s.get(phase, 0.0) + event.took_s}
    current = replace(current, took_s=took_s)
    match event:
        case Screened():
            return replace(current, screened=event.results)
        case Verified():
            return replace(
                current,
                judged_sha=event.sha,
                tests_passed=event.passed,
                rejected=event.rejected,
                launches_after=event.launches,
            )
        case Measured():
            return replace(current, comparison=event.comparison, known_from=event.known_from)
        case Failed():
            sha = before.shown.sha
            return replace(current, comparison=None, failure=event, judged_sha=sha)
    return current


def _settled(current: Iteration, before: Run, after: Run) -> Iteration:
    row = after.rows[-1]
    looked_again = after.diagnosis is not before.diagnosis and row.status is Status.KEEP
    return replace(
        current,
        row=row,
        verdict=after.verdict,
        diagnosis_after=after.diagnosis if looked_again else None,
    )


def deciding_rule(iteration: Iteration, rules: Rules) -> str:
    """Which rule of the loop decided an iteration, in words; empty while it is under way."""
    verdict, row, comparison = iteration.verdict, iteration.row, iteration.comparison
    if verdict is None or row is None:
        return ""
    major, minor = percent(rules.major), percent(rules.minor)
    if verdict.status is Status.KEEP:
        return {
            Gain.MAJOR: f"an improvement of {major} or more, its lower bound above zero: keep",
            Gain.MINOR: f"an improvement of {minor} to {major}, its lower bound above zero: keep, "
            "and its family comes last from now on",
            Gain.MARGINAL: f"an improvement under {minor}, its lower bound above zero: keep, and "
            "stop unless asked to go on",
            Gain.NONE: f"as fast to within {percent(rules.regression)}, and it saves something "
            "else: keep",
        }[verdict.gain]
    if verdict.status is Status.HELD:
        return "faster than can be believed: held until a person has looked at it"
    if verdict.status is Status.TAMPERED:
        return "it reached for what judges it, or for what is the user's: set aside"
    if verdict.status is Status.CRASH:
        return "it could not be judged: set aside"
    if comparison is None:
        return (
            "no figures to judge by: set aside"
            if row.correct
            else "its results are not the origin's, or a test fails: set aside"
        )
    together = comparison.after(iteration.since_origin)
    if any(
        rules.regressed(config.effect)
        or (config.effect.improvement < 0 and rules.regressed(together[config.config]))
        for config in comparison.configs
    ):
        return (
            f"a config slower by more than {percent(rules.regression)} than the best so far or "
            "than the origin, its interval without zero: revert"
        )
    return "an improvement that is not told from the noise: revert"
