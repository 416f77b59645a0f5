"""A secret that a provider quotes and a model repeats: it is nowhere after the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import ExitCode
from tests.proposers.test_model import instead, says
from tests.support.llm_server import PIECE, LlmServer, Reply
from tests.support.project import COUNTED, tile_agent
from tests.support.repo import git, isolate, make_repo

SECRET = "planted-7f3a9c-correct-horse"
PASSWORD = "a-long-password-in-a-url"
DATABASE = f"postgres://me:{PASSWORD}@db.example.com/x"
UNAUTHORIZED = {
    "error": {
        "message": f"Incorrect API key provided: {SECRET}, for {DATABASE}",
        "type": "invalid_request_error",
    }
}
TEST = """
def test_no_worker_has_it():
    import os
    for names in (dict(os.environ), open(f"/proc/self/environ").read()):
        assert "planted-7f3a9c" not in str(names) and "a-long-password" not in str(names)
"""


def everything(*folders: Path) -> list[tuple[Path, bytes]]:
    """Every file, and for git's objects, which are compressed, what is in them."""
    found = [(p, p.read_bytes()) for f in folders for p in f.rglob("*") if p.is_file()]
    assert found
    return found


def objects(repo: Path) -> str:
    """All that git keeps: commits, trees, the text of files."""
    command = ["git", "-C", str(repo), "cat-file", "--batch", "--batch-all-objects"]
    return subprocess.run(command, check=True, capture_output=True).stdout.decode(errors="replace")


@pytest.mark.full
def test_a_planted_secret_is_nowhere_after_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("DATABASE_URL", DATABASE)
    files = dict(COUNTED) | {"tests/test_double.py": COUNTED["tests/test_double.py"] + TEST}
    repo = make_repo(tmp_path, files)
    split = "x" * (PIECE - len('{"hypothesis": "') - len(SECRET) // 2)
    replies = (
        Reply(text="Yes."),
        instead("BLOCK_SIZE = 1024", f'BLOCK_SIZE = 1024\nNOTE = "{SECRET}"'),
        says(hypothesis=f"{split}{SECRET}", title=f"with {SECRET}", risk=DATABASE),
        Reply(text=f"I was given {SECRET} and {DATABASE}."),
        Reply(status=401, raw=json.dumps(UNAUTHORIZED).encode()),
    )  # fmt: skip
    with LlmServer(*replies) as server:
        end = tile_agent(
            repo, "run", "--kernel", "double.py", "--proposer", "model", "--json",
            "--python", sys.executable, "--model", "openai:some-1",
            "--base-url", f"{server.url}/v1",
        )  # fmt: skip
        assert all(SECRET not in received.prompt for received in server.received[:2])
        asked = len(server.received)
    assert end.code == ExitCode.ESCALATED, end.err
    assert asked >= 5
    assert "answers 401" in end.err
    assert "[secret removed]" in end.out
    assert "holds the value of OPENAI_API_KEY" in "".join(
        received.prompt for received in server.received
    )
    assert "[secret removed]" in git(repo, "log", "--all", "--format=%B")
    assert "[secret removed]" in git(repo, "log", "-1", "--format=%B", end.json["branch"])
    for secret in (SECRET, PASSWORD):
        assert secret not in end.out + end.err
        assert secret not in objects(repo)
        for path, content in everything(repo, tmp_path / "state"):
            assert secret.encode() not in content, path


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--base-url", "http://me:a-password@127.0.0.1:9/v1"], "--base-url"),
        (["--proposer", "command", "--command", f"agent --key {SECRET}"], "--command"),
    ],
)
def test_options_that_hold_a_secret_are_refused(
    words: list[str], flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    repo = make_repo(tmp_path, COUNTED)
    end = tile_agent(repo, "run", "--kernel", "double.py", *words)
    assert end.code == ExitCode.USAGE
    assert f"{flag} holds a secret" in end.err
    assert SECRET not in end.err
    assert not (repo / "sandbox").exists()
