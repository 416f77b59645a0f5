"""What the commands of `tileir` read, and the fields and the end that they share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import completion, output
from agent.options import KERNEL

if TYPE_CHECKING:
    from agent.analysis.triton.kinds import KernelKind
    from agent.syntax import Source
    from agent.tileir.compatibility import Obstacle
    from agent.tileir.steps import Abort, Step

FAILED = 3
"""Exit code when a step failed: an answer, not a fault."""
PASTED = Path("kernel.py")
"""What a kernel is called that is given as text."""
KernelOrNone = Annotated[
    Path | None, typer.Option("--kernel", help=KERNEL.help, autocompletion=completion.kernels)
]
Code = Annotated[
    str | None, typer.Option("--code", help="The kernel's text, in place of a file's name.")
]


def read_kernel(
    kernel: Path | None, code: str | None = None
) -> tuple[Source, tuple[KernelKind, ...], tuple[Obstacle, ...]]:
    """The kernel's file or text, its kinds, and what is in the way.

    Raises:
        UsageError: neither is given, or both; or it holds no Triton kernel.
    """
    from agent.analysis.triton.kinds import classify as kinds_of
    from agent.analysis.triton.wrapped import decorated
    from agent.errors import UsageError
    from agent.preflight import read_file
    from agent.target import parse
    from agent.tileir import compatibility

    if (kernel is None) == (code is None):
        raise UsageError("name the kernel's file by --kernel, or give its text by --code")
    name = str(kernel or PASTED)
    source, backend = parse(read_file(kernel) if kernel is not None else code or "", name)
    if backend.name != "triton":
        raise UsageError(
            f"{name} holds {backend.name}'s kernels, which Tile IR compiles anyway: "
            "name a file with @triton.jit"
        )
    if decorated(source) is not source:
        raise UsageError(
            f"{name} makes kernels by calls of triton.jit: write @triton.jit above them first"
        )
    return source, kinds_of(source), compatibility.check(source)


def classified(kinds: tuple[KernelKind, ...]) -> Step:
    from agent.tileir.steps import Step, StepStatus, TileIrPhase

    return Step(TileIrPhase.CLASSIFY, StepStatus.PASSED, f"{kinds[0].kernel}: {kinds[0].kind}")


def classification(kinds: tuple[KernelKind, ...], findings: tuple[Obstacle, ...]) -> dict[str, Any]:
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


def correctness(steps: list[Step]) -> dict[str, Any]:
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


def finish(
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
