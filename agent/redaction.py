"""Keeps secrets out of what is handed on and of what is written down."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)", re.IGNORECASE)
_SHORTEST = 8
"""Shorter values are words, numbers and switches; blotting them out would garble every text."""
_SHAPES = re.compile(
    r"""
      \b(?:sk|pk|rk|xai|gsk|hf|nvapi|key)[-_][A-Za-z0-9_-]{16,}   # keys of model providers
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,}
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


def redact(text: str, environ: Mapping[str, str]) -> str:
    """The text without the values of secret variables, and without what is shaped like a key."""
    values = {v for name, v in environ.items() if is_secret(name) and len(v) >= _SHORTEST}
    for value in sorted(values, key=len, reverse=True):  # one may be a part of another
        text = text.replace(value, REMOVED)
    return _SHAPES.sub(REMOVED, text)
