"""The skills' references, made from the playbook and from `docs/reference/`.

An assistant loads a file at a time, so the playbook is cut by family, and an index of one table
leads to the families.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.analysis.common.kernels import KernelClass
from agent.errors import UsageError
from agent.playbook import ADVICE, ordered
from agent.playbook.base import Entry
from agent.skillbook import SHIPPED
from agent.skillbook.playbook_page import order, section

DOCS = Path(__file__).parents[2] / "docs" / "reference"
"""Exists in a checkout; an installed package holds what was made from it."""

INDEX = "playbook.md"
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")

_HEADER = "<!-- Made from {source} by `tile-agent skill references`; not edited by hand. -->\n\n"
_INTRODUCTION = """\
# The playbook: {backend}

Every optimization, with its place in the order in which a run tries them on a kernel of each class.
The entries that need judgement have a dash in all classes: no program carries them out.

- *measured*: the share of the latency that it saved in runs of tile-agent, one figure a kernel, on
  top of what was kept before. Minus is slower; noise was not told from zero.
- *family*: the knob that it turns. After a gain under 5 % the rest of the family comes last.

"""


@dataclass(frozen=True)
class Contents:
    """What the references of a skill are made from."""

    backend: str | None
    """The language whose part of the playbook it needs."""
    pages: tuple[str, ...]
    """Pages of `docs/reference/`."""


CONTENTS: Mapping[str, Contents] = {
    "optimize-cutile-kernel": Contents(
        "cutile", ("run_json", "performance_model", "compiler_output", "knobs", "patterns")
    ),
    "optimize-triton-kernel": Contents(
        "triton", ("run_json", "performance_model", "compiler_output", "knobs")
    ),
    "add-cutile-autotuning": Contents(None, ("autotuning",)),
    "move-triton-to-tile-ir": Contents(None, ("tile_ir",)),
}


def references(skill: str) -> dict[str, str]:
    """File name -> text of each reference of a skill.

    Raises:
        UsageError: the pages that they are made from are not here.
    """
    contents = CONTENTS[skill]
    entries = _entries(contents.backend)
    made = {f"{name}.md": _page(name, contents, entries) for name in contents.pages}
    if contents.backend:
        made[INDEX] = _index(contents.backend, entries)
        for family in dict.fromkeys(entry.family for entry in entries):
            members = [entry for entry in entries if entry.family == family]
            made[_file(members[0])] = _family(family, members)
    return made


def _entries(backend: str | None) -> list[Entry]:
    if backend is None:
        return []
    first = ordered(backend, KernelClass.MEMORY)
    return [*first, *(entry for entry in ADVICE if entry.backend == backend)]


def _file(entry: Entry) -> str:
    return f"family-{entry.family}.md"


def _index(backend: str, entries: Sequence[Entry]) -> str:
    header = _HEADER.format(source="agent/playbook")
    return header + _INTRODUCTION.format(backend=backend) + order(entries, _file)


def _family(family: str, entries: Sequence[Entry]) -> str:
    header = _HEADER.format(source="agent/playbook")
    return header + f"# {family}\n\n" + "\n".join(map(section, entries))


def _page(name: str, contents: Contents, entries: Sequence[Entry]) -> str:
    """A page of the documentation, its links led to the skill's own files or taken away."""
    files = {entry.name: _file(entry) for entry in entries}
    source = DOCS / f"{name}.md"
    try:
        text = source.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"there is no {source}: references are made in a checkout of tile-agent"
        ) from None

    def led(match: re.Match[str]) -> str:
        words, file, anchor = match[1], match[2], match[3] or ""
        if file == INDEX and anchor:
            entry = anchor.removeprefix("#")
            return f"[{words}]({files[entry]}{anchor})" if entry in files else words
        here = not file or "//" in file or file.removesuffix(".md") in contents.pages
        here = here or (file == INDEX and bool(entries))
        return match[0] if here else words

    return _HEADER.format(source=f"docs/reference/{name}.md") + _LINK.sub(led, text)


def stale() -> dict[Path, str | None]:
    """The files below `agent/skills/` that are not what would be made: path -> text.

    The text is None where a reference is not made any more.
    """
    found: dict[Path, str | None] = {}
    for skill in CONTENTS:
        folder = SHIPPED / skill / "references"
        made: dict[Path, str | None] = {folder / n: t for n, t in references(skill).items()}
        there = {path: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*"))}
        found |= {path: text for path, text in made.items() if there.get(path) != text}
        found |= dict.fromkeys(there.keys() - made.keys())
    return found


def update(files: Mapping[Path, str | None]) -> None:
    """Write what `stale` found."""
    for path, text in files.items():
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
