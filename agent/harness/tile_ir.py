"""Runs the Tile IR workflow's steps in the user's interpreter: probe, verify, benchmark.

Which backend compiles is decided when Triton is imported, by ENABLE_TILE; so PTX and Tile IR are
always two processes. What a kernel did is judged in a third. See `tile_agent_pytest.tile_ir`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tile_agent_pytest
from agent.environment import Gpu
from agent.errors import UsageError
from agent.harness.compiling.cutile import import_roots, module_name
from agent.harness.measuring.gpu import exclusive
from agent.harness.processes.script import ScriptEnd, run_script
from agent.measuring.statistics import Blocks, Comparison, Pair, compare, geometric_mean
from agent.tileir.call import Case, KernelCall
from agent.tileir.machine import Machine, of_probe
from agent.tileir.steps import SizeTiming, Step, StepStatus, TileIrPhase, Timed
from agent.workspace import state_dir

PROBE_S = 120.0
REP_MS = 100.0
"""How long the samples of one size take in one process."""
PAIRS = 4
ALPHA = 0.025


@dataclass(frozen=True)
class Job:
    """What is run, and how."""

    file: Path
    call: KernelCall
    python: str
    machine: Machine
    timeout_s: float
    """For one process."""
    stop: str | None = None
    """Why Tile IR must not run this kernel, whatever the machine."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """For Tile IR only: TILEIR_ENABLE_APPROX and TILEIR_ENABLE_FTZ."""


@dataclass(frozen=True)
class Reference:
    """What is right: an expression over the arguments' names, or a function of a file."""

    expression: str | None = None
    file: Path | None = None
    function: str | None = None
    rtol: float | None = None
    atol: float | None = None


def read_machine(gpu: Gpu | None, python: str, *, ask_stock: bool = True) -> Machine:
    """Probe an interpreter; a second time with ENABLE_TILE=1 where the backend is installed.

    Args:
        gpu: the one a run would use.
        python: the interpreter.
        ask_stock: import Triton also where it has no Tile IR backend, to say what is active.

    Raises:
        UsageError: the interpreter cannot be run.
    """
    now = _probe(python, "installed", {})
    has_backend = bool(now["installed"].get("backend"))
    if has_backend or (ask_stock and now["installed"].get("triton")):
        now = _probe(python, "probe", {})
    with_tile = None
    if has_backend and os.environ.get("ENABLE_TILE") != "1":
        with_tile = _probe(python, "probe", {"ENABLE_TILE": "1"})
    return of_probe(gpu, os.environ, now, with_tile)


def verify(job: Job, reference: Reference, *, tile: bool) -> Step:
    """Run the kernel under PTX, or under Tile IR, and compare with the reference."""
    phase = TileIrPhase.VALIDATE if tile else TileIrPhase.COMPATIBILITY
    if (why := _cannot(job, tile=tile)) is not None:
        return Step(phase, StepStatus.NOT_RUN, why)
    with tempfile.TemporaryDirectory(prefix="tile-agent-tile-ir-") as scratch:
        ran = _run(job, Path(scratch), tile=tile)
        if isinstance(ran, str):
            return Step(phase, StepStatus.FAILED, ran)
        if failed := [f"{label}: {f['error']}" for label, f in ran.labelled(job) if f["error"]]:
            return Step(phase, StepStatus.FAILED, "the kernel fails", details=tuple(failed))
        if idle := [label for label, f in ran.labelled(job) if not f["launches"]]:
            names = ", ".join(job.call.kernels)
            reason = f"{job.call.function} launches none of {names} for {idle[0]}"
            return Step(phase, StepStatus.FAILED, reason)
        return _judge(job, ran, reference, Path(scratch), phase)


