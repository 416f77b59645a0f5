"""Comparison -> Verdict, by the 5 % / 2 % rules. Pure.

The rules come from the cuTile performance skill of TileGym. Where it compares point estimates,
this compares intervals, because two timings of the same kernel differ by more than the rules'
bands:

==========================================================  =======================================
comparison                                                   verdict
==========================================================  =======================================
a config slower by more than 2 %, interval excludes zero    revert
the same against the origin, with all that was kept         revert, if it is slower at all
improvement of 5 % or more, lower bound above zero          keep, go on
improvement of 2 to 5 %, lower bound above zero             keep; its family comes last from now on
improvement under 2 %, lower bound above zero               keep, and stop unless asked to go on
an improvement of a thousandfold                            held: a person has to look at it
half the time that the device takes to write the results    held, where the incumbent takes longer
as fast to within 2 %, and the edit saves something else     keep; its family stays where it is
anything else                                               revert: no improvement found
==========================================================  =======================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.measuring.statistics import Comparison, Effect, chained


class Status(StrEnum):
    """What became of an iteration; the last column of the table."""

    KEEP = "keep"
    """The candidate is the new incumbent."""
    REVERT = "revert"
    """The candidate was measured, or found wrong, and set aside."""
    CRASH = "crash"
    """The candidate could not be judged: it died, hung or could not be measured."""
    HELD = "held"
    """Faster than can be believed: a person has to look at the candidate, which is set aside."""
    TAMPERED = "tampered"
    """The candidate reached for what judges it, or for what is the user's; it is set aside."""


class Gain(StrEnum):
    """How much a kept candidate gained; it steers what comes next."""

    MAJOR = "major"
    MINOR = "minor"
    MARGINAL = "marginal"
    NONE = "none"


ROUNDING = 1e-12
"""Of a latency ratio: 1 - 1.02 is a little below -0.02."""


@dataclass(frozen=True)
class Rules:
    """The thresholds, as fractions of the incumbent's latency."""

    major: float = 0.05
    """At or above: a new baseline, go on."""
    minor: float = 0.02
    """From here to `major`: a new baseline, but the family comes last from now on."""
    regression: float = 0.02
    """A config slower by more than this, with an interval that excludes zero, reverts."""

    def regressed(self, effect: Effect) -> bool:
        """Whether a config lost more than is allowed, beyond doubt; just that much is allowed."""
        return effect.improvement < -self.regression - ROUNDING and effect.high < 0

    def gain(self, improvement: float) -> Gain:
        """How much that is, of what is faster beyond doubt."""
        if improvement >= self.major - ROUNDING:
            return Gain.MAJOR
        return Gain.MINOR if improvement >= self.minor - ROUNDING else Gain.MARGINAL


IMPOSSIBLE = 0.999
"""No edit of a kernel makes it take a thousandth of its time: something is not done any more."""
BEYOND = 0.5
"""Of the time in which the device fills as much memory as the results take: no kernel is as fast.
A fill comes near what the memory bears, and not to half of it."""
CLOCK_SHARE = 0.01
"""A part of the improvement this large that is the power cap's doing is worth a word."""


@dataclass(frozen=True)
class Verdict:
    """The decision on a candidate and its reason, in one line a person can check."""

    status: Status
    gain: Gain
    reason: str


