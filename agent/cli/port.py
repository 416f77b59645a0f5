"""`port`: writes the cuTile version of a Triton kernel's file."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import output
from agent.cli.shared_options import Json, Kernel, Python

if TYPE_CHECKING:
    from agent.port_answers import Checked
    from agent.porting import Port

DIFFERS = 3
"""Exit code when the port does not agree with its origin, or cannot be run: an answer, no fault."""
Target = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="The new file; beside the kernel's, with `_cutile`, by default."
    ),
]
CallingTests = Annotated[
    list[Path] | None,
    typer.Option(help="Test files whose calls are compared; may be given several times."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(port)


def port(
    kernel: Kernel,
    output_file: Target = None,
    tests: CallingTests = None,
    check: bool = typer.Option(
        True, "--check/--no-check", help="Compare it with the origin on the calls of its tests."
    ),
    timeout_s: float = typer.Option(600.0, min=1, help="Give the tests so many seconds."),
    python: Python = sys.executable,
    as_json: Json = False,
) -> None:
    """Write the cuTile version of a Triton kernel's file, and compare both without a GPU.

    What has no translation that is known to mean the same is refused by name and line, and nothing
    is written.

    Exit code 3: the port does not agree with its origin; nothing is written.
    """
    output.use_json(as_json)
    from agent.cli.still import waiting_for
    from agent.errors import UsageError
    from agent.ported import check as compare
    from agent.ported import project_of, translated, write_new
    from agent.preflight import read_file
    from agent.target import parse

    text = read_file(kernel)
    _, backend = parse(text, str(kernel))
    if backend.name != "triton":
        raise UsageError(
            f"{kernel} holds {backend.name}'s kernels: port writes cuTile's version of Triton's"
        )
    file = output_file or kernel.with_name(f"{kernel.stem}_cutile.py")
    if file.exists():
        raise UsageError(f"{file} exists: name another with --output, or remove it")
    for named in tests or ():
        if not Path(str(named).partition("::")[0]).exists():
            raise UsageError(f"{named}: no such file; name the tests of {kernel}")
    with waiting_for("translating"):
        made = translated(kernel, text)
    checked = None
    if check:
        project = project_of(kernel)
        if tests:
            project = replace(project, tests=tuple(path.absolute() for path in tests))
        if project.tests:
            names = ", ".join(os.path.relpath(test) for test in project.tests)
            output.progress(f"comparing both on the calls of {names}")
        with waiting_for(f"running the tests, {timeout_s:.0f} s at most each time"):
            checked = compare(
                made, kernel, project, made.functions,
                python=python, timeout_s=timeout_s, name=str(file),
            )  # fmt: skip
    written = checked is None or not checked.problems
    if written:
        write_new(file, made.text)
    output.result(
        {
            "kernel": str(kernel),
            "output": str(file) if written else None,
            "kernels": list(made.kernels),
            "helpers": list(made.helpers),
            "notes": [{"note": note, "lines": list(at)} for note, at in made.notes.items()],
            "check": checked.to_json() if checked is not None else None,
        },
        "\n".join(_lines(kernel, file, made, checked, written=written)),
    )
    raise typer.Exit(0 if written else DIFFERS)


def _lines(
    kernel: Path, file: Path, made: Port, checked: Checked | None, *, written: bool
) -> list[str]:
    """What a person is told."""
    if not written:
        assert checked is not None
        return [
            f"{kernel}: {checked.fault}, nothing was written",
            *(f"  {problem}" for problem in checked.problems),
            f"look at it with: tile-agent port --kernel {shlex.quote(str(kernel))} --no-check",
        ]
    plural = "s" if len(made.kernels) > 1 else ""
    lines = [f"{file}: kernel{plural} {', '.join(made.kernels)}"]
    lines += [
        f"note: {note} (line{'s' if len(at) > 1 else ''} {', '.join(map(str, at))})"
        for note, at in made.notes.items()
    ]
    lines += _verdict(kernel, checked)
    named = shlex.quote(str(file))
    if any((folder / ".git").exists() for folder in file.resolve().parents):
        do = f"commit it with tests, and `tile-agent run --kernel {named}` goes on from there"
    else:
        do = (
            "put it into a git repository with tests, and commit both: `tile-agent run --kernel` "
            "goes on from there"
        )
    return [*lines, f"next: {do}"]


def _verdict(kernel: Path, checked: Checked | None) -> list[str]:
    """What the check said."""
    if checked is None or checked.unchecked:
        why = "--no-check" if checked is None else checked.unchecked
        again = f"tile-agent port --kernel {shlex.quote(str(kernel))}"
        way = f"{again} --tests TESTS --output OTHER"
        if checked is not None and checked.remedy:
            way = f"{checked.remedy}; then {again} --output OTHER"
        return [f"unchecked: {why}", f"  to check it: {way}"]
    if checked.replaced:
        tests, do = _count(checked.tests, "test"), "passes" if checked.tests == 1 else "pass"
        said = f"checked: {tests} of the origin {do} on the port, on the CPU"
    else:
        said = (
            f"checked: {_count(checked.calls, 'call')} of {_count(checked.tests, 'test')} "
            f"agree{'s' * (checked.calls == 1)} with the origin in Triton's interpreter, within "
            "the tolerances of their types"
        )
    for_gpus = ", ".join(checked.compiled)
    compiled = [f"compiled for {for_gpus}"] if for_gpus else []
    return [said, *compiled, *(f"note: {note}" for note in checked.notes)]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
