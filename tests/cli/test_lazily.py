"""The list of commands: it says what the commands say, and loads none of them."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from agent.cli.lazily import PLACES
from agent.cli.main import app
from agent.journal import Journal
from tests.support.history import STARTED
from tests.support.project import tile_agent
from tests.support.repo import make_repo


@pytest.mark.parametrize("name", PLACES)
def test_a_line_of_the_list_is_the_first_paragraph_of_the_help(name: str) -> None:
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    first = (command.help or "").split("\n\n")[0]
    assert " ".join(first.split()) == PLACES[name].help


def test_every_command_that_is_registered_is_listed() -> None:
    holder = typer.Typer()
    for module in {place.module for place in PLACES.values()}:
        import_module(f"agent.cli.{module}").register(holder)
    assert set(get_command(holder).commands) == set(PLACES)  # type: ignore[attr-defined]


def test_the_list_loads_no_command() -> None:
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*(m for m in sys.modules if m.startswith('agent.'))))\n"
        "from agent.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, "--help"]
    end = subprocess.run(command, capture_output=True, text=True, check=True)
    assert all(PLACES[name].help.split()[0] in end.stdout for name in PLACES)
    loaded = set(end.stdout.splitlines()[-1].split())
    assert loaded == {
        "agent.cli", "agent.cli.config", "agent.cli.help_text", "agent.cli.lazily",
        "agent.cli.main", "agent.cli.output", "agent.errors", "agent.interruption",
    }  # fmt: skip


def test_status_loads_no_optimization(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    folder = repo / "sandbox" / "runs" / "first"
    folder.mkdir(parents=True)
    journal = Journal(folder / "journal.jsonl")
    journal.append(STARTED)
    journal.close()
    script = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('libcst' in sys.modules, 'agent.playbook' in sys.modules))\n"
        "from agent.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, "status"]
    end = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=True)
    assert end.stdout.startswith("first: waiting for the assistant")
    assert end.stdout.endswith("False False\n")


def test_a_command_that_does_not_exist_has_a_neighbour(tmp_path: Path) -> None:
    end = tile_agent(tmp_path, "statsu")
    assert end.code == 2
    assert "Did you mean 'status'" in end.err
