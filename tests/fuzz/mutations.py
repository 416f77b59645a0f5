"""Real kernels, changed a little: seeds and mutations that leave Python behind."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from agent.playbook import PLAYBOOK

ROOT = Path(__file__).parents[2]
NUMBERS = ("0", "1", "-1", "3", "16", "128", "2**31", "10**30", "1.5", "0x40", "1_024", "True")
SNIPPETS = (
    "pass",
    "x = y = 1",
    "BLOCK_SIZE: int = 128",
    "del x",
    "global x",
    "import triton.language as tl2",
    "from triton.language import *",
    "if (n := 4): pass",
    "for _ in range(0): pass",
    "while True: break",
    "x = lambda *a, **k: a",
    "f'{x!r:>{4}}'; y = 2",
    "def inner(a, /, b=1, *c, d, **e): return a",
    "class Inner: x = 1",
    "assert x, 'no'",
    "return",
    "tl.store(x_ptr, tl.load(x_ptr))",
    "x[0], *y = z",
    "match x:\n    case 1: pass",
    "try: pass\nexcept Exception: raise",
)
OPERATORS = ("+", "-", "*", "/", "//", "%", "<<", "&", "|", "**", "@", "<", "==")
MOST_BYTES = 8_000

Edit = tuple[int, int, int]
"""What is done, where, and with what."""
EDITS = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 9_999), st.integers(0, 9_999)),
    min_size=1,
    max_size=6,
)


@cache
def seeds(folders: tuple[Path, ...] = ()) -> tuple[str, ...]:
    """The kernels of the entries' own examples and of the repository's, and what folders hold."""
    texts = {entry.before: None for entry in PLAYBOOK}
    paths = [*sorted((ROOT / "examples").glob("*/*.py"))]
    paths += [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    for path in paths:
        data = path.read_bytes()
        if len(data) <= MOST_BYTES and (b"triton.jit" in data or b"ct.kernel" in data):
            texts[data.decode()] = None
    return tuple(texts)


def mutated(text: str, edits: list[Edit]) -> str:
    """The text after each edit that leaves it Python."""
    for what, where, which in edits:
        after = _KINDS[what % len(_KINDS)](text, where, which)
        if _parses(after):
            text = after
    return text


def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


# --- the kinds of edit --------------------------------------------------------------------------


def _lines(change: Callable[[list[str], int, int], None]) -> Callable[[str, int, int], str]:
    def edit(text: str, where: int, which: int) -> str:
        lines = text.splitlines(keepends=True)
        if lines:
            change(lines, where % len(lines), which)
        return "".join(lines)

    return edit


def _delete(lines: list[str], at: int, _which: int) -> None:
    del lines[at]


def _repeat(lines: list[str], at: int, which: int) -> None:
    lines.insert(which % (len(lines) + 1), lines[at])


def _swap(lines: list[str], at: int, which: int) -> None:
    other = which % len(lines)
    lines[at], lines[other] = lines[other], lines[at]


def _insert(lines: list[str], at: int, which: int) -> None:
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip(" \t"))]
    snippet = SNIPPETS[which % len(SNIPPETS)]
    lines.insert(at, "".join(f"{indent}{line}\n" for line in snippet.splitlines()))


def _comment(lines: list[str], at: int, which: int) -> None:
    ending = ("  # größe \U0001f680\n", " ;\n", " \\\n\n", "\f\n", "\n\n\n")[which % 5]
    lines[at] = lines[at].rstrip("\n") + ending


def _tokens(text: str, kind: int) -> list[tokenize.TokenInfo]:
    try:
        found = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
    return [token for token in found if token.type == kind and token.string.strip()]


def _token(kind: int, others: Callable[[list[str]], list[str]]) -> Callable[[str, int, int], str]:
    def edit(text: str, where: int, which: int) -> str:
        found = _tokens(text, kind)
        if not found:
            return text
        token = found[where % len(found)]
        choice = others(sorted({token.string for token in found}))
        lines = text.splitlines(keepends=True)
        row, column = token.start
        line = lines[row - 1]
        end = column + len(token.string)
        lines[row - 1] = f"{line[:column]}{choice[which % len(choice)]}{line[end:]}"
        return "".join(lines)

    return edit


def _endings(text: str, where: int, _which: int) -> str:
    """Other line endings, tabs, or no newline at the end."""
    kinds = (
        text.replace("\r\n", "\n").replace("\n", "\r\n"),
        text.replace("    ", "\t"),
        text.rstrip("\n"),
        text + "\n\n",
        "\ufeff" + text,
    )
    return kinds[where % len(kinds)]


def _cut(text: str, where: int, which: int) -> str:
    """Without a few characters, or with them twice."""
    begin = where % (len(text) + 1)
    end = begin + which % 12
    return text[:begin] + (text[end:] if which % 2 else text[begin:end] + text[begin:])


_KINDS = (
    _lines(_delete),
    _lines(_repeat),
    _lines(_swap),
    _lines(_insert),
    _lines(_comment),
    _token(tokenize.NAME, lambda names: names),
    _token(tokenize.NAME, lambda names: [*names, "größe", "_"]),
    _token(tokenize.NUMBER, lambda _numbers: list(NUMBERS)),
    _token(tokenize.OP, lambda _operators: list(OPERATORS)),
    _token(tokenize.STRING, lambda strings: [*strings, "''", "f'{x}'", "b'x'", '"""\n"""']),
    _endings,
    _cut,
)
