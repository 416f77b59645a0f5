"""Whether what is to be written is Python, for the oldest one that is likely to read it.

LibCST reads what the newest Python does, and an edit may put a string into an f-string: a port that
nobody can import would be told as one that is written.
"""

from __future__ import annotations

import ast
import warnings
from difflib import SequenceMatcher

import libcst as cst

from agent.porting.refusal import NotPortable
from agent.syntax import Source

OLDEST = (3, 10)
"""Before 3.12 an f-string's quotes are not those of a string in it."""


def within_f_strings(source: Source, node: cst.CSTNode, word: str) -> str:
    """A plain word as a string literal, in quotes that none of the f-strings around it has."""
    around = [a.end for a in source.ancestors(node) if isinstance(a, cst.FormattedString)]
    taken = {end[0] for end in around}
    quote = next((each for each in "\"'" if each not in taken), '"')
    return f"{quote}{word}{quote}"


def must_parse(text: str, origin: str, path: str) -> None:
    """Refuse a port that does not parse.

    Args:
        text: the port.
        origin: what it was made of; what is too new in it already stays so.
        path: of the origin.

    Raises:
        NotPortable: it does not parse.
    """
    oldest = OLDEST if _problem(origin, OLDEST) is None else None
    problem = _problem(text, oldest)
    if problem is None or _problem(origin, None) is not None:
        return
    raise NotPortable(
        path,
        _line_of(origin, text, problem.lineno or 1),
        "something of this statement, of which the port would be no valid Python,",
        problem.msg,
        "write it in another way",
    )


def _problem(text: str, version: tuple[int, int] | None) -> SyntaxError | None:
    """Why a text is not Python; None where it is."""
    try:
        with warnings.catch_warnings():  # what the origin's strings escape is its own
            warnings.simplefilter("ignore")
            ast.parse(text.removeprefix("\ufeff"), feature_version=version)
    except SyntaxError as problem:
        return problem
    return None


def _line_of(origin: str, text: str, line: int) -> int:
    """The line of the origin that one of the port was most likely made of."""
    ours, theirs = text.splitlines(), origin.splitlines()
    blocks = SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes()
    for kind, first, last, begin, end in blocks:
        if begin < line <= end:
            if kind == "equal":
                return first + line - begin
            wanted = SequenceMatcher(None, "", ours[line - 1], autojunk=False)

            def likeness(number: int, wanted: SequenceMatcher[str] = wanted) -> float:
                wanted.set_seq1(theirs[number])
                return wanted.ratio()

            return max(range(first, last), key=likeness, default=max(first - 1, 0)) + 1
    return 1
