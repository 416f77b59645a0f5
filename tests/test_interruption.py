"""What an interruption does not cut in two, with real signals and a real git."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.support.project import PROJECT
from tests.support.repo import git, isolate, make_repo

PROGRAM = """
    import signal, sys
    from pathlib import Path
    from agent.errors import Interrupted
    from agent.interruption import interrupt
    from agent.repository import Repository

    signal.signal(signal.SIGINT, interrupt)
    try:
        Repository.open(Path.cwd()).git("-c", f"alias.slow=!{sys.argv[1]}", "slow")
        print("went on")
    except Interrupted:
        print("interrupted")
"""


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    return make_repo(tmp_path, PROJECT)


def test_a_git_that_has_begun_is_waited_for(repo: Path) -> None:
    process = _running(repo, "touch begun && sleep 1 && touch done")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "interrupted\n"
    assert (repo / "done").exists()


def test_one_that_hangs_is_left_at_the_second_signal(repo: Path) -> None:
    process = _running(repo, "touch begun && exec sleep 20")
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)  # signals of one kind that wait to be taken are one
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "interrupted\n"
    assert time.monotonic() - begun < 15
    process.communicate(timeout=60)


def test_a_run_is_interrupted_while_a_candidate_is_committed(repo: Path) -> None:
    """Its index lies in a folder that goes with the block, and git wrote into it meanwhile."""
    code = """
        import os, signal, sys, threading
        from pathlib import Path
        from agent.errors import Interrupted
        from agent.interruption import interrupt
        from agent.repository import Repository
        from agent.workspace import Workspace

        signal.signal(signal.SIGINT, interrupt)
        workspace = Workspace(Repository.open(Path.cwd()), "run")
        head = workspace.repository.git("rev-parse", "HEAD").text
        ended = 0
        for number in range(40):
            try:
                threading.Timer(number * 0.003, os.kill, (os.getpid(), signal.SIGINT)).start()
                while True:
                    workspace.commit_candidate(head, "double.py", b"x = %d" % number, "try", 0.0)
            except Interrupted:
                ended += 1
        print(ended)
    """
    end = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=repo, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (end.returncode, end.stdout) == (0, "40\n"), end.stderr
    assert git(repo, "fsck", "--no-dangling") == ""


def _running(repo: Path, command: str) -> subprocess.Popen[str]:
    """A program that has had git run a shell command, which has made the file `begun`."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), command],
        cwd=repo,
        stdout=subprocess.PIPE,
        text=True,
    )
    while not (repo / "begun").exists():
        assert process.poll() is None, "it ended before it began"
        time.sleep(0.01)
    return process
