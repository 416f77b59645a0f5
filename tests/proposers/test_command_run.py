"""`tile-agent run --proposer command` on a real project, in the interpreter, end to end."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from agent.errors import ExitCode
from agent.events import Skipped
from agent.journal import read
from tests.support.project import COUNTED, command, tile_agent
from tests.support.repo import changed, git, isolate, make_repo, snapshot
from tests.support.warm_python import warm_interpreter

# Each call is another day in the life of a coding agent. The days are counted outside of the copy.
AGENT = """
    import os, pathlib, sys, time
    kernel = pathlib.Path("double.py")
    prompt = sys.stdin.read()
    assert "Make the GPU kernel in `double.py` faster" in prompt, prompt
    days = pathlib.Path(sys.argv[1])
    with days.open("a") as file:
        file.write(f"{os.getpid()}\\n")
    day = len(days.read_text().splitlines())

    def edit(old, new, path=kernel):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    print("secret:", os.environ["AGENT_TOKEN"])
    if day == 1:
        time.sleep(600)
    elif day == 2:
        edit("BLOCK_SIZE = 256", "BLOCK_SIZE = 2048")
        edit("2 * x)", "x)", pathlib.Path("tests/test_double.py"))
        (days.parent / "repo" / "theirs.txt").write_text("left by the program")
        print('{"hypothesis": "one program does it all", "expected_gain": 0.9, "risk": "none"}')
    elif day == 3:
        os.setsid() if os.fork() == 0 else None
        time.sleep(600)
    elif day == 4:
        kernel.unlink()
    else:
        edit("2 * tl.load", "tl.load")
"""


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("AGENT_TOKEN", "correct-horse-battery")
    return make_repo(tmp_path, COUNTED)


def arguments(repo: Path, script: str) -> list[str]:
    """A run with a Python program as its proposer."""
    program = repo.parent / "agent.py"
    program.write_text(textwrap.dedent(script))
    words = [sys.executable, str(program), str(repo.parent / "days")]
    run = ["run", "--kernel", "double.py", "--json", "--proposer", "command"]
    run += ["--python", warm_interpreter()]
    return [*run, "--command", shlex.join(words), "--pass-env", "AGENT_TOKEN"]


def killed_in_its_program(repo: Path, run: list[str]) -> None:
    """Begin a run, and kill it the hard way as soon as its program is at work."""
    days = repo.parent / "days"
    with subprocess.Popen(
        command(*run), cwd=repo, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 120
        while not (days.exists() and days.read_text().endswith("\n")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    program = int(days.read_text())
    while psutil.pid_exists(program):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.full
def test_a_run_outlives_every_program_and_its_own_death(repo: Path) -> None:
    before = snapshot(repo)
    limits = ["--command-timeout-s", "2", "--max-iterations", "2"]
    killed_in_its_program(repo, [*arguments(repo, AGENT), *limits])
    end = tile_agent(repo, "resume", "--json")
    assert end.code == ExitCode.STOPPED, end.err
    result = end.json
    assert [row["status"] for row in result["rows"]] == ["keep", "keep", "revert"]
    assert [row["correct"] for row in result["rows"]] == [True, True, False]
    (journal,) = (repo / "sandbox" / "runs").glob("*/journal.jsonl")
    events = [line.event for line in read(journal)]
    skipped = [event.reason for event in events if isinstance(event, Skipped)]
    assert ["not done after 2 s: killed" in reason for reason in skipped] == [True, False]
    assert ["double.py is gone" in reason for reason in skipped] == [False, True]
    assert "double.py is gone" in result["skipped"][-1]["reason"]

    branch = result["branch"]
    assert git(repo, "diff", "--name-only", f"main..{branch}") == "double.py"
    message = git(repo, "log", "-1", "--format=%B", branch)
    assert "one program does it all. It also changed tests/test_double.py" in message
    differing = changed(before, snapshot(repo))
    ours = {key for key in differing if key.startswith(("sandbox", "refs/tile-agent/"))}
    assert differing - ours == {f"refs/heads/{branch}", "git info/exclude", "theirs.txt"}
    (note,) = (note for note in result["notes"] if "theirs.txt" in note)
    assert note.startswith("added theirs.txt in your repository during iteration 1 (propose)")

    kept = repo / "sandbox" / "runs" / result["run"] / "command"
    assert sorted(path.name for path in kept.glob("*.md")) == [f"000{n}.md" for n in range(1, 6)]
    assert "secret: [secret removed]" in (kept / "0002.log").read_text()
    everything = [path for path in repo.rglob("*") if path.is_file()]
    assert not [path for path in everything if b"correct-horse" in path.read_bytes()]


@pytest.mark.full
def test_a_program_that_is_missing_changes_nothing(repo: Path) -> None:
    before = snapshot(repo)
    run = ["run", "--kernel", "double.py", "--proposer", "command", "--command", "no-such-agent -p"]
    end = tile_agent(repo, *run)
    assert end.code == ExitCode.USAGE
    assert "--command no-such-agent cannot be found: install it" in end.err
    assert not changed(before, snapshot(repo))
