"""Results to stdout, progress to stderr, JSON where it was asked for; drawn for a terminal."""

from __future__ import annotations

import json
import sys
from typing import Any

_json = False
_context: dict[str, str] = {}


def use_json(wanted: bool) -> None:
    """From here on results and errors are JSON."""
    global _json
    _json = wanted


def remember(**facts: str) -> None:
    """Facts that an error, should one come, is reported with."""
    _context.update(facts)


def forget() -> None:
    """What was remembered is not so any more: the run has been taken back."""
    _context.clear()


def result(value: dict[str, Any], text: str) -> None:
    """The result of a command: the value as JSON, or the text for a person."""
    if _json:
        print(json.dumps(value, indent=2))
    elif sys.stdout.isatty():
        from agent.cli import drawing

        drawing.draw_text(text.rstrip("\n"))
    else:
        print(text.rstrip("\n"))


def progress(line: str) -> None:
    """One line on what is going on."""
    if sys.stderr.isatty():
        from agent.cli import drawing

        drawing.draw_progress(line)
    else:
        print(line, file=sys.stderr, flush=True)


def failed(message: str, code: int) -> int:
    """One line on what went wrong. Returns the exit code."""
    line = " ".join(message.split())
    if _json:
        print(json.dumps({"error": line, "exit_code": int(code)} | _context))
    print(f"tile-agent: {line}", file=sys.stderr, flush=True)
    return int(code)


def fault(problem: Exception) -> None:
    """A fault of ours: the traceback follows on stderr, and stdout still holds JSON."""
    if _json:
        print(json.dumps({"error": repr(problem), "exit_code": 1} | _context))


def interactive() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()
