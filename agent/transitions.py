"""The state machine of a run: what each event makes of it. Pure.

A `Run` is never saved. It is rebuilt by folding `advance` over the events of the journal, so
resuming is the normal path and not a feature. An event is written only after `advance` has
accepted it; an effect can therefore be repeated after a crash and must not mind.

    SETUP -> BASELINE -> CALIBRATE -> PROPOSE -> SCREEN -> VERIFY -> MEASURE -> SETTLE -+
                                       ^ ^  |   (a sweep)                               |
                                       | |  +-> FINISH -> DONE                          |
                             SCOUT <---+ +----------------------------------------------+

Before the playbook chooses, PROPOSE may lead to SCOUT, which leads back: what is left is looked at.

Where an assistant may mend a candidate that is not kept, SCREEN, VERIFY and MEASURE lead to REPAIR,
and that to the next attempt as PROPOSE does, or to PROPOSE once it is given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.errors import TransitionError
from agent.events import (
    Baselined,
    Calibrated,
    Candidate,
    Dropped,
    Event,
    Failed,
    Finished,
    Gathered,
    GivenUp,
    HandedOver,
    Measured,
    Offered,
    Proposed,
    Scouted,
    Screened,
    Settled,
    Skipped,
    Started,
    Stopped,
    Verified,
)
from agent.measuring.decision import Gain, Status, Verdict, as_settled
from agent.measuring.scouting import MOST_LOOKS, Estimate, all_seen, best_look
from agent.measuring.screening import LookRules, ScreenResult
from agent.state import Attempt, Phase, Row, Run, decided
from agent.usage import Usage


def advance(run: Run, event: Event) -> Run:
    """The next state.

    Raises:
        TransitionError: the event does not belong to the run's phase.
    """
    phase, took_s = run.phase.value, event.took_s
    by_phase = {**run.spent_by_phase_s, phase: run.spent_by_phase_s.get(phase, 0.0) + took_s}
    run = replace(run, spent_s=run.spent_s + took_s, spent_by_phase_s=by_phase)
    if event.touched:
        note = (
            f"{', '.join(event.touched)} in your repository during iteration {run.iteration} "
            f"({phase}): if it was not you, it was what ran there"
        )
        run = replace(run, notes=(*run.notes, note))
    return _step(run, event)


def _step(run: Run, event: Event) -> Run:
    match run.phase, event:
        case Phase.SETUP, Started():
            return replace(run, phase=Phase.BASELINE, started=event, incumbent_sha=event.origin_sha)
        case Phase.BASELINE, Baselined():
            latency_ms = event.latency_ms()
            row = Row(0, "baseline", latency_ms, True, Status.KEEP, sha=run.incumbent_sha)
            return replace(
                run,
                phase=Phase.CALIBRATE,
                baseline=event,
                launches=event.launches,
                incumbent_ms=latency_ms,
                iteration=1,
                notes=(*run.notes, *event.notes),
                rows=(row,),
            )
        case ((Phase.CALIBRATE | Phase.PROPOSE), Calibrated()):
            return replace(
                run,
                phase=Phase.PROPOSE,
                calibration=event.calibration,
                subset=event.subset,
                compile_s=run.compile_s if event.compile_s is None else event.compile_s,
                **_of_the_compared(run, event),
                calibrated_at=run.iteration,
                diagnosis=event.diagnosis or run.diagnosis,
                profiled=event.profiled if event.diagnosis else run.profiled,
                least_times=event.least_times or run.least_times,
            )
        case ((Phase.CALIBRATE | Phase.PROPOSE), Skipped()):
            return replace(
                run,
                offer=None,
                # before this iteration: what it may keep can open the optimization again
                tried={**run.tried, event.optimization: run.iteration - 1},
                spent_out=run.spent_out | {event.optimization},
                at_the_end=run.at_the_end - {event.optimization},
                skipped=(*(s for s in run.skipped if s.optimization != event.optimization), event),
                refusals=run.refusals + (event.usage is not None),
                usage=run.usage + (event.usage or Usage()),
            )
        case Phase.PROPOSE, Offered():
            return replace(run, offer=event)
        case Phase.PROPOSE, Dropped() if run.offer is not None:
            return _step(run, Skipped(run.offer.optimization, f"dropped: {event.reason}"))
        case Phase.PROPOSE, HandedOver():
            return _hand_over(run, event)
        case Phase.PROPOSE, Proposed():
            return replace(
                _with_candidates(run, event),
                offer=None,
                refusals=0,
                tried={**run.tried, event.optimization: run.iteration},
                spent_out=run.spent_out - {event.optimization},
                at_the_end=run.at_the_end - {event.optimization},
            )
        case Phase.PROPOSE, Gathered():
            return _gathered(run, event)
        case Phase.SCOUT, Scouted():
            return _scouted(run, event)
        case ((Phase.CALIBRATE | Phase.PROPOSE), Stopped()):
            told = event.diagnosis or run.diagnosis
            return replace(run, phase=Phase.FINISH, stopped=event, diagnosis=told)
        case Phase.SCREEN, Screened():
            by_sha = {candidate.sha: candidate for candidate in run.candidates}
            return replace(
                run,
                phase=Phase.VERIFY,
                candidates=tuple(by_sha[sha] for sha in event.order),
                looked_at={result.sha: result for result in event.results},
            )
        case Phase.VERIFY, Verified():
            chosen = next(c for c in run.candidates if c.sha == event.sha)
            return replace(
                run,
                phase=Phase.MEASURE,
                candidate=chosen,
                candidate_correct=True,
                candidate_launches=event.launches,
                looked_at={**run.looked_at, **{result.sha: result for result in event.rejected}},
            )
        case Phase.MEASURE, Measured():
            return replace(
                run,
                phase=Phase.REPAIR if event.mendable else Phase.SETTLE,
                comparison=event.comparison,
                elsewhere=event.elsewhere,
                verdict=event.verdict or decided(run, event.comparison),
                unmeasured=0,
            )
        case ((Phase.SCREEN | Phase.VERIFY | Phase.MEASURE), Failed()):
            return replace(
                run,
                phase=Phase.REPAIR if event.mendable else Phase.SETTLE,
                failed=event,
                candidate_correct=event.correct,
                verdict=Verdict(event.status, Gain.NONE, event.reason),
                unmeasured=run.unmeasured + 1 if event.unmeasured else 0,
                escalation=_escalation(run, event),
            )
        case Phase.SETTLE, Settled():
            return _settle(run, event)
        case Phase.REPAIR, Proposed():
            return _with_candidates(_set_aside(run), event)
        case Phase.REPAIR, Skipped():  # not worth an attempt: another may be
            return run
        case Phase.REPAIR, GivenUp():
            return _settle(_explained(run, event.reason), Settled(run.incumbent_sha))
        case ((Phase.SCREEN | Phase.VERIFY | Phase.MEASURE | Phase.SETTLE), Dropped()):
            verdict = Verdict(Status.CRASH, Gain.NONE, f"dropped: {event.reason}")
            left = replace(run, verdict=verdict, comparison=None, unmeasured=0)
            return _settle(left, Settled(run.incumbent_sha))
        case Phase.FINISH, Finished():
            return replace(run, phase=Phase.DONE, finished=event)
    raise TransitionError(f"{type(event).__name__} does not belong to phase {run.phase.value}")


def _gathered(run: Run, event: Gathered) -> Run:
    """With what was found to be left; of what is not looked at nothing is to be expected."""
    found: dict[str, Proposed | Skipped] = {each.optimization: each for each in event.proposals}
    found |= {each.optimization: each for each in event.passed_over}
    others = [each.gain for name, each in run.estimates.items() if name not in found]
    is_choice = len(event.proposals) > 1 or any(gain is not None for gain in others)
    return replace(
        run,
        phase=Phase.SCOUT if event.proposals and is_choice else Phase.PROPOSE,
        gathered={**run.gathered, **found},
        estimates={
            **run.estimates,
            **{n: _to_be_looked_at(run, each) for n, each in found.items()},
        },
    )


def _to_be_looked_at(run: Run, found: Proposed | Skipped) -> Estimate:
    """With how often that was to be: on a new incumbent everything is gathered anew."""
    if isinstance(found, Skipped):
        return Estimate(run.iteration, looks=MOST_LOOKS)  # there is nothing to look at
    before = run.estimates.get(found.optimization) if found.optimization in run.gathered else None
    return Estimate(run.iteration, looks=1 + before.looks if before else 1)


def _scouted(run: Run, event: Scouted) -> Run:
    """With an estimate for everything that was gathered on the incumbent, and a look's result."""
    looks = {**run.scouted, **{result.sha: result for result in event.results}}
    estimates = {
        name: _estimate(run, event, looks, proposal)
        for name, proposal in run.gathered.items()
        if isinstance(proposal, Proposed) and run.estimates[name].iteration == run.iteration
    }
    return replace(
        run, phase=Phase.PROPOSE, scouted=looks, estimates={**run.estimates, **estimates}
    )