def benchmark(job: Job, pairs: int = PAIRS) -> Timed:
    """Time PTX against Tile IR in process pairs, now one first and now the other."""
    if job.machine.gpu is None:
        reason = "there is no GPU: the interpreter's time says nothing about one"
        return Timed(Step(TileIrPhase.BENCHMARK, StepStatus.NOT_RUN, reason))
    no_tile_ir = _cannot(job, tile=True)
    both = no_tile_ir is None
    if (why := _cannot(job, tile=False)) is not None:
        return Timed(Step(TileIrPhase.BENCHMARK, StepStatus.NOT_RUN, why))
    blocks: list[dict[bool, list[Mapping[str, Any]]]] = []
    method: str | None = None
    scratched = tempfile.TemporaryDirectory(prefix="tile-agent-tile-ir-")
    with scratched as scratch, exclusive(job.machine.gpu, state_dir() / "gpus"):
        for number in range(pairs if both else 1):
            taken: dict[bool, list[Mapping[str, Any]]] = {}
            for tile in _order(number) if both else (False,):
                ran = _run(job, Path(scratch), tile=tile, rep_ms=REP_MS, method=method)
                failed = ran if isinstance(ran, str) else ran.failure(job)
                if isinstance(ran, str) or failed is not None:
                    step = Step(
                        TileIrPhase.BENCHMARK, StepStatus.FAILED, f"ENABLE_TILE={tile:d}: {failed}"
                    )
                    return Timed(step)
                taken[tile] = [facts["timing"] for facts in ran.facts]
                method = method or taken[tile][0]["sampler"]
            blocks.append(taken)
    if not both:
        alone = tuple(
            SizeTiming(case.label, case.size, timing["median_ms"], method=timing["method"])
            for case, timing in zip(job.call.cases, blocks[0][False], strict=True)
        )
        reason = f"PTX alone was timed: {no_tile_ir}"
        mean_ms = geometric_mean([row.ptx_ms for row in alone])
        return Timed(Step(TileIrPhase.BENCHMARK, StepStatus.NOT_RUN, reason), alone, mean_ms)
    return _compared(job, blocks)


def _order(number: int) -> tuple[bool, bool]:
    """Which of the two goes first in a pair."""
    return (False, True) if number % 2 == 0 else (True, False)


def _compared(job: Job, blocks: Sequence[Mapping[bool, list[Mapping[str, Any]]]]) -> Timed:
    cases = job.call.cases
    pairs: list[Pair] = [
        {
            str(n): Blocks((pair[False][n]["median_ms"],), (pair[True][n]["median_ms"],))
            for n in range(len(cases))
        }
        for pair in blocks
    ]
    found = compare(pairs, alpha=ALPHA)
    rows = tuple(
        _row(case, found, n, blocks[0][False][n]["method"]) for n, case in enumerate(cases)
    )
    speedup = found.incumbent_ms / found.candidate_ms
    reason = (
        f"Tile IR takes {found.candidate_ms:.6f} ms against {found.incumbent_ms:.6f} of PTX, "
        f"{speedup:.2f}x, over {found.pairs} process pairs"
    )
    status = StepStatus.PASSED if found.overall.low > 0 else StepStatus.FAILED
    step = Step(TileIrPhase.BENCHMARK, status, reason)
    return Timed(step, rows, found.incumbent_ms, found.candidate_ms)


def _row(case: Case, found: Comparison, number: int, method: str) -> SizeTiming:
    config = found.configs[number]
    return SizeTiming(
        case.label,
        case.size,
        config.incumbent_ms,
        config.candidate_ms,
        speedup=1 / (1 - config.effect.improvement),
        low=1 / (1 - config.effect.low),
        high=1 / (1 - config.effect.high),
        method=method,
    )


@dataclass(frozen=True)
class _Ran:
    """What a kernel's process answered."""

    facts: tuple[Mapping[str, Any], ...]
    """One for each case; in the interpreter one for each case and config of a kernel that tunes."""

    def labelled(self, job: Job) -> list[tuple[str, Mapping[str, Any]]]:
        """With what tells a run from others."""
        return [
            (f"{job.call.cases[f['number']].label}{f' with {c}' if (c := f['config']) else ''}", f)
            for f in self.facts
        ]

    def failure(self, job: Job) -> str | None:
        """The first run that raised."""
        failed = (f"{label}: {f['error']}" for label, f in self.labelled(job) if f["error"])
        return next(failed, None)


def _cannot(job: Job, *, tile: bool) -> str | None:
    """Why this machine cannot run the kernel that way."""
    if tile:
        return job.stop or job.machine.no_tile_ir
    if job.machine.no_triton:
        return job.machine.no_triton
    if _interpreted(job) and "bfloat16" in job.call.dtypes:
        return (
            "there is no GPU, and Triton's interpreter computes bfloat16 wrongly: "
            "name float32 or float16 in --dtypes"
        )
    return None


def _interpreted(job: Job) -> bool:
    return job.machine.gpu is None


def _interpreter(job: Job) -> dict[str, str]:
    """Whatever the user's environment says: what ran is told in the step."""
    return {"TRITON_INTERPRET": "1" if _interpreted(job) else "0"}


