"""`capture`: tests for a kernel from the calls that a command makes of it."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import output
from agent.cli.shared_options import Json, Kernel

if TYPE_CHECKING:
    from agent.capture.calls import Capture

COMMAND_FAILED = 3
NO_LAUNCH = 4


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(capture)


def capture(
    kernel: Kernel,
    command: Annotated[
        list[str], typer.Argument(help="What to run, after --: pytest, a script, a training step.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="The test file; test_<kernel>_captured.py in tests/, or beside the kernel, "
            "when left out.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    as_json: Json = False,
) -> None:
    """Run a command, and write tests for the calls of the kernel's file that it makes.

    Correctness tests compare with the origin, which is frozen beside them; perf tests time the
    shapes that took the most time. Nothing is written unless the command succeeds.

    Exit code 3: the command failed. 4: it made no call that launches a kernel of the file.
    """
    output.use_json(as_json)
    from datetime import date

    from agent.capture.calls import collected
    from agent.capture.cases import entries, unwritable
    from agent.capture.test_file import CapturedSource, write_tests
    from agent.errors import UsageError
    from agent.harness.processes.captured_command import run_captured
    from agent.preflight import read_file
    from agent.target import parse

    text = read_file(kernel)
    _, backend = parse(text, str(kernel))
    stem = kernel.parent.name if kernel.name == "__init__.py" else kernel.stem
    test = out or _folder(kernel) / f"test_{stem}_captured.py"
    if not (test.name.startswith("test_") and test.suffix == ".py"):
        raise UsageError(f"--output {test}: pytest finds test_*.py only: name it so")
    if not test.parent.is_dir():
        raise UsageError(f"--output {test}: {test.parent} is no folder: make it first")
    origin, values = test.with_name(f"{stem}_origin.py"), test.with_suffix(".safetensors")
    for path in () if force else (test, origin, values):
        if path.exists():
            raise UsageError(f"{path} exists: name another file by --output, or give --force")

    shown = shlex.join(command)
    end = run_captured(command, kernel, sys.stderr)
    if end.code:
        raise typer.Exit(
            output.failed(
                f"the command failed ({_how(end.code)}), nothing was written: mend it, "
                f"or leave out what fails: {shown}",
                COMMAND_FAILED,
            )
        )
    seen = collected(end.records)
    found = [entry for entry in entries(seen) if entry.calls[0].module != "__main__"]
    if not found:
        raise typer.Exit(output.failed(_nothing(kernel, seen), NO_LAUNCH))
    suffix = f"_{backend.name}" if _named_after_backend(test, stem, backend.name) else ""
    source = CapturedSource(kernel.name, suffix, shown, str(date.today()), origin.name)
    written = write_tests(source, seen, found)
    files = {test: written.text.encode(), origin: text.encode()}
    if written.kept:
        files[values] = written.kept
    for path, content in files.items():
        path.write_bytes(content)
    notes = [*unwritable(seen), *_notes(seen, written.drawn)]
    cases = sum(len(entry.calls) for entry in found)
    timed = sum(entry.timed for entry in found)
    output.result(
        {
            "files": [str(path) for path in files],
            "clock": seen.clock,
            "entries": [
                {
                    "name": entry.name,
                    "cases": len(entry.calls),
                    "timed": entry.timed,
                    "left_out": entry.left_out,
                    "share": sum(seen.share(call) for call in entry.calls),
                }
                for entry in found
            ],
            "notes": notes,
        },
        "\n".join(
            [
                *(
                    f"{entry.name}: {len(entry.calls)} of {len(entry.calls) + entry.left_out} "
                    f"kinds of calls, {entry.timed} of them timed; "
                    f"{sum(seen.share(call) for call in entry.calls):.1%} of the time"
                    for entry in found
                ),
                *(f"note: {note}" for note in notes),
                f"{test}: {cases} correctness and {timed} perf cases, "
                f"beside {', '.join(path.name for path in files if path != test)}",
            ]
        ),
    )


def _folder(kernel: Path) -> Path:
    """The folder `tests` of the project, where it has one, or that of the kernel."""
    for folder in kernel.resolve().parents:
        if (folder / ".git").exists() or (folder / "pyproject.toml").exists():
            return folder / "tests" if (folder / "tests").is_dir() else kernel.parent
    return kernel.parent


def _named_after_backend(test: Path, stem: str, backend: str) -> bool:
    """Whether tests beside it, for the same kernel, are: then tests of other names are not run."""
    for path in test.parent.glob("*test*.py"):
        text = path.read_text(encoding="utf-8", errors="replace") if path != test else ""
        if stem in text and re.search(rf"def test_\w*{backend}", text):
            return True
    return False


def _how(code: int) -> str:
    import signal

    return f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"


def _nothing(kernel: Path, seen: Capture) -> str:
    from agent.capture.cases import unwritable

    if seen.as_script:
        return (
            f"{kernel} was itself what Python ran, and a test cannot import it so: "
            "call it from another script"
        )
    if seen.calls:
        return f"no call can be written down: {'; '.join(unwritable(seen))}"
    if seen.faults:
        return f"no call could be described: {'; '.join(seen.faults)}"
    if seen.outside:
        return (
            f"{', '.join(seen.outside)} of {kernel} was launched by code outside of the file: "
            "move the launch into a function of the file"
        )
    return (
        f"the command made no call that launches a kernel of {kernel}: run one that does, "
        "in this environment's Python (not with -I, -E or -S)"
    )


def _notes(seen: Capture, drawn: int) -> list[str]:
    notes = [f"calls were not described: {fault}" for fault in seen.faults]
    if seen.left_out:
        notes.append(f"{seen.left_out} calls were counted only: of too many kinds, or in a graph")
    if seen.outside:
        notes.append(f"{', '.join(seen.outside)} was also launched by code outside of the file")
    if drawn:
        why = "" if seen.safetensors else "; with safetensors installed small ones are kept"
        notes.append(f"the values of {drawn} integer tensors are drawn anew{why}")
    return notes
