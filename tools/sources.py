"""Makes docs/sources.md: what the documents behind the project ask, and where that is.

`tools.pages` writes it. The rows stand in tools/source_documents/, a folder for each document and a
row for each capability. A row has one state; `tests/docs/test_sources.py` looks that what it names
in `where` and `test` exists.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from agent.lint.run import CHECKS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "sources.md"
FOLDER = ROOT / "tools" / "source_documents"
_KEYS = {"name", "state", "where", "test", "why"}

_INTRODUCTION = """\
# What the sources ask

Made by `make generate` from [tools/source_documents](../tools/source_documents); not edited by
hand.

tile-agent was built from five documents. Each row is one thing that a document asks for or tells,
with where it is here and the tests that show it, or why it is not. Every file, command, option,
entry, rule and test that is named exists: `tests/docs/test_sources.py` looks.

| state | meaning |
|:--|:--|
| done | here, and a test shows it |
| partial | here as far as the reason says |
| other | here on purpose in another way, or left out on purpose |
| hardware | needs a machine that was not at hand |
| missing | not here |
"""


class State(StrEnum):
    """What became of a row."""

    DONE = "done"
    PARTIAL = "partial"
    OTHER = "other"
    HARDWARE = "hardware"
    MISSING = "missing"


@dataclass(frozen=True)
class Row:
    """One thing that a document asks for."""

    name: str
    state: State
    where: tuple[str, ...] = ()
    """A path with or without `#anchor`, or `entry NAME`, `rule CODE`, `tile-agent COMMAND`."""
    test: tuple[str, ...] = ()
    """Each as pytest names it, `tests/FILE.py::NAME`."""
    why: str = ""
    """What is lacking or different; of a row that is done, a remark."""


@dataclass(frozen=True)
class Document:
    """One source, and its rows by section."""

    title: str
    about: str
    sections: tuple[tuple[str, tuple[Row, ...]], ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """Of all sections."""
        return tuple(row for _, rows in self.sections for row in rows)


def documents() -> tuple[Document, ...]:
    """All, in the order of their folders' names.

    Raises:
        ValueError: a row is not as it has to be.
    """
    return tuple(
        read(*(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.toml"))))
        for folder in sorted(FOLDER.iterdir())
    )


def read(first: str, *others: str) -> Document:
    """A document from its TOML; where it has several files, the first says its title.

    Raises:
        ValueError: a row is not as it has to be.
    """
    data = tomllib.loads(first)
    parts = [data, *map(tomllib.loads, others)]
    sections = tuple(
        (section["title"], tuple(map(_row, section["row"])))
        for part in parts
        for section in part["section"]
    )
    document = Document(data["title"], data["about"], sections)
    twice = [name for name, n in Counter(row.name for row in document.rows).items() if n > 1]
    if twice:
        raise ValueError(f"{document.title}: more than one row is called {twice[0]!r}")
    return document


def _row(data: dict[str, Any]) -> Row:
    if wrong := sorted(data.keys() - _KEYS):
        raise ValueError(f"{data.get('name')}: {wrong[0]} is none of {', '.join(sorted(_KEYS))}")
    row = Row(
        data["name"],
        State(data["state"]),
        tuple(data.get("where", ())),
        tuple(data.get("test", ())),
        data.get("why", ""),
    )
    if row.state is State.DONE and not (row.where and row.test):
        raise ValueError(f"{row.name}: done needs `where` and `test`")
    if row.state is not State.DONE and not row.why:
        raise ValueError(f"{row.name}: {row.state} needs a reason, `why`")
    if row.state is State.PARTIAL and not row.where:
        raise ValueError(f"{row.name}: partial needs `where`; what is nowhere is missing")
    return row


def page() -> str:
    """The page as it has to be."""
    found = documents()
    lines = [_INTRODUCTION, *_counts(found)]
    for number, document in enumerate(found, 1):
        lines += [f"\n## {number}. {document.title}\n", document.about]
        count = 0
        for title, rows in document.sections:
            lines += [f"\n### {title}\n", "| | what | state | where, tests, remarks |"]
            lines.append("|--:|:--|:--|:--|")
            for row in rows:
                count += 1
                cells = (f"{number}.{count}", row.name, row.state, _told(row))
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _counts(found: tuple[Document, ...]) -> Iterator[str]:
    yield f"| document | rows | {' | '.join(State)} |"
    yield f"|:--|--:|{'--:|' * len(State)}"
    total: Counter[State] = Counter()
    for document in found:
        total += (states := Counter(row.state for row in document.rows))
        yield _counted(document.title, states)
    yield _counted("all", total)


def _counted(title: str, states: Counter[State]) -> str:
    numbers = (states.total(), *(states[state] for state in State))
    return f"| {title} | {' | '.join(map(str, numbers))} |"


def _told(row: Row) -> str:
    tests = [f"`{test}`" for test in row.test]
    parts = [", ".join(map(_link, row.where)), ", ".join(tests), row.why]
    return "<br>".join(part.replace("|", "\\|") for part in parts if part)


def _link(place: str) -> str:
    """What a row names, with a link to the page that tells of it where there is one."""
    kind, _, rest = place.partition(" ")
    if kind == "entry":
        return f"[{rest}](reference/playbook.md#{rest})"
    if kind == "rule":
        (rule,) = (check for check in CHECKS if check.code == rest)
        anchor = f"{rest}-{rule.name}-{rule.severity}".lower()
        return f"[{rest}](reference/cutile_rules.md#{anchor})"
    if kind == "tile-agent":
        words = re.split(r" -", place)[0]
        return f"[`{place}`](commands.md#{words.replace(' ', '-')})"
    if place.startswith("docs/"):
        return f"[{place.removeprefix('docs/')}]({place.removeprefix('docs/')})"
    return f"`{place}`"


def stale() -> dict[Path, str]:
    """The page and its text, where it is not what the rows make now."""
    now = page()
    return {} if PAGE.exists() and PAGE.read_text(encoding="utf-8") == now else {PAGE: now}
