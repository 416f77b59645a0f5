"""`tileir`: a Triton kernel on Triton's Tile IR backend, step by step."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import output
from agent.cli.reference import (
    REFERENCE,
    SHAPES,
    Asked,
    Atol,
    Dtypes,
    Function,
    ProcessLimits,
    Rtol,
    Sizes,
)
from agent.cli.shared_options import Json, Kernel, Python, Sandboxed
from agent.options import Sandbox

if TYPE_CHECKING:
    from agent.analysis.triton.kinds import KernelKind
    from agent.harness.kernel_calls import KernelCalls
    from agent.syntax import Source
    from agent.tileir.compatibility import Obstacle
    from agent.tileir.steps import Abort, Step

FAILED = 3
"""Exit code when a step failed: an answer, not a fault."""

app = typer.Typer(
    name="tileir",
    help="Prepare, verify and time a Triton kernel for Triton's Tile IR backend. "
    "What this machine cannot do is said, step by step.",
    no_args_is_help=True,
)

Shapes = Annotated[str, SHAPES]
RightResult = Annotated[str, REFERENCE]
Output = Annotated[
    Path | None,
    typer.Option("--output", help="A new file to write, such as softmax_tileir.py; else the diff."),
]
Approx = Annotated[bool, typer.Option("--approx", help="Set TILEIR_ENABLE_APPROX=1 for Tile IR.")]
Ftz = Annotated[bool, typer.Option("--ftz", help="Set TILEIR_ENABLE_FTZ=1 for Tile IR.")]
Seconds = Annotated[float, typer.Option(min=1, help="Give each step so many seconds.")]


def register(parent: typer.Typer) -> None:
    """Add the commands, as a group."""
    parent.add_typer(app, name="tileir")


@app.command()
def check(python: Python = sys.executable, as_json: Json = False) -> None:
    """Say which steps this machine can take: Triton, its Tile IR backend, GPU, toolchain."""
    output.use_json(as_json)
    from agent.environment import probe
    from agent.harness.tile_ir import read_machine
    from agent.tileir.report import machine_lines
    from agent.tileir.steps import abort_of

    machine = read_machine(probe().gpu, python)
    abort = abort_of(machine.no_triton, machine.steps())
    _finish("check", None, machine.to_json(), list(machine_lines(machine)), abort)


@app.command()
def classify(kernel: Kernel, as_json: Json = False) -> None:
    """Say what kind of kernel it is, what stands between it and Tile IR, and what to do."""
    output.use_json(as_json)
    from agent.tileir import report
    from agent.tileir.advice import recommend

    source, kinds, findings = _read(kernel)
    advice = recommend(source, kinds, findings)
    lines = [report.title(kinds), *report.classification(kinds, findings, advice)]
    value = _classification(kinds, findings) | {"recommendations": list(advice)}
    _finish("classify", kernel, value | {"steps": [_classified(kinds).to_json()]}, lines, None)


@app.command()
def apply(
    kernel: Kernel,
    to: Output = None,
    python: Python = sys.executable,
    as_json: Json = False,
) -> None:
    """Write configs for Tile IR behind a gate, so that any other backend sees what it saw."""
    output.use_json(as_json)
    from agent.cli.diff import unified
    from agent.environment import probe
    from agent.harness.tile_ir import read_machine
    from agent.target import parse
    from agent.tileir import report
    from agent.tileir.advice import recommend
    from agent.tileir.configs import prepare
    from agent.tileir.steps import Step, StepStatus, TileIrPhase

    source, kinds, findings = _read(kernel)
    prepared = prepare(source, kinds, findings)
    parse(prepared.text, str(kernel))
    changed = bool(prepared.changes)
    if to is not None and changed:
        _write(to, prepared.text, kernel)
    step = Step(
        TileIrPhase.TRANSFORM,
        StepStatus.PASSED if changed else StepStatus.FAILED,
        f"{len(prepared.changes)} of {len(kinds)} kernels have configs for Tile IR now",
    )
    machine = read_machine(probe().gpu, python, ask_stock=False)
    later = [s for s in machine.steps() if s.phase in (TileIrPhase.VALIDATE, TileIrPhase.BENCHMARK)]
    steps = [_classified(kinds), step, *later]
    advice = recommend(source, kinds, findings)
    written = str(to) if to is not None and changed else None
    value = _classification(kinds, findings) | {
        "recommendations": list(advice),
        "optimized_code": prepared.text if changed else None,
        "changes_applied": list(prepared.changes),
        "refusals": dict(prepared.refusals),
        "file": written,
        "steps": [s.to_json() for s in steps],
    }
    told = [
        report.title(kinds),
        *report.classification(kinds, findings, advice),
        *report.transformations(prepared, written),
        *(f"{s.phase}: {s.status}: {s.reason}" for s in later),
    ]
    if written is None:
        for line in told:
            output.progress(line)
        told = [unified(source.text, prepared.text, kernel)]
    _finish("apply", kernel, value, told, None, failed=not changed)


@app.command()
def verify(
    kernel: Kernel,
    reference: RightResult,
    shapes: Shapes,
    dtypes: Dtypes = None,
    function: Function = None,
    sizes: Sizes = None,
    rtol: Rtol = None,
    atol: Atol = None,
    approx: Approx = False,
    ftz: Ftz = False,
    timeout_s: Seconds = 600.0,
    python: Python = sys.executable,
    sandbox: Sandboxed = Sandbox.STRICT,
    as_json: Json = False,
) -> None:
    """Compare a kernel with a reference, under PTX and, where it is there, under Tile IR.

    A letter in a shape takes each size and each size less one.
    """
    output.use_json(as_json)
    from agent.tileir import report
    from agent.tileir.steps import abort_of

    opened, kinds, _ = _calls(
        kernel,
        Asked(reference, shapes, dtypes, function, sizes, rtol, atol),
        ProcessLimits(python, timeout_s, sandbox, variables=_variables(approx=approx, ftz=ftz)),
        ragged=True,
    )
    with closing(opened) as calls:
        steps = _verified(calls)
    abort = abort_of(calls.job.machine.no_triton, steps)
    lines = [report.title(kinds), *(line for s in steps for line in report.outcome(s))]
    _finish("verify", kernel, _correctness(steps), [*lines, *report.ending(abort)], abort)


@app.command()
def bench(
    kernel: Kernel,
    reference: RightResult,
    shapes: Shapes,
    dtypes: Dtypes = None,
    function: Function = None,
    sizes: Sizes = None,
    rtol: Rtol = None,
    atol: Atol = None,
    approx: Approx = False,
    ftz: Ftz = False,
    timeout_s: Seconds = 600.0,
    python: Python = sys.executable,
    sandbox: Sandboxed = Sandbox.STRICT,
    as_json: Json = False,
) -> None:
    """Take every step on a kernel as it is: classify, verify, and time PTX against Tile IR."""
    output.use_json(as_json)
    from dataclasses import asdict

    from agent.tileir import report
    from agent.tileir.advice import recommend
    from agent.tileir.steps import Step, StepStatus, TileIrPhase, Timed, abort_of

    opened, kinds, findings = _calls(
        kernel,
        Asked(reference, shapes, dtypes, function, sizes, rtol, atol),
        ProcessLimits(python, timeout_s, sandbox, variables=_variables(approx=approx, ftz=ftz)),
        ragged=False,
    )
    with closing(opened) as calls:
        steps = _verified(calls)
        abort = abort_of(calls.job.machine.no_triton, steps)
        if abort is None:
            timed = calls.benchmark(output.progress)
        else:
            timed = Timed(
                Step(TileIrPhase.BENCHMARK, StepStatus.NOT_RUN, f"{abort.reason}: {abort.detail}")
            )
    steps = [*steps, timed.step]
    abort = abort_of(calls.job.machine.no_triton, steps)
    source, _, _ = _read(kernel)
    advice = recommend(source, kinds, findings)
    lines = [
        report.title(kinds),
        *report.classification(kinds, findings, advice),
        *(line for s in steps[:2] for line in report.outcome(s)),
        *report.comparison(timed),
        f"\n### Output\nFile: {kernel}",
        *report.ending(abort),
    ]
    value = _classification(kinds, findings) | _correctness(steps)
    value |= {
        "recommendations": list(advice),
        "kernel_time_ms": timed.tileir_ms,
        "reference_time_ms": timed.ptx_ms,
        "speedup": timed.speedup,
        "rows": [asdict(row) for row in timed.rows],
        "steps": [_classified(kinds).to_json(), *(s.to_json() for s in steps)],
    }
    _finish("bench", kernel, value, lines, abort)


def _read(kernel: Path) -> tuple[Source, tuple[KernelKind, ...], tuple[Obstacle, ...]]:
    from agent.analysis.triton.kinds import classify as kinds_of
    from agent.errors import UsageError
    from agent.preflight import read_file
    from agent.target import parse
    from agent.tileir import compatibility

    source, backend = parse(read_file(kernel), str(kernel))
    if backend.name != "triton":
        raise UsageError(
            f"{kernel} holds {backend.name}'s kernels, which Tile IR compiles anyway: "
            "name a file with @triton.jit"
        )
    return source, kinds_of(source), compatibility.check(source)


def _calls(
    kernel: Path, asked: Asked, limits: ProcessLimits, *, ragged: bool
) -> tuple[KernelCalls, tuple[KernelKind, ...], tuple[Obstacle, ...]]:
    from dataclasses import replace

    from agent.cli import reference
    from agent.tileir.compatibility import stops

    source, kinds, findings = _read(kernel)
    if stopping := stops(findings):
        limits = replace(limits, stop=f"line {stopping[0].line}: {stopping[0].text}")
    return reference.read(source, kernel, asked, limits, ragged=ragged), kinds, findings


def _write(path: Path, text: str, kernel: Path) -> None:
    """A new file; one that holds the same already is left as it is.

    Raises:
        UsageError: something else is there, or it cannot be written; nothing has been changed.
    """
    from agent.errors import UsageError
    from agent.repository import shown

    name = f"--output {shown(path)}"
    content = text.encode()
    try:
        if path.is_dir():
            raise UsageError(f"{name} is a folder: name a new file in it")
        if path.exists() and path.samefile(kernel):
            raise UsageError(
                f"{name} is the kernel's own file: name a new one, or leave --output out for a diff"
            )
        if path.is_file() and path.read_bytes() == content:
            return
        path.open("xb").close()
        try:
            path.write_bytes(content)
        except OSError:
            path.unlink()
            raise
    except FileExistsError:
        raise UsageError(f"{name} exists already: name another file, or remove it first") from None
    except (FileNotFoundError, NotADirectoryError):
        folder = shown(path.parent)
        raise UsageError(f"{name}: there is no folder {folder}: make it, or name another") from None
    except OSError as problem:
        raise UsageError(
            f"{name} cannot be written ({problem.strerror}): name another file"
        ) from None


def _variables(*, approx: bool, ftz: bool) -> dict[str, str]:
    wanted = {"TILEIR_ENABLE_APPROX": approx, "TILEIR_ENABLE_FTZ": ftz}
    return {name: "1" for name, on in wanted.items() if on}


def _verified(calls: KernelCalls) -> list[Step]:
    """The kernel under PTX; under Tile IR too unless it was wrong already."""
    from agent.tileir.steps import Step, StepStatus, TileIrPhase

    first = calls.verify(tile=False)
    if first.status is StepStatus.FAILED:
        reason = "the kernel is wrong, or fails, with ENABLE_TILE=0 already"
        return [first, Step(TileIrPhase.VALIDATE, StepStatus.NOT_RUN, reason)]
    return [first, calls.verify(tile=True)]


def _classified(kinds: tuple[KernelKind, ...]) -> Step:
    from agent.tileir.steps import Step, StepStatus, TileIrPhase

    return Step(TileIrPhase.CLASSIFY, StepStatus.PASSED, f"{kinds[0].kernel}: {kinds[0].kind}")


def _classification(
    kinds: tuple[KernelKind, ...], findings: tuple[Obstacle, ...]
) -> dict[str, Any]:
    """The skill's fields speak of the kernel with the most work."""
    from dataclasses import asdict

    from agent.tileir.compatibility import stops

    first = kinds[0]
    return {
        "classification": first.kind.value,
        "confidence": first.confidence,
        "indicators": list(first.indicators),
        "tileir_compatible": not stops(findings),
        "strategy": first.kind.strategy,
        "kernels": [asdict(each) for each in kinds],
        "findings": [asdict(finding) for finding in findings],
    }


def _correctness(steps: list[Step]) -> dict[str, Any]:
    """The skill's fields, over the steps that ran."""
    from agent.tileir.steps import StepStatus, TileIrPhase

    ran = [
        s
        for s in steps
        if s.phase is not TileIrPhase.BENCHMARK and s.status is not StepStatus.NOT_RUN
    ]

    def largest(values: list[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    return {
        "correct": all(s.status is StepStatus.PASSED for s in ran) if ran else None,
        "max_abs_diff": largest([s.max_abs_diff for s in ran]),
        "max_rel_diff": largest([s.max_rel_diff for s in ran]),
        "details": [line for s in ran for line in (s.details or (s.reason,))],
        "steps": [s.to_json() for s in steps],
    }


def _finish(
    command: str,
    kernel: Path | None,
    value: dict[str, Any],
    lines: list[str],
    abort: Abort | None,
    *,
    failed: bool = False,
) -> None:
    head = {"command": command, "kernel": str(kernel) if kernel else None}
    end = {"abort": abort.to_json() if abort else None}
    output.result(head | value | end, "\n".join(lines))
    if abort is not None or failed:
        raise typer.Exit(FAILED)
