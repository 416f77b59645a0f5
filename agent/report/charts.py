"""Where the marks of the report's charts stand; the template draws them as SVG.

Across, places are percentages of the chart's width, so that a chart fits a phone and its letters
keep their size; down, they are pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

LEFT, RIGHT = 13.0, 96.0
"""The part of the width that marks stand in, in percent."""
TOP, BOTTOM = 24.0, 248.0
"""Of the latencies, in pixels."""
UNTIMED = 276.0
"""Where iterations without a latency stand, below the axis."""
HEIGHT = 312.0
WIDE_RANGE = 5.0
"""The largest latency over the smallest, from which the axis is logarithmic."""
LONGEST_BAR = 100.0
MOST_LABELS = 13


def latency_chart(report: dict[str, Any]) -> dict[str, Any] | None:
    """The latency of each iteration with its interval; None before there was a baseline."""
    baseline = report["baseline_ms"]
    if baseline is None:
        return None
    points = [_baseline(baseline), *map(_point, report["iterations"])]
    found = [point["latency_ms"] for point in points if point["latency_ms"] is not None]
    bounds = [bound for point in points for bound in (point["low_ms"], point["high_ms"]) if bound]
    place, ticks, logarithmic = _axis([*found, *bounds])
    last = points[-1]["iteration"]
    step = (RIGHT - LEFT) / max(1, last)
    every = max(1, math.ceil((last + 1) / MOST_LABELS))
    best = baseline
    for point in points:
        point["x"] = round(LEFT + step * point["iteration"], 3)
        point["y"] = UNTIMED if point["latency_ms"] is None else place(point["latency_ms"])
        point["label"] = point["iteration"] % every == 0
        if point["low_ms"] and point["high_ms"]:
            point["above"], point["below"] = place(point["high_ms"]), place(point["low_ms"])
        if point["status"] == "keep":
            best = point["latency_ms"]
        point["best_y"] = place(best)
    return {
        "points": points,
        "ticks": [{"y": place(tick), "label": _short(tick)} for tick in ticks],
        "logarithmic": logarithmic,
        "untimed": any(point["latency_ms"] is None for point in points),
        "statuses": list(dict.fromkeys(point["status"] for point in points)),
        "height": HEIGHT,
        "untimed_y": UNTIMED,
        "axis_y": BOTTOM,
        "label_y": HEIGHT - 6,
    }


def _baseline(latency_ms: float) -> dict[str, Any]:
    return {
        "iteration": 0,
        "title": "baseline",
        "status": "keep",
        "latency_ms": latency_ms,
        "low_ms": None,
        "high_ms": None,
    }


def _point(iteration: dict[str, Any]) -> dict[str, Any]:
    return {
        "iteration": iteration["iteration"],
        "title": iteration["title"],
        "status": iteration["status"] or "under way",
        "latency_ms": iteration["latency_ms"],
        "low_ms": iteration["latency_low_ms"],
        "high_ms": iteration["latency_high_ms"],
    }


def _axis(values: Sequence[float]) -> tuple[Any, list[float], bool]:
    """From a latency to pixels, the latencies that are labelled, and whether it is logarithmic."""
    low, high = min(values), max(values)
    logarithmic = low > 0 and high / low > WIDE_RANGE
    if not logarithmic:
        margin = (high - low) * 0.08 or high * 0.05 or 1.0
        low, high = max(0.0, low - margin), high + margin
        return _linear(low, high), _round_steps(low, high), False
    low, high = low / 1.2, high * 1.2
    by_log = _linear(math.log(low), math.log(high))

    def place(value: float) -> float:
        return float(by_log(math.log(max(value, low))))

    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    inside = [tick for tick in ticks if low <= tick <= high]
    return place, inside[:: max(1, len(inside) // 6)], True


def _linear(low: float, high: float) -> Any:
    def place(value: float) -> float:
        return round(BOTTOM - (value - low) / (high - low) * (BOTTOM - TOP), 2)

    return place


def _round_steps(low: float, high: float) -> list[float]:
    """About five round figures from one end to the other."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= raw * 0.999)
    first = math.ceil(low / step)
    return [n * step for n in range(first, math.floor(high / step) + 1)]


def _short(value: float) -> str:
    """A label of an axis."""
    return f"{value:.6g} ms"


def gain_bars(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Two bars a config, as parts of the longest share of the origin's latency that there is."""
    gains = report["gains"]
    longest = max([1.0, *(1 - gain["low"] for gain in gains)])
    return [
        gain
        | {
            "origin_width": round(LONGEST_BAR / longest, 3),
            "best_width": round(LONGEST_BAR * (1 - gain["improvement"]) / longest, 3),
            "low_x": round(max(0.0, LONGEST_BAR * (1 - gain["high"]) / longest), 3),
            "high_x": round(LONGEST_BAR * (1 - gain["low"]) / longest, 3),
        }
        for gain in gains
    ]


def time_bars(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Where the time of a run went: a bar for each phase that took any."""
    spent = {phase: s for phase, s in report["spent_by_phase_s"].items() if s > 0}
    whole, longest = sum(spent.values()), max(spent.values(), default=1.0)
    return [
        {
            "phase": phase,
            "seconds": seconds,
            "share": seconds / whole,
            "width": round(LONGEST_BAR * seconds / longest, 3),
        }
        for phase, seconds in spent.items()
    ]


def roof_marks(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each config a mark for the origin, each kept step and the best, and where the roof is."""
    roofs = report["roofline"]
    rows = roofs["configs"] if roofs else []
    farthest = max([1.0, *(row["origin"] for row in rows), *(row["best"] or 0.0 for row in rows)])

    def place(share: float) -> float:
        return round(LONGEST_BAR * share / float(farthest), 3)

    return [
        row
        | {
            "roof_x": place(1.0),
            "origin_x": place(row["origin"]),
            "best_x": None if row["best"] is None else place(row["best"]),
            "kept": [kept | {"x": place(min(kept["share"], farthest))} for kept in row["kept"]],
        }
        for row in rows
    ]
