"""Comparison -> Verdict, by the 5 % / 2 % rules. Pure.

The rules come from the cuTile performance skill of TileGym. Where it compares point estimates,
this compares intervals, because two timings of the same kernel differ by more than the rules'
bands:

==========================================================  =======================================
comparison                                                   verdict
==========================================================  =======================================
a config slower by more than 2 %, interval excludes zero    revert
improvement of 5 % or more, lower bound above zero          keep, go on
improvement of 2 to 5 %, lower bound above zero             keep; its family comes last from now on
improvement under 2 %, lower bound above zero               keep, and stop unless asked to go on
anything else                                               revert: no improvement found
==========================================================  =======================================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.measuring.statistics import Comparison


class Status(StrEnum):
    """What became of an iteration; the last column of the table."""

    KEEP = "keep"
    """The candidate is the new incumbent."""
    REVERT = "revert"
    """The candidate was measured, or found wrong, and set aside."""
    CRASH = "crash"
    """The candidate could not be judged: it died, hung or could not be measured."""


class Gain(StrEnum):
    """How much a kept candidate gained; it steers what comes next."""

    MAJOR = "major"
    MINOR = "minor"
    MARGINAL = "marginal"
    NONE = "none"


@dataclass(frozen=True)
class Rules:
    """The thresholds, as fractions of the incumbent's latency."""

    major: float = 0.05
    """At or above: a new baseline, go on."""
    minor: float = 0.02
    """From here to `major`: a new baseline, but the family comes last from now on."""
    regression: float = 0.02
    """A config slower by more than this, with an interval that excludes zero, reverts."""


CLOCK_SHARE = 0.01
"""A part of the improvement this large that is the power cap's doing is worth a word."""


@dataclass(frozen=True)
class Verdict:
    """The decision on a candidate and its reason, in one line a person can check."""

    status: Status
    gain: Gain
    reason: str


def decide(comparison: Comparison, rules: Rules, *, noise_floor: float = 0.0) -> Verdict:
    """Judge a comparison by the rules.

    Args:
        comparison: candidate against incumbent.
        rules: the thresholds.
        noise_floor: what the same code against itself reaches here, as a fraction; an improvement
            must be larger to be believed.
    """
    worst = min(comparison.configs, key=lambda c: c.effect.improvement)
    regressed = [
        c
        for c in comparison.configs
        if c.effect.improvement < -rules.regression and c.effect.high < 0
    ]
    overall = comparison.overall
    if regressed:
        worst = min(regressed, key=lambda c: c.effect.improvement)
        return Verdict(
            Status.REVERT,
            Gain.NONE,
            f"{worst.config} is {percent(-worst.effect.improvement)} slower "
            f"(at least {percent(-worst.effect.high)})",
        )
    found = f"{signed(overall.improvement)} [{signed(overall.low)}, {signed(overall.high)}]"
    if not overall.low > 0:
        return Verdict(
            Status.REVERT,
            Gain.NONE,
            f"no improvement found: {found}; {percent(comparison.resolvable)} would have shown",
        )
    if overall.improvement <= noise_floor:
        return Verdict(
            Status.REVERT,
            Gain.NONE,
            f"no improvement found: {found} is within the noise floor of {percent(noise_floor)}",
        )
    if (
        comparison.equal_clock
        and abs(comparison.equal_clock.improvement - overall.improvement) >= CLOCK_SHARE
    ):
        found += f", {signed(comparison.equal_clock.improvement)} at equal clocks"
    if overall.improvement >= rules.major:
        return Verdict(Status.KEEP, Gain.MAJOR, f"faster by {found}")
    if overall.improvement >= rules.minor:
        return Verdict(Status.KEEP, Gain.MINOR, f"faster by {found}")
    return Verdict(Status.KEEP, Gain.MARGINAL, f"faster by {found}, under {percent(rules.minor)}")


def percent(fraction: float) -> str:
    """0.0312 -> '3.1 %'; below a tenth of a percent one more digit: 0.0003 -> '0.03 %'."""
    digits = 2 if 0 < abs(fraction) < 0.0005 else 1
    return f"{fraction * 100:.{digits}f} %"


def signed(fraction: float) -> str:
    """0.0312 -> '+3.1 %'."""
    return f"{fraction * 100:+.1f} %"
