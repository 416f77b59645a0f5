"""One command as a child process: what comes back of it, and how it ends when nobody waits."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from agent.mcp.command import call, command_line
from tests.support.project import PROJECT, tile_agent
from tests.support.repo import git, isolate, make_repo

RUN = command_line("run", options={"kernel": "double.py", "yes": True})
BEGUN = "baseline"
"""In the first line that a run writes after it began; it then measures its noise."""


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, PROJECT)


async def unheard(_line: str) -> None:
    """No progress is wanted."""


def standing(repo: Path) -> str:
    """How the only run of a repository stands."""
    (run,) = tile_agent(repo, "status", "--json").json["runs"]
    return str(run["standing"])


def test_a_value_is_never_an_option() -> None:
    assert command_line("status", options={}) == ["status", "--json"]
    options = {"kernel": "--yes", "tests": ["a", "-b"], "max_iterations": 3, "patience": None}
    flags = {"yes": True, "keep_going": False}
    assert command_line("begin", options={**options, **flags}, names=["--help"]) == [
        "begin", "--json", "--kernel=--yes", "--tests=a", "--tests=-b", "--max-iterations=3",
        "--yes", "--", "--help",
    ]  # fmt: skip


def test_a_package_of_the_same_name_is_not_taken_for_ours(repo: Path) -> None:
    (repo / "agent").mkdir()
    (repo / "agent" / "__init__.py").write_text("raise RuntimeError('not this one')\n")
    answer = anyio.run(call, command_line("status", options={}), repo, unheard)
    assert answer == {"runs": []}


@pytest.mark.full
def test_a_command_that_is_killed_is_an_error(repo: Path) -> None:
    others = {child.pid for child in psutil.Process().children()}  # the tests share some

    async def killed() -> dict[str, Any]:
        async def report(line: str) -> None:
            if BEGUN in line:
                for child in psutil.Process().children():
                    if child.pid not in others:
                        child.kill()

        return await call(RUN, repo, report)

    answer = anyio.run(killed)
    assert answer["error"].startswith("tile-agent run was killed by SIGKILL and gave no answer")
    assert BEGUN in answer["error"]
    assert answer["exit_code"] == -signal.SIGKILL
    assert standing(repo) == "interrupted"


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="the death signal is Linux's")
def test_a_command_ends_with_whoever_called_it(repo: Path) -> None:
    """Even with a SIGKILL, which leaves the caller no last word."""
    script = (
        "import anyio, os, psutil, signal\n"
        "from pathlib import Path\n"
        "from agent.mcp.command import call\n"
        "async def report(line):\n"
        f"    if {BEGUN!r} in line:\n"
        "        print(*(p.pid for p in psutil.Process().children(recursive=True)), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        f"anyio.run(call, {RUN!r}, Path.cwd(), report)\n"
    )
    command = [sys.executable, "-c", script]
    caller = subprocess.run(command, cwd=repo, stdout=subprocess.PIPE, text=True, check=False)
    assert caller.returncode == -signal.SIGKILL
    pids = [int(word) for word in caller.stdout.split()]
    assert len(pids) > 1
    left = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    assert psutil.wait_procs(left, timeout=60)[1] == []
    assert standing(repo) == "interrupted"
    worktrees = git(repo, "worktree", "list", "--porcelain")
    assert worktrees.count("worktree ") == 1, "it was killed, and did not end cleanly"
