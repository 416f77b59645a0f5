"""A run as it stands at a moment, for a person who looks on. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from agent.measuring.blocks import Telemetry
from agent.measuring.statistics import weighted_mean
from agent.options import ASSISTANT
from agent.report.forecast import forecast
from agent.report.result import left
from agent.state import Phase, Row, Run

_PHASES = {
    Phase.SETUP: "set up",
    Phase.BASELINE: "baseline: the tests on the code as it is",
    Phase.CALIBRATE: "calibration: the code compared with itself",
    Phase.PROPOSE: "what to try next",
    Phase.SCOUT: "short looks at what is left",
    Phase.SCREEN: "screening of the variants",
    Phase.VERIFY: "correctness tests",
    Phase.MEASURE: "measurement against the best",
    Phase.REPAIR: "the assistant's turn to mend it",
    Phase.SETTLE: "git follows the verdict",
    Phase.FINISH: "the last comparison: best against origin",
    Phase.DONE: "done",
}
"""What goes on in each, for a person."""


@dataclass(frozen=True)
class Moment:
    """When a run is looked at."""

    in_phase_s: float
    """Since its last event, in s."""
    doing: str = ""
    """What goes on within the phase, where that is known."""


_JUDGED = (Phase.SCREEN, Phase.VERIFY, Phase.MEASURE, Phase.REPAIR)
"""Where there is a candidate."""


def facts(run: Run, moment: Moment, telemetry: Telemetry | None) -> Iterator[tuple[str, str]]:
    """Name and text of each line above the table.

    Args:
        run: which one.
        moment: when, and what goes on.
        telemetry: of its GPU; None where there is none, or it does not answer.
    """
    yield "now", _now(run, moment)
    if trying := _trying(run, moment):
        yield "tests" if run.phase is Phase.BASELINE else "trying", trying
    yield "time", _time(run, moment)
    if run.rows:
        yield "best", _best(run)
    if telemetry is not None:
        yield (
            "GPU",
            f"{telemetry.sm_mhz} MHz, {telemetry.temperature_c} C, {telemetry.power_w:.0f} W",
        )


def in_a_line(run: Run, moment: Moment) -> str:
    """Where it is, and what it is at."""
    trying = _trying(run, moment)
    return f"{_now(run, moment)}{f': {trying}' if trying else ''}"


def _now(run: Run, moment: Moment) -> str:
    """Where it is."""
    where = f"iteration {run.iteration} of {run.options.max_iterations}, "
    if run.phase in (Phase.SETUP, Phase.BASELINE, Phase.CALIBRATE, Phase.FINISH, Phase.DONE):
        where = ""
    expected = forecast(run) if run.phase is Phase.MEASURE else None
    about = f" of about {duration(expected.comparison_s)}" if expected else ""
    if expected and expected.keep_s:
        about += f", or {duration(expected.comparison_s + expected.keep_s)} before a keep"
    what = _PHASES[run.phase]
    if run.phase is Phase.PROPOSE and run.proposer != run.options.proposers[0]:
        what = f"{what} (the {run.proposer})"
    if run.phase is Phase.PROPOSE and run.proposer == ASSISTANT:
        what = "the assistant's turn"
    if run.phase is Phase.REPAIR:
        what = f"{what}, attempt {run.attempt} of {run.possible_attempts}"
    return f"{where}{what}, {duration(moment.in_phase_s)}{about}"


def _trying(run: Run, moment: Moment) -> str:
    """What is judged; of a sweep, which of its variants."""
    if run.proposal is None or run.phase not in _JUDGED:
        return moment.doing
    name = run.proposal.optimization
    if moment.doing:
        return f"{name}, {moment.doing}"
    chosen = run.candidate or (run.candidates[0] if len(run.candidates) == 1 else None)
    return f"{name}: {chosen.title}" if chosen else f"{name}: {len(run.candidates)} variants"


def _time(run: Run, moment: Moment) -> str:
    """What has passed, and what ends the run."""
    rest = left(run)
    parts = [f"{duration(run.spent_s + moment.in_phase_s)} elapsed"]
    if rest["time_s"] is not None:
        parts.append(f"{duration(max(0.0, rest['time_s'] - moment.in_phase_s))} left")
    if run.phase not in (Phase.FINISH, Phase.DONE):
        misses = rest["without_improvement"]
        parts.append(f"ends after {misses:.0f} more without gain")
    return ", ".join(parts)


def _best(run: Run) -> str:
    """The incumbent against the code as the user gave it, by the comparisons that kept it."""
    now = f"{run.incumbent_ms:.6f} ms"
    if not run.kept:
        return f"{now}, the origin: nothing faster yet"
    last = run.kept[-1]
    by = f"iteration {last.iteration}: {last.optimization}"
    weights = run.baseline.weights if run.baseline else {}
    logs = {
        config: -math.log1p(-effect.improvement)
        for config, effect in run.since_origin.items()
        if effect.improvement < 1
    }
    if not logs:
        return f"{now}, {by}"
    return f"{now}, {math.exp(weighted_mean(logs, weights)):.2f}x the origin's speed, {by}"


def shown(rows: tuple[Row, ...], most: int) -> tuple[Row, ...]:
    """The baseline and the last, `most` together."""
    return rows if len(rows) <= most else (*rows[:1], *rows[len(rows) - most + 1 :])[:most]


def duration(seconds: float) -> str:
    """A time for a person: '42 s', '3 min 05 s', '2 h 10 min'."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
