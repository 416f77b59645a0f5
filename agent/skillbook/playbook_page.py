"""The playbook as a page for people; `docs/reference/playbook.md` is what this makes."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Sequence

from agent.analysis.common.kernels import KernelClass
from agent.backends import BACKENDS
from agent.playbook import ADVICE, ordered
from agent.playbook.base import Entry, Optimization

HEADINGS = ("When", "Do", "Risk", "Source")
NONE = "-"

_INTRODUCTION = """\
# The playbook

Every optimization, for a person or a model that wants to know when to make it, how, at what risk,
and what it gained.

Made by `tile-agent playbook reference`; not edited by hand. The text of an entry is the docstring
of its file in `agent/playbook/`; its example is the pair that the tests apply it to.

- The first table of a language gives the order in which a run tries the entries on a kernel of each
  class. A dash stands for last, and for entries that need judgement, which no run tries.
- *Expected* is what others claim or what compiling shows; *Source* says which.
- *Measured* is the share of the latency that it saved in runs of tile-agent, one figure a kernel,
  on top of what was kept before. Minus is slower; noise was not told from zero. The runs stand in
  [docs/results](../results).
- *Family*: a gain under 5 % puts the rest of the family last. *Again after*: after a keep of one of
  these families it is tried once more.
"""


def as_markdown(backends: Sequence[str] = tuple(BACKENDS)) -> str:
    """The page, of some kernel languages."""
    parts = [_INTRODUCTION]
    for backend in backends:
        entries: list[Entry] = [*ordered(backend, KernelClass.MEMORY)]
        entries += [entry for entry in ADVICE if entry.backend == backend]
        parts += [f"## {backend}\n", order(entries), *map(section, entries)]
    return "\n".join(parts)


def order(entries: Sequence[Entry], page: Callable[[Entry], str] = lambda _: "") -> str:
    """A row for each entry, with its place in each class; the entries are of one language.

    `page` gives the file that an entry's section is in; empty where it is this one.
    """
    head = ("entry", *(c.value for c in KernelClass), "family", "changes rounding", "measured")
    places = [_places(entries[0].backend, kernel_class) for kernel_class in KernelClass]
    rows = [
        (
            f"[{entry.name}]({page(entry)}#{entry.name})",
            *(place.get(entry.name, NONE) for place in places),
            entry.family,
            "yes" if entry.changes_rounding else "no",
            entry.measured or NONE,
        )
        for entry in entries
    ]
    lines = [head, (":--", *["--:"] * len(places), ":--", ":--", ":--"), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _places(backend: str, kernel_class: KernelClass) -> dict[str, str]:
    """Name -> place in the order of a class, of those that name the class."""
    named = [e for e in ordered(backend, kernel_class) if kernel_class in e.priority]
    return {entry.name: str(place) for place, entry in enumerate(named, 1)}


def section(entry: Entry) -> str:
    """What there is to say of an entry, under a heading of its name."""
    title, *recipe = _paragraphs(entry.prose)
    facts = [entry.family]
    if entry.revisit_after:
        facts.append(f"again after {', '.join(sorted(entry.revisit_after))}")
    if entry.changes_rounding:
        facts.append("changes rounding")
    if isinstance(entry, Optimization) and entry.saves:
        facts.append(f"kept where it is as fast, because it saves {entry.saves}")
    if entry.opt_in:
        facts.append(f"only with `--only {entry.name}`, because {entry.opt_in}")
    if not isinstance(entry, Optimization):
        facts.append("needs judgement: no program carries it out")
    lines = [
        f"### {entry.name}",
        f"{title} {entry.hypothesis}",
        *recipe,
        f"*Expected:* {entry.expected}.",
    ]
    if entry.measured:
        lines.append(f"*Measured:* {entry.measured}.")
    lines.append(f"*Family:* {'; '.join(facts)}.")
    if isinstance(entry, Optimization):
        change = _change(entry.before, entry.after)
        lines.append(f"{entry.describe(entry.example)}:\n\n```diff\n{change}```")
    return "\n\n".join(lines) + "\n"


def _paragraphs(text: str) -> list[str]:
    """The title, then a line for each heading."""
    found: list[str] = []
    for line in textwrap.dedent(text).splitlines():
        heading, colon, rest = line.partition(":")
        if colon and heading in HEADINGS:
            found.append(f"*{heading}:*{rest}")
        elif found and line.strip():
            found[-1] += f" {line.strip()}"
        elif line.strip():
            found.append(line.strip())
    return found


def _change(before: str, after: str) -> str:
    """The lines that differ, and those around them; `@@` stands for lines left out."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=2))[3:]
    return "".join(("@@" if line.startswith("@@") else line.rstrip()) + "\n" for line in lines)
