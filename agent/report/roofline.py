"""How near each config is to the least time that its GPU needs: at the origin, kept steps, best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.least_time import LeastTime, LeastTimes
from agent.measuring.decision import Status, percent
from agent.report.iterations import Iteration
from agent.state import Run

TEXTS = {True: "bytes", False: "products"}


def roofline(run: Run, steps: Iterable[Iteration]) -> dict[str, Any] | None:
    """The roofs and where the code stood under them; None where no roof is known.

    Args:
        run: the run as it stands.
        steps: its iterations.
    """
    least = run.least_times
    if least is None or not least.configs:
        return None
    final = run.finished.comparison if run.finished else None
    origin = {r.config: r.latency_ms for r in (run.baseline.records if run.baseline else ())}
    best = _levels(run)
    if final:
        origin |= {config.config: config.incumbent_ms for config in final.configs}
    kept = {
        each.number: {config.config: config.candidate_ms for config in each.comparison.configs}
        for each in steps
        if each.row and each.row.status is Status.KEEP and each.comparison
    }
    return {
        "bandwidth_gb_s": least.bandwidth_gb_s,
        "measured": least.measured,
        "note": least.note,
        "configs": [
            _of_config(each, origin, kept, best)
            for each in least.configs
            if each.config in origin and each.holds(best.get(each.config, origin[each.config]))
        ],
    }


def _of_config(
    least: LeastTime,
    origin_ms: Mapping[str, float],
    kept_ms: Mapping[int, Mapping[str, float]],
    best_ms: Mapping[str, float],
) -> dict[str, Any]:
    ends_ms = {"origin": origin_ms[least.config], "best": best_ms.get(least.config)}
    return {
        "config": least.config,
        "bound_by": TEXTS[least.by_memory],
        "least_ms": least.least_ms,
        "counted": least.compute_ms is not None,
        "tensor_bytes": least.tensor_bytes,
        "flop": least.flop,
        **{end: least.share(ms) if ms else None for end, ms in ends_ms.items()},
        "kept": [
            {"iteration": number, "share": least.share(levels_ms[least.config])}
            for number, levels_ms in kept_ms.items()
            if least.config in levels_ms
        ],
    }


def roof_line(run: Run) -> str:
    """How near the best code is to its roofs, in a line; empty where that is not known."""
    if run.least_times is None:
        return ""
    shares = run.least_times.shares(_levels(run))
    if not shares:
        return ""
    low, high = percent(min(shares.values())), percent(max(shares.values()))
    of = low if low == high else f"{low} to {high}"
    return f"{of} of what {_source(run.least_times)}"


def _levels(run: Run) -> Mapping[str, float]:
    """Config -> latency of the best code, by the newest figures."""
    levels_ms = dict(run.calibration.levels_ms) if run.calibration else {}
    if run.finished and run.finished.comparison:
        levels_ms |= {c.config: c.candidate_ms for c in run.finished.comparison.configs}
    return levels_ms


def _source(least: LeastTimes) -> str:
    rate = f"{least.bandwidth_gb_s:.0f} GB/s"
    if least.measured:
        return f"this card was measured to attain ({rate})"
    return f"its data sheet promises ({rate}), which no kernel attains"