def decide(
    comparison: Comparison,
    rules: Rules,
    *,
    noise_floor: float = 0.0,
    saves: str = "",
    since_origin: Mapping[str, Effect] | None = None,
) -> Verdict:
    """Judge a comparison by the rules.

    Args:
        comparison: candidate against incumbent.
        rules: the thresholds.
        noise_floor: what the same code against itself reaches here, as a fraction; an improvement
            must be larger to be believed.
        saves: what the edit saves that is no latency, in words; empty where that is all it is for.
        since_origin: config -> the incumbent against the origin, where anything has been kept.
    """
    overall = comparison.overall
    if slower := slower_configs(comparison, rules, since_origin or {}):
        return Verdict(Status.REVERT, Gain.NONE, next(iter(slower.values())))
    found = f"{signed(overall.improvement)} [{signed(overall.low)}, {signed(overall.high)}]"
    gained = overall.low > 0 and overall.improvement > noise_floor
    is_kept_for_else = bool(saves) and not gained and overall.low > -rules.regression
    if (is_kept_for_else or overall.low > 0) and (held := _held(comparison)):
        return Verdict(Status.HELD, Gain.NONE, held)
    if is_kept_for_else:
        return Verdict(Status.KEEP, Gain.NONE, f"as fast: {found}; it saves {saves}")
    if saves and not gained:
        within = percent(rules.regression)
        reason = f"not shown to be as fast to within {within}: {found}"
        return Verdict(Status.REVERT, Gain.NONE, reason)
    if not overall.low > 0:
        over = " over all configs" if len(comparison.configs) > 1 else ""
        return Verdict(
            Status.REVERT,
            Gain.NONE,
            f"no improvement found: {found}; by the noise of this comparison itself, "
            f"{percent(comparison.resolvable)}{over} would have shown",
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
    gain = rules.gain(overall.improvement)
    under = f", under {percent(rules.minor)}" if gain is Gain.MARGINAL else ""
    return Verdict(Status.KEEP, gain, f"faster by {found}{under}")


def as_settled(verdict: Verdict, comparison: Comparison, rules: Rules, *, kept: bool) -> Verdict:
    """The verdict that git followed.

    A verdict that is not journaled is decided again at every replay, and its rules may have changed
    since: a candidate that was kept stays kept, and one that was set aside stays that.

    Args:
        verdict: what the rules say of it now.
        comparison: what it is on.
        rules: the thresholds.
        kept: whether the candidate became the incumbent.
    """
    if kept is (verdict.status is Status.KEEP):
        return verdict
    now = f"today's rules say: {verdict.reason}"
    if not kept:
        return Verdict(Status.REVERT, Gain.NONE, f"it was set aside; {now}")
    overall = comparison.overall
    gain = rules.gain(overall.improvement) if overall.low > 0 else Gain.NONE
    return Verdict(Status.KEEP, gain, f"it was kept; {now}")


def _held(comparison: Comparison) -> str:
    """What is faster than can be believed; empty where nothing is."""
    fastest = max(c.effect.improvement for c in comparison.configs)
    if fastest >= IMPOSSIBLE:
        return f"{percent(fastest)} faster is more than an edit can do: see what it no longer does"
    for config in comparison.configs:
        if config.candidate_ms < BEYOND * config.least_ms <= config.incumbent_ms:
            return (
                f"{config.config} takes {config.candidate_ms:.6f} ms where this device takes "
                f"{config.least_ms:.6f} ms to write its results alone: see what it no longer does"
            )
    return ""


def slower_configs(
    comparison: Comparison, rules: Rules, since_origin: Mapping[str, Effect]
) -> dict[str, str]:
    """The configs that lost more than they may, the worst first, and how much each did: by this
    change, or with what was kept before, as several small losses are a large one.

    Args:
        comparison: candidate against incumbent.
        rules: the thresholds.
        since_origin: config -> the incumbent against the origin, where that is known.
    """
    found = {}
    for config in sorted(comparison.configs, key=lambda c: c.effect.improvement):
        name, effect, before = config.config, config.effect, since_origin.get(config.config)
        if rules.regressed(effect):
            found[name] = (
                f"{name} is {percent(-effect.improvement)} slower "
                f"(at least {percent(-effect.high)})"
            )
        elif before is not None and effect.improvement < 0:
            in_all = chained(before, effect)
            if rules.regressed(in_all):
                found[name] = (
                    f"{name} would be {percent(-in_all.improvement)} slower than the origin "
                    f"(at least {percent(-in_all.high)}), with what was kept before"
                )
    return found


def percent(fraction: float) -> str:
    """0.0312 -> '3.1 %'; below a tenth of a percent one more digit: 0.0003 -> '0.03 %'."""
    digits = 2 if 0 < abs(fraction) < 0.0005 else 1
    return f"{fraction * 100:.{digits}f} %"


def signed(fraction: float) -> str:
    """0.0312 -> '+3.1 %'."""
    return f"{fraction * 100:+.1f} %"