def _estimate(
    run: Run, event: Scouted, looks: Mapping[str, ScreenResult], proposal: Proposed
) -> Estimate:
    """What looks say of an optimization, by its best variant."""
    shas = [candidate.sha for candidate in proposal.candidates]
    best = best_look(looks, shas, LookRules(run.options.rules))
    every = all_seen(looks, shas)
    return Estimate(
        run.iteration,
        best.improvement if best else None,
        event.error,
        looks=run.estimates[proposal.optimization].looks,
        all_variants=every,
        is_put_off=event.ended_early and not every,
        all_configs=not event.configs,
        is_cut=any(sha in looks and looks[sha].is_cut for sha in shas),
        slowed=best.slowed if best else "",
    )


def _with_candidates(run: Run, event: Proposed) -> Run:
    """With what is under judgement from here on, and nothing of what was before."""
    return replace(
        run,
        phase=Phase.SCREEN if len(event.candidates) > 1 else Phase.VERIFY,
        usage=run.usage + (event.usage or Usage()),
        proposal=event,
        candidates=event.candidates,
        candidate=None,
        looked_at={
            c.sha: look
            for c in event.candidates
            if (look := run.scouted.get(c.sha)) is not None and not look.is_cut
        },
        comparison=None,
        elsewhere=None,
        verdict=None,
        candidate_correct=False,
        failed=None,
    )


