"""A running commentary: what each event of a run means, in a line for a person."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from agent.causes import Diagnosis
from agent.events import (
    Baselined,
    Calibrated,
    Event,
    Failed,
    Gathered,
    HandedOver,
    Measured,
    Offered,
    Proposed,
    Scouted,
    Screened,
    Settled,
    Skipped,
    Stopped,
    Verified,
)
from agent.launches import tuning_costs
from agent.measuring.decision import percent, signed
from agent.measuring.resolution import describe_resolution
from agent.measuring.scouting import Estimate
from agent.measuring.screening import ScreenResult
from agent.measuring.subset import Subset, told_too_large
from agent.measuring.subset import in_brief as some_of
from agent.options import PLAYBOOK
from agent.report.forecast import forecast
from agent.report.mismatch import in_brief
from agent.state import Run

LAUNCHES = 3
"""Lines that tell what the perf tests launch."""
SCOUTED = 4
"""Optimizations of which is told what a look promises."""


@dataclass
class Commentary:
    """The lines of a run as it goes on, in one process.

    What the playbook passes over is told in one line until something else happens, and once: the
    summary gives the reasons, and an entry that is looked at again mostly has the same one.
    """

    _passed: list[Skipped] = field(default_factory=list)
    _told: set[tuple[str, str]] = field(default_factory=set)

    def lines(self, run: Run, event: Event) -> list[str]:
        """The lines for an event, after those that were held back; `run` is the state after it."""
        if isinstance(event, Skipped) and run.proposer == PLAYBOOK and not event.touched:
            what = (event.optimization, event.reason)
            self._passed += [event] if what not in self._told else []
            self._told.add(what)
            return []
        passed, self._passed = self._passed, []
        return [*_passed_over(run, passed), *lines(run, event)]


def _passed_over(run: Run, passed: list[Skipped]) -> list[str]:
    if len(passed) < 2:
        return [line for event in passed for line in lines(run, event)]
    return [f"skip       {len(passed)} optimizations passed over: the summary names them, and why"]


def lines(run: Run, event: Event) -> list[str]:
    """The lines for an event; `run` is the state after it."""
    told = f"note       {', '.join(event.touched)} in your repository meanwhile"
    return [*_of_what_happened(run, event), *([told] if event.touched else [])]


def _when_known(event: Calibrated) -> str:
    """What finding out took, or who found it out before."""
    return f"as run {event.known_from} had it" if event.known_from else f"{event.took_s:.0f} s"


def _of_what_happened(run: Run, event: Event) -> list[str]:
    match event:
        case Baselined():
            configs = _count(len(event.records), "config")
            return [
                f"baseline   {run.incumbent_ms:.6f} ms over {configs}; "
                f"{passing(event.correctness_tests)} ({event.took_s:.0f} s)",
                *_launches(event),
                *(f"note       {note}" for note in (*_left_out(event), *event.notes)),
            ]
        case Calibrated():
            text = describe_resolution(event.calibration, run.options.rules)
            return [
                *_compared(run, event),
                f"noise      {text} ({_when_known(event)})",
                *_plan(run),
                *_diagnosed(event.diagnosis),
            ]
        case HandedOver():
            return [f"hand over  to the {event.to}: {event.reason}"]
        case Offered():
            return [f"offer      {event.optimization}: {event.title}"]
        case Skipped():
            return [f"skip       {event.optimization}: {event.reason}{_usage(event)}"]
        case Proposed():
            count = len(event.candidates)
            title = event.candidates[0].title if count == 1 else f"{count} variants"
            title += f", attempt {run.attempt}" if run.attempt > 1 else ""
            return [
                f"[{run.iteration:2d}] try    {event.optimization}: {title}{_usage(event)}",
                *(
                    f"     out    {variant.title}: {variant.reason}"
                    for variant in event.filtered_out
                ),
                *(f"     doubt  {doubt}" for doubt in event.doubts),
            ]
        case Gathered():
            variants = sum(len(each.candidates) for each in event.proposals)
            return [
                f"scout      {_count(variants, 'variant')} of "
                f"{_count(len(event.proposals), 'optimization')} ({event.took_s:.0f} s)"
            ]
        case Scouted():
            return [_scouted(run, event)]
        case Screened():
            on = f", on {_count(len(event.configs), 'config')}" if event.configs else ""
            return [_variant(run, result, on) for result in event.results]
        case Verified():
            of = f"{run.shown.title}: " if len(run.candidates) > 1 else ""
            return [
                *(f"     wrong  {each.title}: {in_brief(each.reason)}" for each in run.wrong),
                f"     right  {of}{passing(event.passed)} ({event.took_s:.0f} s)",
            ]
        case Measured() | Failed():
            verdict = run.verdict
            assert verdict is not None
            return [f"     {verdict.status.value:<6} {verdict.reason} ({event.took_s:.0f} s)"]
        case Settled():
            notes = [f"note       {event.note}"] if event.note else []
            return [*notes, *_diagnosed(event.diagnosis)]
        case Stopped():
            detail = f": {event.detail}" if event.detail else ""
            cause = [] if run.calibration else _diagnosed(event.diagnosis)
            return [*cause, f"stop       {event.reason.value}{detail}"]
    return []


def _scouted(run: Run, event: Scouted) -> str:
    """What short looks promise: the best first, and how many lost beyond doubt."""
    names = [each.optimization for each in run.gathered.values() if isinstance(each, Proposed)]
    found = {name: run.estimates[name] for name in names}
    best = sorted(names, key=lambda name: _gain(found[name]), reverse=True)
    shown = [
        f"{name} {signed(gain)}"
        for name in best
        if (gain := found[name].gain) is not None and not found[name].is_slower
    ]
    more = len(shown) - SCOUTED
    slower = sum(each.is_slower for each in found.values())
    parts = [
        *shown[:SCOUTED],
        *([f"{more} more"] if more > 0 else []),
        *([f"{slower} slower"] if slower else []),
    ]
    told = ", ".join(parts) or "nothing was seen"
    if event.ended_early:
        told += "; the rest after what comes first"
    known = f"{len(event.known)} as an earlier run saw them, " if event.known else ""
    error = percent(event.error)
    return f"looks      {told}; {error} more or less ({known}{event.took_s:.0f} s)"


def _gain(estimate: Estimate) -> float:
    return -math.inf if estimate.gain is None else estimate.gain


def _launches(event: Baselined) -> list[str]:
    """The first few, and what it takes to tune those kernels that tune themselves."""
    shown = [f"launches   {launch}" for launch in event.launches[:LAUNCHES]]
    more = len(event.launches) - LAUNCHES
    costs = [f"tuning     {cost}" for cost in tuning_costs(event.launches)]
    return [*shown, *([f"           and {more} more"] if more > 0 else []), *costs]


def _left_out(event: Baselined) -> list[str]:
    lines = []
    if event.skipped:
        count = _count(len(event.skipped), "test")
        lines.append(f"{count} left out, skipped on this machine: {event.skipped[0]}")
    if event.not_timed:
        lines.append(
            f"{_count(len(event.not_timed), 'perf test')} left out, which the budget has no time "
            f"for (--calibration-budget-s, --compare-on, --perf-k): {event.not_timed[0]}"
        )
    return lines


def _diagnosed(diagnosis: Diagnosis | None) -> list[str]:
    if diagnosis is None:
        return []
    first = f": {diagnosis.evidence[0]}" if diagnosis.evidence else ""
    return [f"cause      {diagnosis.cause.value}{first}"]


def _usage(event: Proposed | Skipped) -> str:
    """What a model was paid for it, where one was asked."""
    usage = event.usage
    if usage is None or not usage.requests:
        return ""
    tokens = usage.input_tokens + usage.output_tokens
    cost = "price unknown" if usage.cost_usd is None else f"{usage.cost_usd:.4f} USD"
    return f" ({_count(usage.requests, 'request')}, {tokens} tokens, {cost}, {usage.took_s:.0f} s)"


def _compared(run: Run, event: Calibrated) -> list[str]:
    """Which configs are compared, and which are not."""
    subset, baseline = event.subset, run.baseline
    if subset is None or baseline is None:
        return []
    later = subset.until_later
    why = f"a comparison of all would take about {baseline.comparison_s:.0f} s"
    how = "they are those of --compare-on" if baseline.compared else f"{why}; --compare-on chooses"
    return [
        f"compared   {subset.coverage}: {some_of(subset.configs)}{f' ({how})' if later else ''}",
        *([f"left out   {some_of(later)}: until the final comparison"] if later else []),
        *(f"left out   {line}" for line in told_too_large(subset.too_large if subset else ())),
        *_not_compared(baseline, subset),
    ]


def _not_compared(baseline: Baselined, subset: Subset) -> list[str]:
    """Kernels of which the comparisons of iterations see nothing."""
    shown = {k for test in subset.tests for k in baseline.kernels.get(test, ())}
    rest = sorted({kernel for kernels in baseline.kernels.values() for kernel in kernels} - shown)
    if not rest or not shown:
        return []
    left = "left as they are" if len(rest) > 1 else "left as it is"
    return [
        f"note       no config that is compared was seen to launch {', '.join(rest)}: {left}; "
        "--compare-on chooses"
    ]


def _plan(run: Run) -> list[str]:
    """What is to be expected of the iterations; it is told once."""
    found = forecast(run) if run.iteration == 1 else None
    return [f"plan       {found}"] if found else []


def passing(number: int) -> str:
    """That so many correctness tests pass."""
    return f"{_count(number, 'correctness test')} pass{'es' if number == 1 else ''}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _variant(run: Run, result: ScreenResult, on: str) -> str:
    """What was seen of it; its gain alone where latencies would be compared that cannot be: the
    mean over a few configs with the table's, or those of several GPUs."""
    title = next((c.title for c in run.candidates if c.sha == result.sha), result.sha[:12])
    seen = f"{result.latency_ms:.6f} ms" if result.latency_ms else result.reason
    alone = on or run.options.gpus > 1
    if alone and result.latency_ms and result.improvement is not None:
        seen = f"{signed(result.improvement)}{on}"
    slowed = f", and slower at {result.slowed} than may be" if result.slowed else ""
    return f"     screen {title}: {seen}{slowed}"
