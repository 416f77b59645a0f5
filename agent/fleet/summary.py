"""What came of a fleet: a row a kernel, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from agent.errors import ExitCode
from agent.fleet.home import FleetOutcome, Home, KernelStanding
from agent.fleet.slow_cards import slow_cards
from agent.measuring.decision import signed
from agent.report.result import to_result

_COLUMNS = ("kernel", "standing", "origin_ms", "best_ms", "gain", "kept", "GPU h", "branch")


def _to_row(
    home: Home, standing: KernelStanding, gpus: int, slow: str | None, *, alive: bool
) -> dict[str, Any]:
    """A kernel as plain JSON values; `gpus` are those of a run, `slow` is what its card is."""
    running = standing.outcome is FleetOutcome.RUNNING
    run = home.run(standing.name)
    result = to_result(run) if run else {}
    final = run.finished.comparison if run and run.finished else None
    return {
        "name": standing.name,
        "kernel": standing.kernel,
        "standing": standing.outcome.value if alive or not running else "interrupted",
        "reason": standing.reason,
        "run": standing.run_id or None,
        "branch": standing.branch or None,
        "origin_ms": final.incumbent_ms if final else result.get("baseline_ms"),
        "best_ms": final.candidate_ms if final else None,
        "gain": final.overall.improvement if final else None,
        "gain_low": final.overall.low if final else None,
        "gain_high": final.overall.high if final else None,
        "iteration": result.get("iteration", 0),
        "kept": len(run.kept) if run else 0,
        "latency_meaning": result.get("latency_meaning"),
        "host": standing.host or None,
        "machine": standing.machine or None,
        "attempts": standing.attempts,
        "gpu_h": standing.spent_s * gpus / 3600,
        "spent_s": round(standing.spent_s, 1),
        "slow_card": slow,
        "notes": result.get("notes", []),
        "exit_code": standing.code,
    }


def to_result_of(home: Home, *, alive: bool = True) -> dict[str, Any]:
    """A fleet as plain JSON values, what gained most first.

    Args:
        home: the fleet.
        alive: whether somebody drives it.
    """
    fleet, standings = home.fleet(), home.standings()
    gpus, slow = fleet.gpus_per_run, slow_cards(standings)
    rows = [_to_row(home, each, gpus, slow.get(each.name), alive=alive) for each in standings]
    rows.sort(key=lambda row: (-(row["gain"] or 0.0), row["name"]))
    return {
        "fleet": home.fleet_id,
        "sha": fleet.sha,
        "folder": str(home.folder),
        "kernels": rows,
        "kept": sum(row["kept"] > 0 for row in rows),
        "gpu_h": sum(row["gpu_h"] for row in rows),
        "exit_code": int(exit_code(standings, rows)),
    }


def exit_code(standings: Sequence[KernelStanding], rows: Sequence[dict[str, Any]]) -> ExitCode:
    """Of a fleet: that something was kept outweighs what became of the others."""
    if not all(standing.outcome.final for standing in standings):
        return ExitCode.STOPPED
    if any(row["kept"] and row["branch"] for row in rows):
        return ExitCode.DONE
    if any(standing.outcome is FleetOutcome.ENDED for standing in standings):
        return ExitCode.NO_IMPROVEMENT
    return ExitCode.USAGE


def table(result: dict[str, Any]) -> str:
    """The kernels of a fleet as a table in Markdown, and below it why some have no result."""
    rows = [_COLUMNS, *(_cells(row) for row in result["kernels"])]
    widths = [max(len(row[k]) for row in rows) for k in range(len(_COLUMNS))]
    lines = [
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in rows
    ]
    lines.insert(1, f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    told = [
        f"{row['kernel']}: {row[key]}"
        for row in result["kernels"]
        for key in ("reason", "slow_card")
        if row[key]
    ]
    return "\n".join([*lines, *([""] if told else []), *told]) + "\n"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    def ms(value: float | None) -> str:
        return "" if value is None else f"{value:.6f}"

    gain = ""
    if row["gain"] is not None:
        interval = f"[{signed(row['gain_low'])}, {signed(row['gain_high'])}]"
        gain = f"{signed(row['gain'])} {interval}"
    kept, hours = str(row["kept"]), f"{row['gpu_h']:.2f}"
    standing = row["standing"]
    if standing == FleetOutcome.RUNNING:
        standing = f"{standing}, iteration {row['iteration']}"
    latencies = (ms(row["origin_ms"]), ms(row["best_ms"]))
    return (row["kernel"], standing, *latencies, gain, kept, hours, row["branch"] or "")


def headline(result: dict[str, Any]) -> str:
    """A fleet in one line."""
    kernels = result["kernels"]
    counts = Counter(row["standing"] for row in kernels)
    parts = [f"{count} {standing}" for standing, count in sorted(counts.items())]
    return (
        f"{result['fleet']}: {len(kernels)} kernels, {', '.join(parts)}; "
        f"{result['kept']} made faster, {result['gpu_h']:.2f} GPU hours"
    )
