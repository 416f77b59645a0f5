"""`profile`: which kernels of a command are worth a run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import output
from agent.cli.capture import COMMAND_FAILED, NO_LAUNCH
from agent.cli.shared_options import SEVERAL, Json, handed_on
from agent.suggesting import passing

if TYPE_CHECKING:
    from agent.profiled import CommandProfile, KernelShare

MOST_OTHERS = 5
"""Named of what the GPU did beside the kernels; JSON has all."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(profile)


def profile(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND", help="What to run: pytest, a script, a training step."
        ),
    ],
    pass_env: Annotated[
        list[str] | None,
        typer.Option(
            "--pass-env",
            help=f"A variable that the runs which are named hand to their tests; {SEVERAL}. The "
            "command gets all.",
        ),
    ] = None,
    stop_after_s: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="End the command after so many seconds, and rank what it launched until then.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a command, and rank the kernels of its files by their share of the time on the GPU.

    Of each it says how near it is to what the GPU's memory or tensor cores need for the same work,
    and what the whole would gain if it took half the time. Nothing is written.

    Exit code 3: the command failed, and launched nothing. 4: it launched no kernel of Triton's or
    cuTile's.
    """
    output.use_json(as_json)
    from agent.errors import CommandFailed, NothingCaptured
    from agent.profiled import profile_command

    passed = handed_on(pass_env)
    try:
        found = profile_command(command, Path.cwd(), stop_after_s, _interrupted)
    except (CommandFailed, NothingCaptured) as problem:
        code = COMMAND_FAILED if isinstance(problem, CommandFailed) else NO_LAUNCH
        raise typer.Exit(output.failed(str(problem), code)) from None
    output.result(_as_json(found, passed), _as_text(found, passed))


def _interrupted() -> None:
    output.progress("interrupted: what was launched until now is ranked; once more ends it")


def run_lines(found: CommandProfile, pass_env: Sequence[str] = ()) -> list[str]:
    """How to make the kernels of each of the user's files faster, the most expensive file first.

    They are to be run where the command was. Files of whose calls no tests can be made have none.
    """
    files = [
        os.path.relpath(found.root / file) for file in found.files if file not in found.uncaptured
    ]
    stopped_s = found.stopped_after_s
    stopping = f" --capture-stop-after-s {stopped_s:g}" if stopped_s else ""
    return [
        f"tile-agent run --kernel {shlex.quote(file)}{passing(pass_env)}{stopping} --capture "
        f"{shlex.quote(found.command)}"
        for file in files
    ]


def _notes(found: CommandProfile) -> list[str]:
    return [*found.notes, *(f"{file} {why}" for file, why in found.uncaptured.items())]


def _as_json(found: CommandProfile, pass_env: Sequence[str]) -> dict[str, object]:
    return {
        "clock": found.clock,
        "processes": found.processes,
        "total_ms": found.total_ms,
        "kernels": [
            {
                "file": kernel.file,
                "kernel": kernel.kernel,
                "own": kernel.own,
                "launches": kernel.launches,
                "total_ms": kernel.total_ms,
                "share": kernel.share,
                "of_the_roof": kernel.of_the_roof,
                "whole_if_halved": kernel.whole_if_halved,
            }
            for kernel in found.kernels
        ],
        "others": [{"name": name, "share": share} for name, share in found.others],
        "run": run_lines(found, pass_env),
        "notes": _notes(found),
    }


def _as_text(found: CommandProfile, pass_env: Sequence[str]) -> str:
    several = "" if found.processes == 1 else f" in {found.processes} processes"
    lines = [
        f"{found.command}: {found.total_ms:.3f} ms{several} ({found.clock})",
        "",
        "| share | time, ms | launches | of its roof | the whole, if halved | kernel |",
        "| --: | --: | --: | --: | --: | :-- |",
        *(_row(kernel) for kernel in found.kernels),
        "",
    ]
    if found.others:
        alike: dict[str, float] = {}
        for name, share in found.others:
            alike[_short(name)] = alike.get(_short(name), 0.0) + share
        largest = sorted(alike.items(), key=lambda item: -item[1])[:MOST_OTHERS]
        named = [f"{name} {share:.1%}" for name, share in largest]
        rest = sum(alike.values())
        lines += [f"other work of the GPU: {rest:.1%}; {', '.join(named)}", ""]
    lines += [f"note: {note}" for note in _notes(found)]
    if any(not kernel.own for kernel in found.kernels):
        lines.append("note: what has its whole path is not of this repository: clone its project")
    return "\n".join([*lines, *run_lines(found, pass_env)])


def _row(kernel: KernelShare) -> str:
    roof = "-" if kernel.of_the_roof is None else f"{kernel.of_the_roof:.0%}"
    cells = [
        f"{kernel.share:.1%}",
        f"{kernel.total_ms:.3f}",
        str(kernel.launches),
        roof,
        f"{kernel.whole_if_halved:.2f}x",
        f"{kernel.kernel}, {kernel.file}".replace("|", "\\|"),
    ]
    return f"| {' | '.join(cells)} |"


def _short(name: str) -> str:
    """A kernel's name without its template arguments: cuBLAS and torch have long ones."""
    plain = name.partition("<")[0].removeprefix("void ")
    return plain if len(plain) <= 60 else f"{plain[:57]}..."
