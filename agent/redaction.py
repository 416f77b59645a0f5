"""Keeps secrets out of what is handed on and of what is written down."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

_NAME = re.compile(
    r"""
    (?: KEYS? | TOKEN | SECRETS? | PASSWORDS? | PASSWD | PASSPHRASE | CREDENTIALS? | COOKIES? )
      (?: _ | $ )
    | _(?: PASS | PWD | PAT | DSN | AUTH ) $
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SHORTEST = 8
"""Shorter values are words, numbers and switches; blotting them out would garble every text."""
_IN_URL = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?P<user>[^\s/?#:@]*):(?P<password>[^\s/?#@]+)@"
)
"""`scheme://user:password@`, of a database, a proxy, a package index."""
_SHAPES = re.compile(
    r"""
      \b(?:sk|pk|rk|xai|gsk|hf|nvapi|key)[-_][A-Za-z0-9_-]{16,}   # keys of model providers
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,} | \bglpat-[A-Za-z0-9_-]{16,}
    | \bAKIA[A-Z0-9]{16}\b
    | \bAIza[A-Za-z0-9_-]{30,}
    | (?<=[Bb]earer\ )[A-Za-z0-9._~+/-]{8,}=*
    | -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY-----.*?-----END\ [A-Z\ ]*PRIVATE\ KEY-----
    """,
    re.VERBOSE | re.DOTALL,
)
REMOVED = "[secret removed]"


def is_secret(name: str) -> bool:
    """Whether a variable's name says that its value is a secret: `..._KEY`, `..._TOKEN`."""
    return _NAME.search(name) is not None


def holds_secret(name: str, value: str) -> bool:
    """Whether a variable is a secret by its name, or holds one: a key, a URL with a password."""
    return is_secret(name) or bool(_IN_URL.search(value) or _SHAPES.search(value))


def redact(text: str, environ: Mapping[str, str]) -> str:
    """The text without the values of secret variables, and without what is shaped like a secret."""
    for value in _values(environ):
        text = text.replace(value, REMOVED)
    text = _IN_URL.sub(rf"\g<scheme>{REMOVED}@", text)
    return _SHAPES.sub(REMOVED, text)


def redact_values(value: Any, environ: Mapping[str, str]) -> Any:
    """Plain JSON values, the texts in them redacted; a key is left as it is."""
    match value:
        case str():
            return redact(value, environ)
        case dict():
            return {key: redact_values(inner, environ) for key, inner in value.items()}
        case list() | tuple():
            return [redact_values(inner, environ) for inner in value]
    return value


def leaked(text: str, before: str, environ: Mapping[str, str]) -> str | None:
    """The name of a secret variable whose value a text holds and the text before did not."""
    for name, value in environ.items():
        for secret in _forms(name, value):
            if secret in text and secret not in before:
                return name
    return None


def redact_stream(body: str, environ: Mapping[str, str]) -> str:
    """Server-sent events without secrets, also those that the events spell out piece by piece."""
    lines = body.split("\n")
    events = {number: _event(line) for number, line in enumerate(lines)}
    pieces = [piece for event in events.values() for piece in _pieces(event)]
    whole = "".join(piece.text for piece in pieces)
    if redact(whole, environ) == whole:
        return redact(body, environ)
    for begin, end in _spans(whole, environ):
        position = 0
        for piece in pieces:
            piece.blot(begin - position, end - position)
            position += piece.size
    for number, event in events.items():
        if event is not None:
            lines[number] = f"data: {json.dumps(event)}"
    return redact("\n".join(lines), environ)


# --- secrets ------------------------------------------------------------------------------------


def _values(environ: Mapping[str, str]) -> list[str]:
    """What must not be seen, the longest first: one may be a part of another."""
    found = {form for name, value in environ.items() for form in _forms(name, value)}
    return sorted(found, key=len, reverse=True)


@lru_cache(maxsize=1024)  # asked of every variable again for each of a thousand texts
def _forms(name: str, value: str) -> tuple[str, ...]:
    """The secrets of a variable, in the forms in which a text could hold them."""
    secrets = {value} if is_secret(name) else set()
    secrets |= {unquote(match["password"]) for match in _IN_URL.finditer(value)}
    return tuple(
        form
        for secret in secrets
        if len(secret) >= _SHORTEST
        for form in {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}
    )


# --- a stream of events -------------------------------------------------------------------------

_SPELLED = {"content", "text", "arguments", "partial_json", "delta", "refusal", "thinking"}
"""What the fields are called by which providers send a text in pieces."""
_HERE, _GONE = "\1", "\0"
"""Stand for the first character of a secret, and for the others."""


class _Piece:
    """One field of an event, with a part of the text."""

    def __init__(self, holder: dict[str, Any], field: str) -> None:
        self._holder = holder
        self._field = field
        self.text: str = holder[field]
        self.size = len(self.text)

    def blot(self, begin: int, end: int) -> None:
        """Remove what of the text lies between two places, which may lie outside of it."""
        if begin < self.size and end > 0:
            kept = [
                c if c == _HERE or not begin <= place < end else _HERE if place == begin else _GONE
                for place, c in enumerate(self.text)
            ]
            self.text = "".join(kept)
            self._holder[self._field] = self.text.replace(_GONE, "").replace(_HERE, REMOVED)


def _event(line: str) -> Any:
    if not line.startswith("data:"):
        return None
    try:
        return json.loads(line[len("data:") :])
    except ValueError:
        return None


def _pieces(value: Any) -> Iterator[_Piece]:
    if isinstance(value, dict):
        for field, inner in value.items():
            if field in _SPELLED and isinstance(inner, str):
                yield _Piece(value, field)
            else:
                yield from _pieces(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _pieces(inner)


def _spans(text: str, environ: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    """Where the secrets of a text lie."""
    for value in _values(environ):
        yield from (match.span() for match in re.finditer(re.escape(value), text))
    yield from (match.span("password") for match in _IN_URL.finditer(text))
    yield from (match.span() for match in _SHAPES.finditer(text))
