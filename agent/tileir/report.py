"""The report of the Tile IR workflow, in the sections that TensorRT-LLM's skill asks for."""

from __future__ import annotations

from collections.abc import Iterator

from agent.analysis.triton.kinds import KernelKind
from agent.tileir.compatibility import Obstacle
from agent.tileir.configs import PreparedConfigs
from agent.tileir.machine import Machine
from agent.tileir.steps import Abort, SizeTiming, Step, TileIrPhase, Timed

HEADINGS = {
    TileIrPhase.COMPATIBILITY: "Compatibility check (ENABLE_TILE=0)",
    TileIrPhase.VALIDATE: "Tile IR validation (ENABLE_TILE=1)",
}


def machine_lines(machine: Machine) -> Iterator[str]:
    """What `check` says."""
    version = machine.installed.get("version") or "of unknown version"
    yield f"triton     {version if machine.installed.get('triton') else 'not installed'}"
    yield f"tile ir    {machine.nvtriton}: {machine.no_tile_ir or 'ready'}"
    if machine.gpu is not None:
        yield f"gpu        {machine.gpu.name}, sm_{machine.gpu.sm}"
    yield f"tileiras   {machine.installed.get('compiler') or 'none where the backend looks'}"
    yield from (f"note       {problem}" for problem in machine.problems)
    yield from (f"{step.phase:<14} {step.status}: {step.reason}" for step in machine.steps())
    yield machine.recommendation


def title(kinds: tuple[KernelKind, ...]) -> str:
    """The heading of a report: the kernel with the most work."""
    return f"## Tile IR optimization: {kinds[0].kernel}"


def classification(
    kinds: tuple[KernelKind, ...], findings: tuple[Obstacle, ...], advice: tuple[str, ...]
) -> Iterator[str]:
    """Kinds with their evidence, then what is in the way, then what to do."""
    yield "\n### Classification"
    for each in kinds:
        head = f"{each.kernel}: " if len(kinds) > 1 else ""
        family = f" ({each.kind.family})" if each.kind.family != each.kind else ""
        yield f"- {head}Kernel type: {each.kind}{family}"
        yield f"- {head}Strategy: {each.kind.strategy}"
        yield from (f"  {line}" for line in each.indicators)
    yield from (f"- {f.severity}: {f.kernel}, line {f.line}: {f.text}" for f in findings)
    yield from (f"- {line}" for line in advice)


def transformations(prepared: PreparedConfigs, file: str | None) -> Iterator[str]:
    """What was written, and where."""
    yield "\n### Transformations applied"
    yield from (f"- {change}" for change in prepared.changes)
    yield from (f"- none for {name}: {reason}" for name, reason in prepared.refusals.items())
    if file is not None:
        yield f"\n### Output\nFile: {file}"


def outcome(step: Step) -> Iterator[str]:
    """A run of the kernel beside its reference."""
    yield f"\n### {HEADINGS[step.phase]}"
    gap = "" if step.max_abs_diff is None else f" — Max difference: {step.max_abs_diff:.1e}"
    yield f"{step.status.upper()}{gap}: {step.reason}"
    yield from (f"- {line}" for line in step.details)


def comparison(timed: Timed) -> Iterator[str]:
    """The table of PTX against Tile IR."""
    yield "\n### Benchmark comparison"
    if timed.rows:
        yield "| Case | Backend | Time (ms) | Speedup |"
        yield "|---|---|---|---|"
        for row in timed.rows:
            yield f"| {row.case} | PTX (ENABLE_TILE=0) | {row.ptx_ms:.6f} | 1.0x |"
            if row.tileir_ms is not None:
                yield (
                    f"| {row.case} | Tile IR (ENABLE_TILE=1) | {row.tileir_ms:.6f} | "
                    f"{_speedup(row)} |"
                )
        yield f"Timed by {timed.rows[0].method}."
    yield f"{timed.step.status.upper()}: {timed.step.reason}"


def _speedup(row: SizeTiming) -> str:
    bounds = f" ({row.low:.2f} to {row.high:.2f})" if row.low is not None else ""
    return f"{row.speedup:.2f}x{bounds}"


def ending(abort: Abort | None) -> Iterator[str]:
    """Why to stop, if there is a reason."""
    if abort is not None:
        yield f"\nStop: {abort.reason}: {abort.detail}"
