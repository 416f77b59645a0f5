"""The documentation as tests read it: its pages, their code blocks, tables, links and commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
RECORDS = ("assistant_transcript", "skills_followed", "measurement", "commands", "sources")
"""Pages of docs/ that tell what was done or what there is, and guide nobody."""
GUIDES = [README, *(p for p in sorted(DOCS.glob("*.md")) if p.stem not in RECORDS)]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ROW = re.compile(r"^\| *(.+?) *\|$", re.MULTILINE)
_CALL = re.compile(r"(\S*/)?tile-agent (?=\S)")
_AFTER = re.compile(r" (?:\d?>|\||&)(?: |$).*")
"""What a shell does with a command: redirections, pipes, the background."""


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(path: Path, *languages: str) -> list[str]:
    """The fenced code blocks of a page in some languages."""
    return [body for language, body in FENCE.findall(text(path)) if language in languages]


def prose(path: Path) -> str:
    """A page without its fenced code."""
    return FENCE.sub("", text(path))


def spans(path: Path) -> list[str]:
    """The inline code of a page."""
    return SPAN.findall(prose(path))


def tables(path: Path) -> list[list[list[str]]]:
    """The tables of a page: rows of cells, below the head the line that says how they stand."""
    parts = re.split(r"\n\s*\n", prose(path))
    found = [[re.split(r" *(?<!\\)\| *", row) for row in _ROW.findall(part)] for part in parts]
    return [table for table in found if table]


def rows(path: Path, first: str) -> list[list[str]]:
    """The rows of every table whose first column is called so."""
    return [row for table in tables(path) if table[0][0] == first for row in table[2:]]


def shown(path: Path) -> list[str]:
    """The shell commands of a page's code blocks, in order, without their comments."""
    found: list[str] = []
    for language, body in FENCE.findall(text(path)):
        lines = re.sub(r"\\\n\s*", "", body).splitlines()
        if language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        elif language != "sh":
            continue
        found += [command for line in lines if (command := re.sub(r"(^|\s+)#.*", "", line))]
    return found


def is_call(command: str) -> bool:
    """Whether a command is one of tile-agent."""
    return _CALL.match(command) is not None


def words(call: str) -> list[str]:
    """The arguments of a call of tile-agent, as the shell hands them on."""
    return shlex.split(_AFTER.sub("", _CALL.sub("", call, count=1)), comments=True)
