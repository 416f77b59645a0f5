"""The report of the Tile IR workflow, in the sections that TensorRT-LLM's skill asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent.analysis.triton.kinds import KernelKind
from agent.tileir.compatibility import Obstacle
from agent.tileir.machine import TOOLS, Machine
from agent.tileir.steps import Abort, SizeTiming, Step, TileIrPhase, Timed

SHORT_MS = 0.01
HEADINGS = {
    TileIrPhase.COMPATIBILITY: "Compatibility Check (ENABLE_TILE=0)",
    TileIrPhase.VALIDATE: "TileIR Validation (ENABLE_TILE=1)",
}


def machine_lines(machine: Machine) -> Iterator[str]:
    """What `check` says."""
    version = machine.installed.get("version") or "of unknown version"
    yield f"triton     {version if machine.installed.get('triton') else 'not installed'}"
    yield f"tile ir    {machine.nvtriton}: {machine.no_tile_ir or 'ready'}"
    if machine.gpu is not None:
        yield f"gpu        {machine.gpu.name}, sm_{machine.gpu.sm}"
    yield f"tileiras   {machine.installed.get('compiler') or 'none where the backend looks'}"
    if machine.installed.get("compiler"):
        for name in TOOLS:
            yield f"{name:<10} {machine.installed.get(name) or 'none seen beside tileiras'}"
    yield from (f"note       {problem}" for problem in machine.problems)
    yield from (f"{step.phase:<14} {step.status}: {step.reason}" for step in machine.steps())
    yield machine.recommendation


def title(kinds: tuple[KernelKind, ...]) -> str:
    """The heading of a report: the kernel with the most work."""
    return f"## TileIR Optimization: {kinds[0].kernel}"


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


def transformations(
    changes: Iterable[str],
    refusals: Mapping[str, str],
    undescribed: Mapping[str, str],
    file: str | None,
) -> Iterator[str]:
    """What was changed, what was not and why, and where it was written."""
    yield "\n### Transformations Applied"
    yield from (f"- {change}" for change in changes)
    yield from (f"- no configs for {name}: {reason}" for name, reason in refusals.items())
    yield from (f"- no descriptors for {name}: {why}" for name, why in undescribed.items())
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
    yield "\n### Benchmark Comparison"
    if timed.rows:
        yield "| Case | Backend | Time (ms) | Speedup |"
        yield "|---|---|---|---|"
        for row in timed.rows:
            yield f"| {row.case} | PTX (ENABLE_TILE=0) | {_ms(row.ptx_ms)} | 1.0x |"
            if row.tileir_ms is not None:
                took = _ms(row.tileir_ms)
                yield f"| {row.case} | TileIR (ENABLE_TILE=1) | {took} | {_speedup(row)} |"
        yield f"Timed by {timed.rows[0].method}."
    yield f"{timed.step.status.upper()}: {timed.step.reason}"


def _ms(latency_ms: float) -> str:
    """Three decimals, as the skill has them; more where these would say less than two digits."""
    return f"{latency_ms:.3f}" if latency_ms >= SHORT_MS else f"{latency_ms:.2g}"


def _speedup(row: SizeTiming) -> str:
    bounds = f" ({row.low:.2f} to {row.high:.2f})" if row.low is not None else ""
    return f"{row.speedup:.1f}x{bounds}"


def ending(abort: Abort | None) -> Iterator[str]:
    """Why to stop, if there is a reason."""
    if abort is not None:
        yield f"\nStop: {abort.reason}: {abort.detail}"
