"""A model that cannot be had: told before the baseline, and never taken for a kernel's optimum."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import ExitCode, UsageError
from agent.events import StopReason
from agent.journal import replay
from agent.options import ModelOptions, Options
from agent.proposers.build import reach
from agent.proposers.model.client import check
from agent.proposers.model.writer import ModelWriter
from agent.proposers.writer import Refused, Written
from agent.state import Run
from tests.proposers.test_model import BRIEF, FASTER, GOOD, KEY, TASK
from tests.support.history import HISTORY
from tests.support.llm_server import LlmServer, Reply
from tests.support.project import COUNTED, tile_agent
from tests.support.repo import git, isolate, make_repo
from tests.support.warm_python import warm_interpreter

FORMATS = ("openai", "openai-responses", "anthropic")
READY = Reply(text="Yes.")


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
        monkeypatch.delenv(f"{name}_BASE_URL", raising=False)


def model(server: LlmServer, provider: str, timeout_s: float = 20.0) -> ModelOptions:
    path = "" if provider == "anthropic" else "/v1"
    return ModelOptions(
        model=f"{provider}:some-1", base_url=server.url + path, request_timeout_s=timeout_s
    )


def ask(options: ModelOptions) -> list[str]:
    """Look whether it answers; what was said meanwhile."""
    said: list[str] = []
    reach(Options(proposers=("playbook", "model"), model=options), said.append)
    return said


# --- before the baseline ------------------------------------------------------------------------

ANSWERS: Mapping[str, tuple[Reply, ...]] = {
    "a word": (READY,),
    "nothing to say": (Reply(),),
    "a refusal of this question": (Reply(refusal="I will not."),),
    "a server that is busy at first": (Reply(status=503), READY),
    "a server that refuses streams": (Reply(status=400), READY),
}
SILENT = "the server was silent for the last"
REFUSES: Mapping[str, tuple[Reply, int, str]] = {
    "a wrong key": (Reply(status=401), 1, "answers 401: scripted 401"),
    "a wrong name": (Reply(status=404), 1, "answers 404: scripted 404"),
    "a page of HTML": (Reply(raw=b"<!doctype html><p>Hi"), 1, "it answers HTML and no JSON: is ht"),
    "a page of HTML for an error": (Reply(status=404, raw=b"<html>"), 1, "404: a page of HTML"),
    "plain text": (Reply(raw=b"pong"), 1, "it answers no JSON"),
    "a bare value": (Reply(raw=b"[1]"), 1, "it answers no object of JSON"),
    "an empty body": (Reply(raw=b""), 1, "it answers nothing"),
    "400 in either form": (Reply(status=400), 2, "answers 400: scripted 400"),
    "500 for ever": (Reply(status=500), 5, "answers 500: scripted 500"),
    "silence": (Reply(silent=True), 1, SILENT),
    "silence after some bytes": (replace(READY, trickle_s=60.0), 1, SILENT),
}


@pytest.mark.parametrize("provider", FORMATS)
@pytest.mark.parametrize("replies", ANSWERS.values(), ids=ANSWERS)
def test_it_can_be_asked(replies: tuple[Reply, ...], provider: str) -> None:
    with LlmServer(*replies) as server:
        said = ask(model(server, provider))
    assert said == [f"asking whether {provider}:some-1 answers"]
    assert len(server.received) == len(replies)


@pytest.mark.parametrize("provider", FORMATS)
@pytest.mark.parametrize(("reply", "requests", "reason"), REFUSES.values(), ids=REFUSES)
def test_it_cannot_be_asked(reply: Reply, requests: int, reason: str, provider: str) -> None:
    with LlmServer(reply) as server:
        timeout_s = 0.6 if reason is SILENT else 20.0
        with pytest.raises(UsageError) as told:
            ask(model(server, provider, timeout_s))
    assert reason in str(told.value)
    assert "mend --model, --base-url or the key" in str(told.value)
    assert "\n" not in str(told.value)
    assert len(server.received) == requests


@pytest.mark.parametrize("provider", FORMATS)
def test_nobody_listens(provider: str) -> None:
    with LlmServer(READY) as server:
        gone = model(server, provider)
    begun = time.monotonic()
    with pytest.raises(UsageError, match=r"ConnectError.*5 attempts"):
        ask(gone)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("provider", FORMATS)
def test_a_key_that_the_server_repeats_is_not_told(provider: str) -> None:
    body = f'{{"error": {{"message": "no such key: {KEY}", "type": "x"}}}}'.encode()
    with LlmServer(Reply(status=401, raw=body)) as server, pytest.raises(UsageError) as told:
        ask(model(server, provider))
    assert "no such key" in str(told.value)
    assert KEY not in str(told.value)


def test_a_replay_asks_nobody() -> None:
    assert ask(ModelOptions(model="openai:some-1", replay="recorded")) == []


# --- within a run -------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", FORMATS)
def test_what_is_refused_as_a_stream_is_asked_plainly(provider: str, tmp_path: Path) -> None:
    with LlmServer(Reply(status=400), GOOD) as server:
        writer = ModelWriter(model(server, provider), tmp_path, backoff_s=0.01)
        written = [writer.write(BRIEF, Run()) for _ in range(2)]
    assert [each.source for each in written if isinstance(each, Written)] == [FASTER] * 2
    streamed = [bool(received.body.get("stream")) for received in server.received]
    assert streamed == [True, False, False]  # it is not asked for a stream again


@pytest.mark.parametrize("provider", FORMATS)
def test_a_stall_while_it_chooses_ends_its_turn(provider: str, tmp_path: Path) -> None:
    tasks = (TASK, replace(TASK, optimization="eviction-policy"))
    with LlmServer(Reply(silent=True)) as server:
        chooses = replace(model(server, provider, 0.6), choose=True)
        chosen = ModelWriter(chooses, tmp_path).choose(replay(HISTORY[:3]), tasks)
    assert isinstance(chosen, Refused)
    assert chosen.hopeless
    assert len(server.received) == 1


@pytest.mark.parametrize("provider", FORMATS)
def test_a_replay_needs_neither_url_nor_key(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LlmServer(GOOD) as server:
        ModelWriter(model(server, provider), tmp_path / "first").write(BRIEF, Run())
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.delenv(f"{name}_API_KEY")
    options = ModelOptions(model=f"{provider}:some-1", replay=str(tmp_path / "first"))
    check(options)
    written = ModelWriter(options, tmp_path / "again").write(BRIEF, Run())
    assert isinstance(written, Written), written
    assert written.source == FASTER


GONE: Mapping[str, tuple[str, Reply, str]] = {
    "no such name": ("openai", Reply(status=404), "answers 404"),
    "HTML": ("openai-responses", Reply(raw=b"<!doctype html><p>Hi"), "answers HTML"),
    "silence": ("anthropic", Reply(silent=True), SILENT),
    "errors": ("openai", Reply(status=500), "answers 500"),
}


@pytest.mark.full
@pytest.mark.parametrize(("provider", "reply", "told"), GONE.values(), ids=GONE)
def test_a_run_ends_where_its_model_is_gone(
    provider: str, reply: Reply, told: str, tmp_path: Path
) -> None:
    repo = make_repo(tmp_path, COUNTED)
    with LlmServer(READY, reply) as server:
        options = model(server, provider)
        at = ["--model", options.model, "--base-url", options.base_url, "--json", "--yes"]
        at += [
            "--python",
            warm_interpreter(),
            "--proposer",
            "model",
            "--model-request-timeout-s",
            "2",
        ]
        ended = tile_agent(repo, "run", *at, "--kernel", "double.py")
    assert ended.code == ExitCode.ESCALATED, ended.err
    assert ended.json["stop"]["reason"] == StopReason.UNANSWERED
    assert told in ended.json["stop"]["detail"]
    assert "exhausted" not in ended.out + ended.err
    assert "no improvement found" not in ended.err


@pytest.mark.parametrize("provider", FORMATS)
def test_a_run_is_refused_or_says_that_nobody_answers(provider: str, tmp_path: Path) -> None:
    """A wrong key at first; then one that is withdrawn once the run has begun."""
    repo = make_repo(tmp_path, COUNTED)
    with LlmServer(Reply(status=401), READY, Reply(status=401)) as server:
        options = model(server, provider)
        at = ["--model", options.model, "--base-url", options.base_url, "--json", "--yes"]
        at += ["--python", warm_interpreter(), "--proposer", "model", "--kernel", "double.py"]
        refused = tile_agent(repo, "run", *at)
        assert refused.code == ExitCode.USAGE, refused.err
        assert "answers 401" in refused.json["error"]
        assert git(repo, "branch", "--list", "tile-agent/*") == ""
        assert not (repo / "sandbox").exists()
        ended = tile_agent(repo, "run", *at)
    assert ended.code == ExitCode.ESCALATED, ended.err
    assert ended.json["stop"]["reason"] == StopReason.UNANSWERED
    assert "answers 401" in ended.json["stop"]["detail"]
    assert "no improvement found" not in ended.err
    assert "exhausted" not in ended.out + ended.err
    assert KEY not in refused.out + refused.err + ended.out + ended.err
    for path in (repo / "sandbox").rglob("*"):
        assert path.is_dir() or KEY not in path.read_text()