def _set_aside(run: Run) -> Run:
    """With the attempt that was judged among the earlier ones."""
    assert run.verdict is not None and run.proposal is not None
    judged = Attempt(run.shown, run.proposal, run.verdict, run.comparison)
    return replace(run, earlier=(*run.earlier, judged))


def _explained(run: Run, why: str) -> Run:
    """With the reason for which no attempt follows in that of its verdict."""
    assert run.verdict is not None
    reason = f"{run.verdict.reason}; given up: {why}"
    return replace(run, verdict=replace(run.verdict, reason=reason))


def _of_the_compared(run: Run, event: Calibrated) -> dict[str, Any]:
    """The baseline's row over the configs that are compared: those of the other rows."""
    if event.subset is None or run.baseline is None or len(run.rows) != 1:
        return {}
    latency_ms = run.baseline.latency_ms(event.subset.configs)
    return {"incumbent_ms": latency_ms, "rows": (replace(run.rows[0], latency_ms=latency_ms),)}


def _hand_over(run: Run, event: HandedOver) -> Run:
    """The next proposer begins with a clean slate; what no program could do, it may.

    What was tried stays tried, and what a look passed over: the incumbent was compared with it.
    """
    if run.next_proposer is None:
        raise TransitionError(f"nobody comes after the {run.proposer}")
    ended_early = f"the {run.proposer} ended before it was done: {event.reason}"
    passed_by = {skipped.optimization for skipped in run.skipped if not skipped.by_look}
    return replace(
        run,
        stage=run.stage + 1,
        tried={name: when for name, when in run.tried.items() if name not in passed_by},
        gathered={},
        scouted={},
        misses=0,
        last_gain=Gain.NONE,
        refusals=0,
        notes=(*run.notes, ended_early) if event.early else run.notes,
    )


