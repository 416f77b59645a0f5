"""`tileir apply`: a kernel as Tile IR wants it, as a diff or in a file of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agent.cli import output
from agent.cli.shared_options import Json, Python
from agent.cli.tileir_answers import (
    PASTED,
    Code,
    KernelOrNone,
    classification,
    classified,
    finish,
    read_kernel,
)

SUFFIX = "_tileir"
"""Of the file that `--write` makes, as TensorRT-LLM's skill names it."""
Output = Annotated[
    Path | None,
    typer.Option("--output", help="A new file to write, such as softmax_tileir.py; else the diff."),
]
Write = Annotated[
    bool, typer.Option("--write", help=f"Write beside the kernel, with {SUFFIX} in the name.")
]
ConfigsOnly = Annotated[
    bool,
    typer.Option(
        "--configs-only",
        help="Leave the kernel's own code as it is: no tensor descriptors, no tl.exp2.",
    ),
]


def apply(
    kernel: KernelOrNone = None,
    code: Code = None,
    to: Output = None,
    write: Write = False,
    configs_only: ConfigsOnly = False,
    python: Python = sys.executable,
    as_json: Json = False,
) -> None:
    """Give a kernel tensor descriptors, powers of two and configs for Tile IR.

    The configs are behind a gate, so that any other backend sees those it saw.
    """
    output.use_json(as_json)
    from agent.cli.tileir_transforms import Moved
    from agent.environment import probe
    from agent.harness.tile_ir import read_machine
    from agent.report.unified import unified
    from agent.target import parse
    from agent.tileir import report
    from agent.tileir.advice import recommend
    from agent.tileir.steps import Step, StepStatus, TileIrPhase

    source, kinds, findings = read_kernel(kernel, code)
    to = _place(kernel, to) if write else to
    moved = Moved(source) if configs_only else Moved.of(source)
    prepared = moved.prepare()
    parse(prepared.text, source.path)
    changes = [*moved.changes, *prepared.changes]
    if to is not None and changes:
        _write(to, prepared.text, kernel)
    step = Step(
        TileIrPhase.TRANSFORM,
        StepStatus.PASSED if changes else StepStatus.FAILED,
        f"{len(prepared.changes)} of {len(kinds)} kernels have configs for Tile IR now",
    )
    machine = read_machine(probe().gpu, python, ask_stock=False)
    later = [s for s in machine.steps() if s.phase in (TileIrPhase.VALIDATE, TileIrPhase.BENCHMARK)]
    steps = [classified(kinds), step, *later]
    advice = recommend(moved.source, kinds, moved.left(findings))
    written = str(to) if to is not None and changes else None
    value = classification(kinds, findings) | {
        "recommendations": list(advice),
        "optimized_code": prepared.text if changes else None,
        "changes_applied": changes,
        "refusals": dict(prepared.refusals),
        "undescribed": moved.undescribed,
        "file": written,
        "steps": [s.to_json() for s in steps],
    }
    told = [
        report.title(kinds),
        *report.classification(kinds, findings, advice),
        *report.transformations(changes, prepared.refusals, moved.undescribed, written),
        *(f"{s.phase}: {s.status}: {s.reason}" for s in later),
    ]
    if written is None:
        for line in told:
            output.progress(line)
        told = [unified(source.text, prepared.text, kernel or PASTED)]
    finish("apply", kernel, value, told, None, failed=not changes)


def _place(kernel: Path | None, to: Path | None) -> Path:
    """Where `--write` writes.

    Raises:
        UsageError: there is no file to name it after, or `--output` names another.
    """
    from agent.errors import UsageError

    if to is not None:
        raise UsageError("--write and --output both name a file to write: give one of them")
    if kernel is None:
        raise UsageError("--write names the file after --kernel's: with --code, give --output")
    return kernel.with_name(f"{kernel.stem}{SUFFIX}{kernel.suffix}")


def _write(path: Path, text: str, kernel: Path | None) -> None:
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
        if kernel is not None and path.exists() and path.samefile(kernel):
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
