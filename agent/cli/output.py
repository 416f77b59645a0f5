"""Results to stdout, progress to stderr, JSON where it was asked for; drawn for a terminal.

Nothing leaves here with a secret in it, whoever said it.
"""

from __future__ import annotations

import errno
import json
import os
import select
import stat
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from agent.errors import UsageError

_json = False
_quiet = False
_context: dict[str, str] = {}
_show: Callable[[str], None] | None = None
"""Who shows a line of progress; the terminal or the pipe itself where there is nobody."""


def use_json(wanted: bool) -> None:
    """From here on results and errors are JSON."""
    global _json
    _json = wanted


def is_json() -> bool:
    """Whether results and errors are JSON."""
    return _json


def be_quiet(wanted: bool) -> None:
    """From here on there is no progress: results and errors alone."""
    global _quiet
    _quiet = wanted


@contextmanager
def shown_by(show: Callable[[str], None]) -> Iterator[None]:
    """While the block lasts, lines of progress go to `show`, which has the terminal."""
    global _show
    _show = show
    try:
        yield
    finally:
        _show = None


def remember(**facts: str) -> None:
    """Facts that an error, should one come, is reported with."""
    _context.update(facts)


def knows(fact: str) -> bool:
    """Whether it is remembered."""
    return fact in _context


def forget() -> None:
    """What was remembered is not so any more: the run has been taken back."""
    _context.clear()


def result(value: dict[str, Any], text: str, *, is_diff: bool = False) -> None:
    """The result of a command: the value as JSON, or the text for a person."""
    text = _text(without_secrets(text)).rstrip("\n")
    if _json:
        print(as_json(value))
    elif sys.stdout.isatty():
        from agent.cli import drawing

        draw = drawing.draw_diff if is_diff else drawing.draw_text
        draw(text)
    else:
        print(text)


def as_json(value: dict[str, Any]) -> str:
    """The text of a result as JSON."""
    return json.dumps(without_secrets(value), indent=2)


def write(path: Path, text: str) -> None:
    """Write what was made of a result without secrets to a file that the user named.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        path.write_text(f"{_text(text).rstrip()}\n", encoding="utf-8")
    except OSError as problem:
        if problem.errno == errno.ENOSPC:
            raise
        why = problem.strerror or problem
        raise UsageError(f"{path} cannot be written ({why}): name another with --output") from None


def progress(line: str) -> None:
    """One line on what is going on."""
    if _quiet:
        return
    line = _text(without_secrets(line))
    if _show is not None:
        _show(line)
    elif sys.stderr.isatty():
        from agent.cli import drawing

        drawing.draw_progress(line, sys.stderr)
    else:
        print(line, file=sys.stderr, flush=True)


def line(text: str) -> None:
    """One line of a result that comes bit by bit; progress where the result is to be JSON."""
    if _json or _show is not None:
        progress(text)
    else:
        print(_text(without_secrets(text)), flush=True)


def failed(message: str, code: int) -> int:
    """One line on what went wrong. Returns the exit code."""
    line = without_secrets(" ".join(message.split()))
    if _json:
        print(json.dumps({"error": line, "exit_code": int(code)} | _context))
    print(f"tile-agent: {line}", file=sys.stderr, flush=True)
    return int(code)


def fault(problem: Exception) -> None:
    """A fault of ours: the traceback follows on stderr, and stdout still holds JSON."""
    if _json:
        error = without_secrets(repr(problem))
        print(json.dumps({"error": error, "exit_code": 1} | _context))


def print_traceback(
    kind: type[BaseException], problem: BaseException, trace: TracebackType | None
) -> None:
    """What `sys.excepthook` does, without secrets."""
    text = "".join(traceback.format_exception(kind, problem, trace))
    print(without_secrets(text), end="", file=sys.stderr, flush=True)


def without_secrets(value: Any) -> Any:
    """Plain JSON values, or a text, that can leave this process."""
    from agent.redaction import redact_values  # the list of the commands has nothing to hide

    return redact_values(value, os.environ)


def _text(text: str) -> str:
    """What can be printed of a text: what a candidate says of itself may be none."""
    return text.encode(errors="backslashreplace").decode()


def may_draw() -> bool:
    """Whether a person looks on, at a terminal that can be drawn on: nobody pipes the result."""
    seen = sys.stdout.isatty() and sys.stderr.isatty()
    return seen and not _quiet and os.environ.get("TERM", "dumb") != "dumb"


def interactive() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def answered() -> str:
    """What is written to standard input already where no person is asked: a pipe's first line.

    It never waits: a pipe that nobody writes to and that nobody closes is no answer.
    """
    try:
        descriptor = sys.stdin.fileno()
        kind = os.fstat(descriptor).st_mode
        if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)):
            return ""
        if not select.select([descriptor], [], [], 0)[0]:
            return ""
        lines = os.read(descriptor, 1024).decode(errors="replace").splitlines()
    except (AttributeError, OSError, ValueError):  # closed, or no file at all
        return ""
    return lines[0].strip() if lines else ""