def _run(
    job: Job,
    scratch: Path,
    *,
    tile: bool,
    rep_ms: float = 0.0,
    method: str | None = None,
) -> _Ran | str:
    """Run every case in one process; a string says why that did not come to its end."""
    variables = {"ENABLE_TILE": "1" if tile else "0", **_interpreter(job)}
    if tile:
        # A silent fall back to PTX would be taken for Tile IR.
        variables |= {"TRITON_TILEIR_RUNTIME_FALLBACK": "0", **job.variables}
    roots = import_roots(job.file.resolve())
    ended = _script(
        job,
        {
            "program": "kernel",
            **_place(job.file, roots),
            "function": job.call.function,
            "kernels": list(job.call.kernels),
            "arguments": [dict(a) for a in job.call.arguments],
            "cases": _cases(job.call),
            "out": str(scratch),
            "rep_ms": rep_ms,
            "method": method,
        },
        variables,
        scratch,
    )
    facts: list[Mapping[str, Any]] = []
    for answer in ended.answers:
        if answer["event"] == "import-failed":
            return f"{job.file.name} cannot be imported: {answer['text']}"
        if answer["event"] == "ready" and tile:
            target = answer["target"]
            if target is None or target["backend"] != "tileir":
                said = answer["target_error"] or f"the target is {target['backend']}"
                return f"ENABLE_TILE=1 did not make Tile IR compile: {said}"
        if answer["event"] == "case":
            facts.append(answer)
        if answer["event"] == "ended":
            return _Ran(tuple(facts))
    return ended.fate


def _judge(job: Job, ran: _Ran, reference: Reference, scratch: Path, phase: TileIrPhase) -> Step:
    if reference.file is not None:
        roots = import_roots(reference.file.resolve())
        named = {**_place(reference.file, roots), "function": reference.function}
    else:
        named = {"expression": reference.expression}
    ended = _script(
        job,
        {
            "program": "judge",
            "reference": named,
            "arguments": [dict(a) for a in job.call.arguments],
            "cases": _cases(job.call),
            "facts": [
                {k: f[k] for k in ("number", "file", "changed", "aliases", "broken")}
                for f in ran.facts
            ],
            "out": str(scratch),
            "rtol": reference.rtol,
            "atol": reference.atol,
        },
        _interpreter(job),
        scratch,
    )
    judged: dict[int, Mapping[str, Any]] = {}
    for answer in ended.answers:
        if answer["event"] in ("import-failed", "reference-failed"):
            raise UsageError(f"--reference fails ({answer['text']}): mend it")
        judged[answer["run"]] = answer
    if len(judged) < len(ran.facts):
        raise UsageError(f"--reference did not come to its end: {ended.fate}")
    details = [
        f"{label}: {problem}"
        for run, (label, _) in enumerate(ran.labelled(job))
        for problem in judged[run]["problems"]
    ]
    how = "in Triton's interpreter, on the CPU" if _interpreted(job) else "on the GPU"
    cases = len(job.call.cases)
    count = f"{cases} case{'s' if cases != 1 else ''}"
    if len(judged) > cases:
        count = f"{len(judged)} runs, of {count} with each config,"
    return Step(
        phase,
        StepStatus.FAILED if details else StepStatus.PASSED,
        f"{count} {how}",
        max_abs_diff=_largest(judged.values(), "max_abs_diff"),
        max_rel_diff=_largest(judged.values(), "max_rel_diff"),
        details=tuple(details),
    )


def _largest(judged: Any, name: str) -> float | None:
    return max((j[name] for j in judged if j[name] is not None), default=None)


def _cases(call: KernelCall) -> list[dict[str, Any]]:
    return [
        {"shapes": {name: list(shape) for name, shape in case.shapes.items()}, "seed": number}
        for number, case in enumerate(call.cases)
    ]


def _place(file: Path, roots: tuple[Path, ...]) -> dict[str, Any]:
    return {
        "file": str(file.resolve()),
        "module": module_name(file.resolve(), roots),
        "sys_path": [str(root) for root in roots],
    }


def _script(
    job: Job, message: Mapping[str, Any], variables: Mapping[str, str], scratch: Path
) -> ScriptEnd:
    (scratch / "answers").unlink(missing_ok=True)
    return run_script(
        _command(job.python),
        message,
        cwd=import_roots(job.file.resolve())[-1],
        variables=variables,
        scratch=scratch,
        timeout_s=job.timeout_s,
    )


def _command(python: str) -> list[str]:
    return [python, str(Path(tile_agent_pytest.__file__).parent), "tile-ir"]


def _probe(python: str, program: str, variables: Mapping[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tile-agent-tile-ir-") as scratch:
        folder = Path(scratch)
        ended = run_script(
            _command(python),
            {"program": program},
            cwd=Path.cwd(),
            variables=variables,
            scratch=folder,
            timeout_s=PROBE_S,
        )
    facts: dict[str, Any] = {
        "installed": {},
        "triton_version": None,
        "triton_error": None,
        "target": None,
        "target_error": None,
    }
    for answer in ended.answers:
        facts |= {"installed": answer} if answer["event"] == "installed" else answer
    if program == "probe" and "event" not in facts:
        facts["triton_error"] = f"importing it ends the process: {ended.fate}"
    return facts
