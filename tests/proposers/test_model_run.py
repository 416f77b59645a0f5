"""`tile-agent run --proposer model` against a real server on loopback, in the interpreter."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from agent.errors import ExitCode
from agent.events import StopReason
from agent.proposers.model.exchange import from_text, recordings
from tests.proposers.test_model import GOOD, KEY, instead
from tests.support.llm_server import INPUT_TOKENS, OUTPUT_TOKENS, LlmServer, Reply
from tests.support.project import COUNTED, command, tile_agent
from tests.support.repo import git, isolate, make_repo
from tests.support.warm_python import warm_interpreter


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.mark.full
def test_a_run_with_a_model_killed_while_it_asks_and_resumed(tmp_path: Path) -> None:
    """A skip for a forbidden answer, a row for a good one, an end where nobody answers."""
    repo = make_repo(tmp_path, COUNTED)
    forbidden = instead("def double(x):", "def double(x, out):")
    ready = Reply(text="Yes.")  # asked when the run begins, and when it is resumed
    replies = (ready, Reply(silent=True), ready, forbidden, forbidden, GOOD, Reply(status=401))
    with LlmServer(*replies) as server:
        at = ["--model", "openai:some-1", "--base-url", f"{server.url}/v1"]
        at += ["--python", warm_interpreter()]
        process = subprocess.Popen(
            command("run", "--kernel", "double.py", "--proposer", "model", *at),
            cwd=repo,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while len(server.received) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.wait()
        end = tile_agent(repo, "resume", "--json")
    assert end.code == ExitCode.ESCALATED, end.err
    assert end.json["stop"]["reason"] == StopReason.UNANSWERED
    (row,) = end.json["rows"][1:]
    assert row["status"] == "keep"
    assert row["optimization"].endswith("(model)")
    assert "`double` takes" in end.err
    assert "answers 401" in end.err
    assert "fewer programs" in git(repo, "log", "-1", "--format=%b", end.json["branch"])
    usage = end.json["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (3 * INPUT_TOKENS, 3 * OUTPUT_TOKENS)
    (journal,) = (repo / "sandbox" / "runs").glob("*/journal.jsonl")
    kept = recordings(journal.parent / "model")
    assert [from_text(path.read_text()).status for path in kept] == [200, 200, 200, 401]
    assert KEY not in end.out + end.err
    for path in (repo / "sandbox").rglob("*"):
        assert path.is_dir() or KEY not in path.read_text()
