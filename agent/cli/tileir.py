"""`tileir`: a Triton kernel on Triton's Tile IR backend, step by step."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from agent.cli.shared_options import Json, Kernel, PassEnv, Python, Sandboxed, confined
from agent.cli.tileir_answers import (
    Code,
    KernelOrNone,
    classification,
    classified,
    correctness,
    finish,
    read_kernel,
)
from agent.cli.tileir_apply import apply
from agent.options import Sandbox

if TYPE_CHECKING:
    from agent.analysis.triton.kinds import KernelKind
    from agent.harness.kernel_calls import KernelCalls
    from agent.tileir.compatibility import Obstacle
    from agent.tileir.steps import Step

app = typer.Typer(
    name="tileir",
    help="Prepare, verify and time a Triton kernel for Triton's Tile IR backend. "
    "What this machine cannot do is said, step by step.",
    no_args_is_help=True,
)

Shapes = Annotated[str, SHAPES]
RightResult = Annotated[str, REFERENCE]
Approx = Annotated[bool, typer.Option("--approx", help="Set TILEIR_ENABLE_APPROX=1 for Tile IR.")]
Ftz = Annotated[bool, typer.Option("--ftz", help="Set TILEIR_ENABLE_FTZ=1 for Tile IR.")]
Seconds = Annotated[float, typer.Option(min=1, help="Give each step so many seconds.")]


app.command()(apply)


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
    finish("check", None, machine.to_json(), list(machine_lines(machine)), abort)


@app.command()
def classify(kernel: KernelOrNone = None, code: Code = None, as_json: Json = False) -> None:
    """Say what kind of kernel it is, what stands between it and Tile IR, and what to do."""
    output.use_json(as_json)
    from agent.tileir import report
    from agent.tileir.advice import recommend

    source, kinds, findings = read_kernel(kernel, code)
    advice = recommend(source, kinds, findings)
    lines = [report.title(kinds), *report.classification(kinds, findings, advice)]
    value = classification(kinds, findings) | {"recommendations": list(advice)}
    finish("classify", kernel, value | {"steps": [classified(kinds).to_json()]}, lines, None)


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
    pass_env: PassEnv = None,
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
        ProcessLimits(
            python,
            timeout_s,
            confined(sandbox, pass_env),
            variables=_variables(approx=approx, ftz=ftz),
        ),
        ragged=True,
    )
    with closing(opened) as calls:
        steps = _verified(calls)
    abort = abort_of(calls.job.machine.no_triton, steps)
    lines = [report.title(kinds), *(line for s in steps for line in report.outcome(s))]
    finish("verify", kernel, correctness(steps), [*lines, *report.ending(abort)], abort)


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
    pass_env: PassEnv = None,
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
        ProcessLimits(
            python,
            timeout_s,
            confined(sandbox, pass_env),
            variables=_variables(approx=approx, ftz=ftz),
        ),
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
    source, _, _ = read_kernel(kernel)
    advice = recommend(source, kinds, findings)
    lines = [
        report.title(kinds),
        *report.classification(kinds, findings, advice),
        *(line for s in steps[:2] for line in report.outcome(s)),
        *report.comparison(timed),
        f"\n### Output\nFile: {kernel}",
        *report.ending(abort),
    ]
    value = classification(kinds, findings) | correctness(steps)
    value |= {
        "recommendations": list(advice),
        "kernel_time_ms": timed.tileir_ms,
        "reference_time_ms": timed.ptx_ms,
        "speedup": timed.speedup,
        "rows": [asdict(row) for row in timed.rows],
        "steps": [classified(kinds).to_json(), *(s.to_json() for s in steps)],
    }
    finish("bench", kernel, value, lines, abort)


def _calls(
    kernel: Path, asked: Asked, limits: ProcessLimits, *, ragged: bool
) -> tuple[KernelCalls, tuple[KernelKind, ...], tuple[Obstacle, ...]]:
    from dataclasses import replace

    from agent.cli import reference
    from agent.tileir.compatibility import stops

    source, kinds, findings = read_kernel(kernel)
    if stopping := stops(findings):
        limits = replace(limits, stop=f"line {stopping[0].line}: {stopping[0].text}")
    return reference.read(source, kernel, asked, limits, ragged=ragged), kinds, findings


def _variables(*, approx: bool, ftz: bool) -> dict[str, str]:
    wanted = {"TILEIR_ENABLE_APPROX": approx, "TILEIR_ENABLE_FTZ": ftz}
    return {name: "1" for name, on in wanted.items() if on}


def _verified(calls: KernelCalls) -> list[Step]:
    """The kernel under PTX; under Tile IR too unless it was wrong already."""
    from dataclasses import replace

    from agent.tileir.hints import COMPILER_FAULT, is_compilers_fault
    from agent.tileir.steps import Step, StepStatus, TileIrPhase

    first = calls.verify(tile=False)
    if first.status is StepStatus.FAILED:
        reason = "the kernel is wrong, or fails, with ENABLE_TILE=0 already"
        return [first, Step(TileIrPhase.VALIDATE, StepStatus.NOT_RUN, reason)]
    second = calls.verify(tile=True)
    told = second.details or (second.reason,)
    if second.status is StepStatus.FAILED and any(map(is_compilers_fault, told)):
        second = replace(second, details=(*told, COMPILER_FAULT))
    return [first, second]
