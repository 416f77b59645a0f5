"""Secrets in texts: found by the variables that hold them, and by their shape."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.redaction import (
    REMOVED,
    holds_secret,
    is_secret,
    leaked,
    redact,
    redact_stream,
    redact_values,
)

KEY = "sk-test-0123456789abcdef0123"
ENVIRON = {
    "SOME_API_KEY": "correct-horse-battery",
    "DATABASE_URL": "postgres://me:p%40ss-word-9@db.example.com/x",
    "QUOTED_SECRET": 'has "quotes" in it',
    "SHORT_KEY": "abc",
    "PATH": "/usr/bin:/bin",
}


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "aws_session_token", "DB_PASSWORDS", "MYSQL_PWD", "DB_PASS", "SENTRY_DSN",
     "GOOGLE_APPLICATION_CREDENTIALS", "SSH_PASSPHRASE", "SECRET_NAME", "KEYS"],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "PWD", "OLDPWD", "TOKENIZERS_PARALLELISM", "MAX_OUTPUT_TOKENS", "KEYBOARD",
     "SSH_AUTH_SOCK", "XAUTHORITY", "COMPASS"],
)  # fmt: skip
def test_names_of_no_secrets(name: str) -> None:
    assert not is_secret(name)
    assert not holds_secret(name, "/some/where:8080")


@pytest.mark.parametrize(
    "text",
    [
        "the key correct-horse-battery is wrong",
        "postgres://me:p%40ss-word-9@db.example.com/x cannot be reached",
        "the password p@ss-word-9 is wrong",
        json.dumps({"said": 'has "quotes" in it'}),
        "redis://:another-password@cache:6379/0",
        "https://user:pw@index.example.com/simple",
        f"Incorrect API key provided: {KEY}.",
        "Authorization: Bearer abcdefgh12345678",
    ],
)
def test_what_is_removed(text: str) -> None:
    told = redact(text, ENVIRON)
    assert REMOVED in told
    for part in ("correct-horse", "ss-word-9", "quotes", "another-p", ":pw@", KEY, "abcdefgh"):
        assert part not in told


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8080/v1 answers 500",
        "git@github.com:owner/name.git",
        "ssh://git@github.com/owner/name",
        "abc is short; user@example.com; a://b",
        "x: tl.constexpr @ 3:4",
    ],
)
def test_what_stays(text: str) -> None:
    assert redact(text, ENVIRON) == text


def test_values_keep_their_shape() -> None:
    value = {"correct-horse-battery": ["correct-horse-battery", 1, None, (True, 0.5)]}
    assert redact_values(value, ENVIRON) == {
        "correct-horse-battery": [REMOVED, 1, None, [True, 0.5]]
    }


def test_a_leak_is_what_was_not_there_before() -> None:
    assert leaked("x = 'correct-horse-battery'", "x = ''", ENVIRON) == "SOME_API_KEY"
    assert leaked("p@ss-word-9", "", ENVIRON) == "DATABASE_URL"
    assert leaked("# correct-horse-battery\ny = 2", "# correct-horse-battery", ENVIRON) is None
    assert leaked("abc", "", ENVIRON) is None


def _events(*pieces: str) -> str:
    chunks: list[Any] = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize("secret", ["correct-horse-battery", KEY, "redis://:another-password@c/0"])
def test_a_secret_that_a_stream_spells_out(secret: str, size: int) -> None:
    said = f"first {secret} second {secret}; third"
    pieces = [said[begin : begin + size] for begin in range(0, len(said), size)]
    kept = redact_stream(_events(*pieces), ENVIRON)
    assert kept.endswith("data: [DONE]\n\n")
    told = "".join(
        json.loads(line.removeprefix("data: "))["choices"][0]["delta"]["content"]
        for line in kept.splitlines()
        if line.startswith("data: {")
    )
    assert told.count(REMOVED) == 2
    assert told.startswith("first ") and told.endswith("; third")
    for part in ("correct-horse", "battery", "0123456789abcdef", "another-password"):
        assert part not in told


def test_a_stream_without_secrets_is_byte_for_byte_as_it_was() -> None:
    body = _events("one", " two", "\x00 three\ud800") + ": comment\r\nevent: x\r\ndata: {not json"
    assert redact_stream(body, ENVIRON) == body
