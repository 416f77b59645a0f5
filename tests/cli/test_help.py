"""`--help`: all that it says can be read at any width, and it costs hardly more than typer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from agent.cli.main import app
from tests.support.project import tile_agent

ROOT = Path(__file__).parents[2]
SHARE = 2.0
"""Of the processor's time that `import typer` takes."""


def leaves(group: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*names, name))
        yield (*names, name), command


COMMANDS = dict(leaves(get_command(app)))


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_every_name_and_every_word_is_there(
    names: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    command = COMMANDS[names]
    text = command.get_help(command.make_context(names[-1], [], resilient_parsing=True))
    assert max(map(len, text.splitlines())) <= columns
    words = " ".join(text.split())
    assert sys.executable not in words, "its length differs from machine to machine"
    for param in command.params:
        flags = [name for name in param.opts if name.startswith("-")]
        assert set(flags) <= {word.rstrip(",") for word in words.split()}
        assert " ".join((param.help or "").split()) in words


@pytest.mark.parametrize("group", ["", "playbook", "skill", "tileir"])
def test_no_command_of_a_group_is_cut_short(tmp_path: Path, group: str) -> None:
    shown = " ".join(tile_agent(tmp_path, *group.split(), "--help").out.split())
    below = get_command(app)
    for name in group.split():
        below = below.commands[name]  # type: ignore[attr-defined]
    for name, command in below.commands.items():  # type: ignore[attr-defined]
        first = command.help.split("\n\n")[0]
        assert f"{name} {' '.join(first.split())}" in shown


@pytest.mark.parametrize("names", ["", "run", "status"])
def test_the_help_costs_hardly_more_than_typer(names: str) -> None:
    typer_s = min(processor_s("-c", "import typer") for _ in range(5))
    begin = "from agent.cli import main; main()"
    help_s = min(processor_s("-c", begin, *names.split(), "--help") for _ in range(5))
    assert help_s < SHARE * typer_s


def processor_s(*arguments: str) -> float:
    """What a process of Python takes of a processor, in s; who else is busy does not count."""
    with subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime
