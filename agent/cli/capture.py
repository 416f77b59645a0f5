"""`capture`: tests for a kernel from the calls that a command makes of it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import output
from agent.cli.shared_options import Json, Kernel, PassEnv, handed_on
from agent.suggesting import passing

if TYPE_CHECKING:
    from agent.backends.base import Backend
    from agent.captured import CapturedTests

COMMAND_FAILED = 3
NO_LAUNCH = 4
INTERRUPTED = "interrupted"
"""Why tests are untried that could be tried."""
LOST = "interrupted; nothing was written: --stop-after-s or Ctrl-C keeps the calls until then"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(capture)


def capture(
    kernel: Kernel,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND", help="What to run: pytest, a script, a training step."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="The test file; test_<kernel>_captured.py in tests/, test/ or beside the kernel, "
            "when left out.",
        ),
    ] = None,
    stop_after_s: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="End the command after so many seconds, and be content with the calls that it "
            "made until then. Trying the tests that are made of them takes its time besides, 3 "
            "minutes at most each time that they are run.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    python: Annotated[
        str | None,
        typer.Option(
            help="Interpreter that tries the tests.",
            show_default="that of the command, where it names one that has pytest",
        ),
    ] = None,
    pass_env: PassEnv = None,
    as_json: Json = False,
) -> None:
    """Run a command, and write tests for the calls of the kernel's file that it makes.

    Correctness tests compare with the origin, which is frozen beside them; perf tests time the
    shapes that took the most time. The tests are run on the code itself before they are left: what
    differs from itself, since programs write the same places, gets distinct ones or is left out.
    A command that fails, or is interrupted, gives tests of the calls that it made until then; where
    it is the trying that is interrupted, they are left untried.

    Exit code 3: the command failed, and made no call. 4: it made no call that launches a kernel
    of the file.
    """
    output.use_json(as_json)
    from agent.capture.files import CaptureFiles
    from agent.captured import capture_tests
    from agent.captured_trial import placed, trying, untried, without_failing
    from agent.cli.still import capturing, waiting_for
    from agent.errors import CommandFailed, Interrupted, NothingCaptured, UsageError
    from agent.harness.compiling.cutile import import_roots
    from agent.harness.processes.recorded_command import interpreter_of
    from agent.preflight import read_file
    from agent.target import parse

    passed, interpreter = handed_on(pass_env), python or interpreter_of(command)
    text = read_file(kernel)
    _, backend = parse(text, str(kernel))
    files = CaptureFiles.of(kernel, out)
    test = files.test
    if not (test.name.startswith("test_") and test.suffix == ".py"):
        raise UsageError(f"--output {test}: pytest finds test_*.py only: name it so")
    if not test.parent.is_dir():
        raise UsageError(f"--output {test}: {test.parent} is no folder: make it first")
    if not force and (path := files.existing()):
        raise UsageError(f"{path} exists: name another file by --output, or give --force")
    try:
        with capturing() as say:
            found = capture_tests(
                command,
                kernel,
                text,
                backend.name,
                files,
                stop_after_s,
                lambda: say("interrupted: the calls until now are gone on with; once more ends it"),
            )
        output.progress(trying(found))
        roots = import_roots(kernel.resolve())
        failing = partial(_failing, backend.name, roots, passed, interpreter)
        try:
            with waiting_for("trying the captured tests; Ctrl-C leaves them untried"):
                found = without_failing(found, failing) if out else placed(found, kernel, failing)
        except Interrupted as end:
            if end.by != signal.SIGINT:
                raise
            found = untried(found, INTERRUPTED)  # what took the command minutes is kept
    except Interrupted as end:
        raise Interrupted(str(end) or LOST, end.by) from None
    except (CommandFailed, NothingCaptured) as problem:
        code = COMMAND_FAILED if isinstance(problem, CommandFailed) else NO_LAUNCH
        raise typer.Exit(output.failed(str(problem), code)) from None
    _write(found)
    alone = found.places.test if found.places != files else None
    then = _next(kernel, backend, found, alone, passed, interpreter)
    output.result(_as_json(found), f"{_as_text(found)}\n{then}")


def _next(
    kernel: Path,
    backend: Backend,
    found: CapturedTests,
    alone: Path | None,
    passed: Sequence[str],
    python: str,
) -> str:
    """What to do then.

    Args:
        kernel: the file.
        backend: its language.
        found: what was written.
        alone: tests that judge without the project's own.
        passed: names of the variables that tests are handed.
        python: the interpreter that tried them.
    """
    from agent.environment import probe

    other = "" if python == sys.executable else f" --python {shlex.quote(python)}"
    given = f"--kernel {shlex.quote(str(kernel))}"
    tests = f" --tests {shlex.quote(os.path.relpath(alone))}" if alone else ""
    run = f"tile-agent run {given}{tests}{other}{passing(passed)}"
    environment = probe()
    options = () if environment.gpu else backend.without_gpu
    test = os.path.relpath(found.places.test)
    command = shlex.join(
        [python if other else "python", "-m", "pytest", *options, test, "-k", "not test_perf"]
    )
    commit = ""
    if environment.gpu is None and not options:  # pytest alone asks for a GPU that is not there
        named = f"{given} --tests {shlex.quote(test)}"
        command = f"tile-agent verify {named}{other}{passing(passed)}"
        commit = "commit them and "
    if found.untried:
        mend = "" if found.untried == INTERRUPTED else "mend what the note tells, "
        begin = f"not tried yet, no run can rest on them: {mend}{commit}run them: {command}"
        return f"{begin}; then: {run}"
    if backend.lacks(environment):
        return f"commit them, then, on a machine with a GPU: {run}; here: {command}"
    return f"commit them, then: {run}"


def _failing(
    backend: str,
    roots: Sequence[Path],
    passed: Sequence[str],
    python: str,
    found: CapturedTests,
) -> Mapping[tuple[str, str], str] | str:
    """Which of the tests fail; their files lie where they will for as long as that takes."""
    from agent.harness.processes.captured_tests import failing_cases

    before = {path: path.read_bytes() for path in found.files if path.exists()}
    _write(found)
    try:
        return failing_cases(
            found.places.test, Path.cwd(), backend, roots, found.source.suffix, passed, python
        )
    finally:
        for path in found.files:
            path.unlink()
        for path, content in before.items():
            path.write_bytes(content)


def _write(found: CapturedTests) -> None:
    """Write the files."""
    for path, content in found.files.items():
        path.write_bytes(content)


def _as_json(found: CapturedTests) -> dict[str, object]:
    return {
        "files": [str(path) for path in found.files],
        "clock": found.calls.clock,
        "entries": [
            {
                "name": entry.name,
                "cases": len(entry.calls),
                "timed": entry.timed,
                "left_out": entry.left_out,
                "share": found.share(entry),
            }
            for entry in found.entries
        ],
        "notes": list(found.all_notes),
    }


def _as_text(found: CapturedTests) -> str:
    test, *others = found.files
    return "\n".join(
        [
            *(
                f"{entry.name}: {len(entry.calls)} of {len(entry.calls) + entry.left_out} "
                f"kinds of calls, {entry.timed} of them timed; {found.share(entry):.1%} of the time"
                for entry in found.entries
            ),
            *(f"note: {note}" for note in found.all_notes),
            f"{test}: {found.cases} correctness and {found.timed} perf cases, "
            f"beside {', '.join(path.name for path in others)}",
        ]
    )
