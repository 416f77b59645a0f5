"""What went over the wire, kept in the run's folder: one file an exchange, without secrets.

Recordings are numbered on from those that are there, so that a resumed run adds to them, and a
file is either whole or absent. A folder of them can answer in place of the network.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from agent.redaction import redact, redact_stream

HEADERS = frozenset(
    {
        "accept",
        "anthropic-beta",
        "anthropic-version",
        "content-type",
        "request-id",
        "retry-after",
        "user-agent",
        "x-request-id",
    }
)
"""The only headers that are kept: keys, cookies and names of accounts travel in others."""
LOCATION = "{number:04d}.json"


class ReplayFailed(Exception):
    """The recordings do not answer this request; the message says why."""


@dataclass(frozen=True)
class Exchange:
    """One request and what came of it."""

    method: str
    url: str
    request_headers: Mapping[str, str]
    request: str
    """The body as it was sent."""
    status: int = 0
    """0: no answer came."""
    response_headers: Mapping[str, str] | None = None
    response: bytes = b""
    """The body, or what had come of it when the connection ended."""
    error: str = ""
    """Why the answer is missing or not whole."""
    took_s: float = 0.0

    @property
    def kind(self) -> tuple[str, str, str, bool]:
        """What a recording must have in common with a request to answer it."""
        body = _json(self.request)
        fields = body if isinstance(body, dict) else {}
        path = urlsplit(self.url).path
        return self.method, path, str(fields.get("model", "")), bool(fields.get("stream"))


def to_text(exchange: Exchange, environ: Mapping[str, str]) -> str:
    """An exchange as JSON, with secrets removed. Every byte of the answer can be had back."""
    data = {
        "method": exchange.method,
        "url": _without_credentials(exchange.url),
        "took_s": round(exchange.took_s, 3),
        "request": {
            "headers": _kept(exchange.request_headers),
            "body": _json(redact(exchange.request, environ)),
        },
        "response": {
            "status": exchange.status,
            "headers": _kept(exchange.response_headers or {}),
            "body": redact_stream(exchange.response.decode("utf-8", "surrogateescape"), environ),
        },
        "error": redact(exchange.error, environ),
    }
    return json.dumps(data, indent=1) + "\n"


def from_text(text: str) -> Exchange:
    """The exchange that a recording holds.

    Raises:
        ValueError: it is none.
    """
    try:
        data = json.loads(text)
        request, response = data["request"], data["response"]
        body = request["body"]
        return Exchange(
            method=data["method"],
            url=data["url"],
            request_headers=request["headers"],
            request=body if isinstance(body, str) else json.dumps(body),
            status=int(response["status"]),
            response_headers=response["headers"],
            response=response["body"].encode("utf-8", "surrogateescape"),
            error=data["error"],
            took_s=float(data["took_s"]),
        )
    except (KeyError, TypeError, AttributeError) as missing:
        raise ValueError(f"no recorded exchange: {missing!r}") from None


def recordings(folder: Path) -> list[Path]:
    """The recordings of a folder, oldest first."""
    return sorted(folder.glob("[0-9]" * 4 + ".json"))


class ExchangeRecorder:
    """Writes exchanges into a folder."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        """Take the folder, which need not be there, and the variables that may hold secrets."""
        self._folder = folder
        self._environ = os.environ if environ is None else environ

    def record(self, exchange: Exchange) -> Path:
        """Write one, under the number after the last."""
        self._folder.mkdir(parents=True, exist_ok=True)
        there = recordings(self._folder)
        number = int(there[-1].stem) + 1 if there else 1
        path = self._folder / LOCATION.format(number=number)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(to_text(exchange, self._environ), encoding="utf-8")
        unfinished.replace(path)
        return path


class Replay:
    """Answers from recordings, in their order."""

    def __init__(self, folder: Path) -> None:
        """Take the folder; it is read as it is needed."""
        self._folder = folder
        self._next = 0

    def go_on_from(self, count: int) -> None:
        """Leave out what a run had used before it was resumed."""
        self._next = max(self._next, count)

    def answer(self, request: Exchange) -> Exchange:
        """The next recording.

        Raises:
            ReplayFailed: there is none left, it is damaged, or it answers another kind of request.
        """
        paths = recordings(self._folder)
        if self._next >= len(paths):
            raise ReplayFailed(f"the recording in {self._folder} ends after {len(paths)} exchanges")
        path = paths[self._next]
        try:
            recorded = from_text(path.read_text(encoding="utf-8"))
        except ValueError as problem:
            raise ReplayFailed(f"{path}: {problem}") from None
        if recorded.kind != request.kind:
            raise ReplayFailed(
                f"{path} answers {_shown(recorded)}, and what is asked is {_shown(request)}"
            )
        self._next += 1
        return recorded


def _shown(exchange: Exchange) -> str:
    method, path, model, streams = exchange.kind
    return f"{method} {path} for {model or 'no model'}{' as a stream' if streams else ''}"


def _json(text: str) -> Any:
    """JSON as a value, which is easier to read in a recording; any other text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): text for name, text in headers.items() if name.lower() in HEADERS}


def _without_credentials(url: str) -> str:
    """A URL without user, password and query, any of which may hold a key."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
