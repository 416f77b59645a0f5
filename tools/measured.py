"""Makes what the entries of the playbook were measured to gain, from the pages of results.

`tools.pages` writes it to agent/playbook/measured.json.

Three kinds of pages: the tables of runs, where each iteration was compared in process pairs; the
search, which timed the best variant of each entry once; and the steps of runs on public kernels.
The search fills in the kernels on which no run compared an entry. Of several iterations of an entry
the largest counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.playbook import ADVICE, PLAYBOOK

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
MADE = ROOT / "agent" / "playbook" / "measured.json"
SEARCH = RESULTS / "h200-search.md"
PUBLIC = RESULTS / "h200-public-kernels.md"
STEPS = "## Step by step\n"
"""The heading of its table."""
LANGUAGES = {"cutile": ("cuTile", "cuda-tile"), "triton": ("Triton", "Triton")}
"""Backend -> its name in headings of the search, and that of its package."""
GONE = {"causal split", "one reciprocal a row", "reciprocal square root"}
"""Titles of entries that no longer exist."""
_MACHINE = re.compile(r"^Measured on: NVIDIA (\S+), driver .*$", re.MULTILINE)
_SHARE = re.compile(r"([+-]\d+\.\d) % \[([+-]\d+\.\d), ([+-]\d+\.\d)\]")
_STEP = re.compile(r"([+-]\d+\.\d) %(?: \[([+-]\d+\.\d) %, ([+-]\d+\.\d) %\])?")
_SEARCHED = re.compile(r"(\w+) ([+-]\d+\.\d) %")


@dataclass(frozen=True)
class Gain:
    """What an entry took away from a kernel's latency, in percent; below zero it took longer."""

    percent: float
    noise: bool = False
    """Its interval holds zero."""
    refused: bool = False
    """It gained, and one config did not let it be kept."""

    def __str__(self) -> str:
        remark = " (noise)" if self.noise else " (refused)" if self.refused else ""
        return f"{self.percent:+.1f} %{remark}".replace("-0.0 ", "+0.0 ")


Gains = dict[str, dict[str, Gain]]
"""Entry -> kernel -> what it gained there."""


def text() -> str:
    """The file as it has to be."""
    search = SEARCH.read_text(encoding="utf-8")
    made: dict[str, str] = {}
    for backend in LANGUAGES:
        page = (RESULTS / f"h200-{backend}-playbook.md").read_text(encoding="utf-8")
        compared: Gains = {}
        for name, kernel, gain in _compared(backend, page):
            known = compared.setdefault(name, {}).setdefault(kernel, gain)
            compared[name][kernel] = max(known, gain, key=lambda g: g.percent)
        searched: Gains = {}
        for name, kernel, gain in _searched(backend, search):
            if kernel not in compared.get(name, {}):
                searched.setdefault(name, {})[kernel] = gain
        public: Gains = {}
        if backend == "triton":
            for name, kernel, gain in _steps(PUBLIC.read_text(encoding="utf-8")):
                public.setdefault(name, {})[kernel] = gain
        for name in compared.keys() | searched.keys() | public.keys():
            parts = [_listed(compared.get(name, {}))]
            if name in public:
                parts.append(f"on public code: {_listed(public[name])}")
            if name in searched:
                parts.append(f"in a search: {_listed(searched[name])}")
            made[name] = f"{_where(backend, page)}: {'; '.join(filter(None, parts))}"
    return json.dumps(dict(sorted(made.items())), indent=1) + "\n"


def _compared(backend: str, page: str) -> Iterator[tuple[str, str, Gain]]:
    """Entry, kernel and gain of each iteration of the runs on a page."""
    kernel = ""
    for line in page.splitlines():
        if line.startswith("## "):
            kernel = line.rpartition("/")[2]
        cells = _cells(line)
        if len(cells) > 4 and cells[0].isdigit() and (found := _SHARE.match(cells[4])):
            percent, low, high = (float(part) for part in found.groups())
            if name := _entry(backend, cells[1].partition(" (")[0]):
                yield name, _spelled(kernel), Gain(percent, low <= 0 <= high)


def _searched(backend: str, page: str) -> Iterator[tuple[str, str, Gain]]:
    """The same of the search, for a language."""
    heading = f"### {LANGUAGES[backend][0]}: each entry on the first pass\n"
    table = page.partition(heading)[2].partition("\n#")[0]
    for cells in map(_cells, table.splitlines()):
        if len(cells) == 3 and cells[1].isdigit() and (name := _entry(backend, cells[0])):
            for kernel, percent in _SEARCHED.findall(cells[2]):
                yield name, _spelled(kernel), Gain(float(percent))


def _steps(page: str) -> Iterator[tuple[str, str, Gain]]:
    """The same of the comparisons on public Triton kernels."""
    table = page.partition(STEPS)[2].partition("\n#")[0]
    for cells in map(_cells, table.splitlines()):
        if len(cells) == 4 and (found := _STEP.match(cells[2])):
            percent, low, high = (float(part or found[1]) for part in found.groups())
            name = _entry("triton", cells[1])
            refused = percent > 0 and ": " in cells[3]
            if name:
                yield name, cells[0], Gain(percent, low <= 0 <= high, refused)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split(" | ")]


def _entry(backend: str, title: str) -> str | None:
    """The entry of a title; None where it is gone."""
    named = {e.title: e.name for e in (*PLAYBOOK, *ADVICE) if e.backend == backend}
    name = named.get(title)
    assert name or title in GONE, f"no entry of {backend} is called {title!r}"
    return name


def _spelled(kernel: str) -> str:
    """As the documents call it."""
    return kernel.replace("copy_", "copy_of_").replace("_and_", "-and-").replace("_", " ")


def _where(backend: str, page: str) -> str:
    machine, package = _MACHINE.search(page), LANGUAGES[backend][1]
    assert machine is not None, f"the page of {backend} does not say what it was measured on"
    version = re.search(rf"\b{package.lower()} (\d+\.\d+)", machine[0])
    assert version is not None, f"the page of {backend} names no version of {package}"
    return f"{machine[1]}, {package} {version[1]}"


def _listed(gains: dict[str, Gain]) -> str:
    ordered = sorted(gains.items(), key=lambda item: -item[1].percent)
    return ", ".join(f"{kernel} {gain}" for kernel, gain in ordered)


def stale() -> dict[Path, str]:
    """The file and its text, where it is not what the pages say."""
    now = text()
    return {} if MADE.exists() and MADE.read_text(encoding="utf-8") == now else {MADE: now}