def _escalation(run: Run, event: Failed) -> str:
    """Why a person must look, if one must: the incumbent fails, or nothing can be measured."""
    hopeless = event.unmeasured and run.unmeasured + 1 >= run.options.patience
    return event.reason if event.incumbent or hopeless else run.escalation


def _settle(run: Run, event: Settled) -> Run:
    if run.verdict is None or run.proposal is None:
        raise TransitionError("Settled without a verdict")
    verdict = run.verdict
    if run.comparison is not None:
        kept = event.sha != run.incumbent_sha  # what is kept is a commit of its own
        verdict = as_settled(verdict, run.comparison, run.options.rules, kept=kept)
    shown = run.shown
    single = run.candidate is not None or len(run.candidates) == 1
    row = Row(
        iteration=run.iteration,
        optimization=shown.title if single else run.proposal.optimization,
        latency_ms=run.comparison.candidate_ms if run.comparison else None,
        correct=run.candidate_correct,
        status=verdict.status,
        reason=verdict.reason,
        sha=event.sha if verdict.status is Status.KEEP else shown.sha,
        saves=run.proposal.saves
        if verdict.status is Status.KEEP and verdict.gain is Gain.NONE
        else "",
        attempts=run.attempt,
        at_least=run.comparison.overall.low if run.comparison else 0.0,
        wrong=run.wrong,
        doubts=run.proposal.doubts if verdict.status is Status.KEEP else (),
    )
    after = replace(
        run,
        phase=Phase.PROPOSE,
        verdict=verdict,
        iteration=run.iteration + 1,
        rows=(*run.rows, row),
        notes=(*run.notes, event.note) if event.note else run.notes,
        earlier=(),
    )
    if run.unmeasured:
        return after
    if verdict.status is not Status.KEEP or run.comparison is None:
        judged = run.comparison or any(attempt.comparison for attempt in run.earlier)
        return replace(after, misses=run.misses + bool(judged), last_gain=Gain.NONE)
    family = {run.proposal.family}
    at_end = {run.proposal.optimization} if _is_at_the_end(run.proposal, run.candidate) else set()
    levels_ms = {c.config: c.candidate_ms for c in run.comparison.configs}
    return replace(
        after,
        branch_behind=event.note,
        gathered={},
        scouted={},
        calibration=run.calibration and replace(run.calibration, levels_ms=levels_ms),
        incumbent_sha=event.sha,
        incumbent_ms=run.comparison.candidate_ms,
        since_origin=run.comparison.after(run.since_origin),
        elsewhere_since_origin=run.elsewhere.after(run.elsewhere_since_origin)
        if run.elsewhere
        else run.elsewhere_since_origin,
        launches=run.candidate_launches,
        diagnosis=event.diagnosis or run.diagnosis,
        misses=0,
        last_gain=verdict.gain,
        at_the_end=run.at_the_end | at_end,
        kept_families={**run.kept_families, run.proposal.family: run.iteration},
        demoted=run.demoted | family if verdict.gain is Gain.MINOR else run.demoted - family,
    )


def _is_at_the_end(proposal: Proposed, kept: Candidate | None) -> bool:
    """Whether a sweep of numbers was won by its smallest or its largest ones."""
    if kept is None:
        return False
    sweep = [candidate.params for candidate in proposal.candidates]
    varying = [name for name, value in kept.params.items()
               if {type(params.get(name)) for params in sweep} <= {int, float}
               and any(params[name] != value for params in sweep)]  # fmt: skip
    won = {name: kept.params[name] for name in varying}
    return bool(won) and any(
        all(value == best(params[name] for params in sweep) for name, value in won.items())
        for best in (min, max)
    )
