"""What a writer answers: the new kernel file or edits of it, and what must be true of the result.

Whoever writes candidates with judgement (a model, an agent program, an assistant) is held to the
same rules: `problems` says what keeps a text from being judged at all. Whether it is right and
faster is the harness's matter.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst

from agent.backends import detect
from agent.proposers.forgotten import forgotten
from agent.proposers.interface import broken_interface
from agent.proposers.misplaced import misplaced
from agent.redaction import leaked
from agent.syntax import Source
from agent.syntax.source import BYTE_ORDER_MARK

MOST_BYTES = 1_000_000
"""A kernel file that is longer than this is no kernel file."""
MOST_PROBLEMS = 12


DOCSTRINGS_TELL = {"use_attribute_docstrings": True}
"""For pydantic, where it is there: what stands below a field is what a model is told of it."""


class Unusable(Exception):
    """An answer that gives no text; `problems` has one line for each thing wrong with it."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Edit:
    """One replacement in the kernel file."""

    __pydantic_config__: ClassVar = DOCSTRINGS_TELL

    search: str
    """Text that occurs exactly once in the file, copied with its indentation."""
    replace: str
    """What stands there instead."""


@dataclass(frozen=True)
class Answer:
    """A new version of the kernel file that carries out the one optimization asked for."""

    __pydantic_config__: ClassVar = DOCSTRINGS_TELL

    hypothesis: str
    """Why the kernel should become faster, in one or two sentences."""
    title: str = ""
    """What you did, in two to six words, for a table."""
    expected_gain: float | None = None
    """The part of the kernel's latency that it should save: 0.1 for 10 %. Null when unknown."""
    risk: str = ""
    """What could go wrong, in one sentence: numerics, registers, shapes it was not made for."""
    source: str | None = None
    """The whole new text of the kernel file. Give either this or `edits`."""
    edits: tuple[Edit, ...] = ()
    """Replacements in the kernel file, each of a text that occurs in it exactly once."""


def apply(answer: Answer, before: str) -> str:
    """The new text of the kernel file, with the line endings that it had.

    Raises:
        Unusable: the answer holds no new text, or its edits do not fit.
    """
    if answer.source is not None and answer.edits:
        raise Unusable("the answer holds both a whole file and edits: give one of them")
    if answer.source is not None:
        text = _as_file(_unfenced(answer.source), before)
    elif answer.edits:
        text = _edited(answer.edits, before)
    else:
        raise Unusable("the answer holds neither a whole file nor an edit")
    if len(text.encode(errors="replace")) > MOST_BYTES:
        raise Unusable(f"the file would have more than {MOST_BYTES} bytes")
    return text


def problems(before: Source, after: str) -> tuple[str, ...]:
    """Why a new text of the kernel file cannot be tried, one line each; empty when it can.

    It holds no secret; it parses; it is another program; and what callers use is still there.
    """
    if name := leaked(after, before.text, os.environ):
        return (f"the new text holds the value of {name}",)
    unparsed = _unparsed(after)
    if unparsed:
        return (unparsed,)
    if _same_program(before.text, after):
        return ("nothing but comments or layout has changed",)
    source = Source(after, before.path)
    if detect(source) is None:
        return ("the file holds no kernel any more",)
    return _cut(broken_interface(before, source))


def doubts(before: Source, after: str) -> tuple[str, ...]:
    """What a new text does that `before` did not do and that has no place in a kernel file; and
    which parameters of a kernel it no longer reads.

    It may still be tried: a text can hide what it does, or have an honest reason for it. What
    decides is what the harness sees it do; this tells a person where to look.
    """
    if _unparsed(after):
        return ()
    source = Source(after, before.path)
    return _cut((*misplaced(before, source), *forgotten(before, source)))


def _cut(found: Sequence[str]) -> tuple[str, ...]:
    left = len(found) - MOST_PROBLEMS
    return tuple(found) if left <= 0 else (*found[:MOST_PROBLEMS], f"and {left} more")


# --- text ---------------------------------------------------------------------------------------


def _as_file(text: str, before: str) -> str:
    """A text with the byte order mark, line endings and last newline of the file."""
    mark = BYTE_ORDER_MARK if before.startswith(BYTE_ORDER_MARK) else ""
    lines = text.removeprefix(BYTE_ORDER_MARK).replace("\r\n", "\n")
    return mark + _with_ending(lines.rstrip("\n") + "\n", before)


def _with_ending(text: str, before: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in before else text


def _unfenced(text: str) -> str:
    """The text inside a Markdown fence, when all of it stands in one."""
    lines = text.strip().splitlines()
    if len(lines) > 2 and lines[0].startswith("```") and lines[-1].strip() == lines[0][:3]:
        return "\n".join(lines[1:-1])
    return text


def _edited(edits: tuple[Edit, ...], before: str) -> str:
    """The text after the edits, all of which speak of the text before any of them."""
    wrong: list[str] = []
    spans: list[tuple[int, int, str]] = []
    for number, edit in enumerate(edits, 1):
        search = _with_ending(edit.search, before)
        count = before.count(search) if search else 0
        if count == 1:
            begin = before.index(search)
            spans.append((begin, begin + len(search), _with_ending(edit.replace, before)))
        else:
            wrong.append(f"edit {number}: {_miss(search, before, count)}")
    spans.sort(key=lambda span: span[:2])
    for (_, end, _), (begin, _, _) in itertools.pairwise(spans):
        if begin < end:
            line = before.count("\n", 0, begin) + 1
            wrong.append(f"two edits overlap at line {line}: make one of them")
    if wrong:
        raise Unusable(*wrong)
    text = before
    for begin, end, replacement in reversed(spans):
        text = text[:begin] + replacement + text[end:]
    return text


def _miss(search: str, before: str, count: int) -> str:
    """Why a search text is of no use, and where it may have been meant."""
    if not search.strip():
        return "its search text is blank"
    if count > 1:
        return f"its search text occurs {count} times: add lines around it until it occurs once"
    wanted = next(line.strip() for line in search.splitlines() if line.strip())
    lines = before.splitlines()
    close = difflib.get_close_matches(wanted, [line.strip() for line in lines], n=1, cutoff=0.6)
    if not close:
        return f"its search text does not occur, and no line resembles `{wanted}`"
    line = next(i for i, text in enumerate(lines, 1) if text.strip() == close[0])
    return f"its search text does not occur; line {line} is `{lines[line - 1]}`"


# --- what a text is -----------------------------------------------------------------------------


def _unparsed(text: str) -> str | None:
    """Why a text is no Python, in one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is the file's own matter
            compile(text.removeprefix(BYTE_ORDER_MARK), "kernel", "exec", dont_inherit=True)
        _ = Source(text).module
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return f"does not parse: {where}{error.msg}"
    except cst.ParserSyntaxError as error:
        return f"does not parse: line {error.raw_line}: {error.message}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"does not parse: {str(error) or type(error).__name__}"
    return None


def _same_program(one: str, other: str) -> bool:
    trees = (ast.parse(text.removeprefix(BYTE_ORDER_MARK)) for text in (one, other))
    first, second = (ast.dump(tree) for tree in trees)
    return first == second
