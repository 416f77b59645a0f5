"""What is kept of an exchange with a model, and answers that come out of recordings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.options import ModelOptions
from agent.proposers.model.exchange import (
    Exchange,
    ExchangeRecorder,
    Replay,
    ReplayFailed,
    from_text,
    recordings,
    to_text,
)
from agent.proposers.model.writer import ModelWriter
from agent.proposers.writer import Refused, Written
from agent.state import Run
from agent.usage import Usage
from tests.proposers.test_model import BRIEF, FASTER, GOOD, KEY, writer
from tests.support.llm_server import LlmServer, Reply

RECORDED = Path(__file__).parent.parent / "assets" / "exchanges"
"""Three exchanges with the loopback server: a 500, an answer with a fault, its repair."""
EXCHANGE = Exchange(
    method="POST",
    url="https://user:pass@api.example.com/v1/chat/completions?key=abc",
    request_headers={"Authorization": f"Bearer {KEY}", "X-Api-Key": KEY, "Cookie": "c=1",
                     "Content-Type": "application/json"},
    request=json.dumps({"model": "m", "messages": [f"my key is {KEY}"]}),
    status=200,
    response_headers={"Set-Cookie": "c=2", "openai-organization": "acme", "Request-Id": "r-1"},
    response=f"{{\"text\": \"{KEY} caf\u00e9\"}}".encode() + b"\xff\x00\r\n",
    took_s=1.23456,
)  # fmt: skip


def test_no_secret_is_kept() -> None:
    text = to_text(EXCHANGE, {"SOME_API_KEY": KEY, "MY_TOKEN": "hunter2-hunter2"})
    for secret in (KEY, "user:pass", "key=abc", "c=1", "c=2", "acme"):
        assert secret not in text
    kept = json.loads(text)
    assert kept["url"] == "https://api.example.com/v1/chat/completions"
    assert kept["request"]["headers"] == {"content-type": "application/json"}
    assert kept["response"]["headers"] == {"request-id": "r-1"}


def test_every_byte_of_an_answer_comes_back() -> None:
    response = b"caf\xc3\xa9\xff\x00\r\n"
    assert from_text(to_text(replace(EXCHANGE, response=response), {})).response == response


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"request": 1}', "null"])
def test_a_file_that_is_no_recording(text: str) -> None:
    with pytest.raises(ValueError):
        from_text(text)


def test_numbers_go_on_and_no_half_file_is_taken_for_one(tmp_path: Path) -> None:
    ExchangeRecorder(tmp_path / "model", {}).record(EXCHANGE)
    (tmp_path / "model" / "0002.part").write_text("{")  # a run that was killed
    assert ExchangeRecorder(tmp_path / "model", {}).record(EXCHANGE).name == "0002.json"
    assert [path.name for path in recordings(tmp_path / "model")] == ["0001.json", "0002.json"]


def test_a_replay_says_what_it_lacks(tmp_path: Path) -> None:
    recorder = ExchangeRecorder(tmp_path, {})
    recorder.record(EXCHANGE)
    replayed = Replay(tmp_path)
    with pytest.raises(ReplayFailed, match="answers POST /v1/chat/completions for m, and what is"):
        replayed.answer(replace(EXCHANGE, url="http://localhost/v1/messages"))
    assert replayed.answer(replace(EXCHANGE, url="http://localhost/v1/chat/completions")).status
    with pytest.raises(ReplayFailed, match="ends after 1 exchanges"):
        replayed.answer(EXCHANGE)
    recorder.record(EXCHANGE).write_text("no JSON")
    with pytest.raises(ReplayFailed, match=r"0002\.json"):
        replayed.answer(EXCHANGE)


@pytest.mark.full
def test_what_a_run_records_answers_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    replies = (Reply(status=500), Reply(text="prose"), GOOD)
    with LlmServer(*replies) as server:
        first = writer(server, "anthropic", tmp_path / "first").write(BRIEF, Run())
        assert all(KEY in str(received.headers) for received in server.received)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    again = _replaying(tmp_path / "first", tmp_path / "again", model="anthropic:some-1")
    second = again.write(BRIEF, Run())
    assert isinstance(first, Written)
    assert isinstance(second, Written)
    assert replace(second, usage=first.usage) == first
    assert second.usage.requests == first.usage.requests == 3
    one, other = (
        [from_text(path.read_text()) for path in recordings(tmp_path / folder)]
        for folder in ("first", "again")
    )
    assert [x.response for x in one] == [x.response for x in other]
    assert [x.status for x in one] == [500, 200, 200]
    assert KEY not in "".join(path.read_text() for path in recordings(tmp_path / "first"))

    ended = again.write(BRIEF, Run())
    assert isinstance(ended, Refused)
    assert ended.hopeless
    assert "ends after 3 exchanges" in ended.reason
    assert len(recordings(tmp_path / "again")) == 3


@pytest.mark.full
def test_a_replay_of_a_request_that_timed_out_ends_it_too(tmp_path: Path) -> None:
    with LlmServer(Reply(silent=True)) as server:
        slow = writer(server, "openai", tmp_path / "first", request_timeout_s=0.3)
        first = slow.write(BRIEF, Run())
    second = _replaying(tmp_path / "first", tmp_path / "again").write(BRIEF, Run())
    assert isinstance(first, Refused)
    assert isinstance(second, Refused)
    assert second.reason == first.reason


def test_the_recordings_of_the_repository(tmp_path: Path) -> None:
    written = _replaying(RECORDED, tmp_path).write(BRIEF, Run())
    assert isinstance(written, Written)
    assert written.source == FASTER
    assert written.usage.requests == 3


def test_a_resumed_run_goes_on_within_a_recording(tmp_path: Path) -> None:
    resumed = _replaying(RECORDED, tmp_path)
    written = resumed.write(BRIEF, Run(usage=Usage(requests=2)))
    assert isinstance(written, Written)
    assert written.usage.requests == 1


@pytest.mark.full
def test_an_interrupted_request_is_kept_and_holds_up_nobody(tmp_path: Path) -> None:
    """The process that asks is interrupted as Ctrl-C interrupts a run."""
    with LlmServer(Reply(silent=True)) as server:
        program = subprocess.Popen(
            [sys.executable, "-c", ASKING, server.url, str(tmp_path)],
            cwd=Path(__file__).parent.parent.parent,
            stdout=subprocess.PIPE,
            text=True,
        )
        while not server.received:
            assert program.poll() is None
            time.sleep(0.02)
        program.send_signal(signal.SIGINT)
        begun = time.monotonic()
        out, _ = program.communicate(timeout=120)
        assert time.monotonic() - begun < 60
    assert out == "interrupted\n"
    (kept,) = recordings(tmp_path)
    assert from_text(kept.read_text()).error == "interrupted"


ASKING = """
import signal, sys
from pathlib import Path
from agent.errors import Interrupted
from agent.options import ModelOptions
from agent.proposers.model.writer import ModelWriter
from agent.state import Run
from tests.proposers.test_model import BRIEF

def interrupt(*_):
    raise Interrupted

signal.signal(signal.SIGINT, interrupt)
options = ModelOptions(model="openai:some-1", base_url=sys.argv[1] + "/v1")
try:
    ModelWriter(options, Path(sys.argv[2])).write(BRIEF, Run())
except Interrupted:
    print("interrupted")
"""


def _replaying(recorded: Path, folder: Path, model: str = "openai:some-1") -> ModelWriter:
    """A writer without a network: the address it is given answers nobody."""
    given: dict[str, Any] = {"base_url": "http://127.0.0.1:9/v1"}
    if model.startswith("anthropic"):
        given["base_url"] = "http://127.0.0.1:9"
    return ModelWriter(ModelOptions(model=model, replay=str(recorded), **given), folder)
