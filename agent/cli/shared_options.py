"""Options that several commands share. Those of a run are declared in `agent.options`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from agent.cli import completion
from agent.options import (
    BENCH,
    KERNEL,
    PYTHON,
    SANDBOX,
    TESTS,
    CommandOptions,
    Options,
    Sandbox,
)

SEVERAL = "may be given several times"


def from_anywhere(program: str) -> str:
    """A program as any directory finds it; a link stays one, as in an environment of Python's."""
    return os.path.abspath(program) if os.sep in program else program  # noqa: PTH100 - see above


Kernel = Annotated[Path, typer.Option(help=KERNEL.help, autocompletion=completion.kernels)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the result and errors, and no progress.")
]
Python = Annotated[
    str,
    typer.Option(help=PYTHON.help, show_default=PYTHON.shown_default, callback=from_anywhere),
]
Tests = Annotated[list[str] | None, typer.Option(help=TESTS.told(SEVERAL))]
Benches = Annotated[list[str] | None, typer.Option("--bench", help=BENCH.told(SEVERAL))]
Sandboxed = Annotated[Sandbox, typer.Option("--sandbox", help=SANDBOX.help)]
PassEnv = Annotated[
    list[str] | None,
    typer.Option(
        "--pass-env",
        help="A variable that the tests get although it is not known to be needed, unless it looks "
        f"like a secret; {SEVERAL}.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Begin without asking.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what it would do, as `tile-agent plan` does.")
]


def handed_on(pass_env: Sequence[str] | None) -> tuple[str, ...]:
    """The names of variables to hand on, each of which is set.

    Raises:
        UsageError: one is not.
    """
    from agent.harness.processes.variables import insist_set

    insist_set(pass_env or ())
    return tuple(pass_env or ())


def confined(sandbox: Sandbox, pass_env: Sequence[str] | None) -> Options:
    """The options of a run that say how a process is confined."""
    return Options(sandbox=sandbox, command=CommandOptions(pass_env=tuple(pass_env or ())))


def examples(*calls: str) -> str:
    """The end of a command's help: calls of it, one a line."""
    return "\n\n".join(("Examples:", *(f"tile-agent {call}" for call in calls)))
