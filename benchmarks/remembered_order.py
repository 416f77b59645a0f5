"""Whether what is known of kernels of one kind would have found a kernel's gain sooner.

    python -m benchmarks.remembered_order

Takes the tables of the playbook's results on the H200: what each kernel kept and reverted, in which
order. Each kernel's steps are put into the order that the steps of the others of its kind suggest,
as if those were in the store of `--remember`, and both orders are asked for the iteration by which
nine tenths of its gain are reached. A step is taken to gain the same wherever it comes, and the
playbook's own order rests on these very kernels: the figures can refuse a rule, not prove one.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent.analysis.common.structure import Structure
from agent.backends import BACKENDS
from agent.measuring.decision import Rules
from agent.playbook import for_backend
from agent.store.experience import SAME_STRUCTURE, Experience
from agent.store.judgements import FASTER, NOT_FASTER, OPEN, WRONG, Judgement
from agent.syntax import Source

ROOT = Path(__file__).resolve().parents[1]
GPU = "NVIDIA H200"
REACHED = 0.9
_ROW = re.compile(
    r"""
    \|\ \d+\ \|\ (?P<title>[^|(]+?)(?:\ \([^|]*)?\ \|\ [\d.nan]+   # iteration, what, latency
    \ \|\ (?P<status>\w+)\ \|\ (?P<less>[^|]*)\ \|
    """,
    re.VERBOSE,
)
_GAIN = re.compile(r"([+-][\d.]+) % \[([+-][\d.]+), ([+-][\d.]+)\]")


@dataclass(frozen=True)
class Measured:
    """A kernel of the page of one language, and its steps in the order in which they were tried."""

    name: str
    structure: Structure
    steps: tuple[Judgement, ...]

    def reached_after(self, steps: Sequence[Judgement]) -> int:
        """The iteration by which nine tenths of the gain are reached, in an order."""
        gains = [-math.log1p(-(s.gain or 0.0)) if s.outcome == FASTER else 0.0 for s in steps]
        total, so_far = sum(gains), 0.0
        for number, gain in enumerate(gains, 1):
            so_far += gain
            if gain and so_far >= REACHED * total:
                return number
        return 0


def main() -> int:
    """Print both for each kernel, and their sums."""
    sums = [0, 0]
    for backend in BACKENDS:
        kernels = list(measured(backend))
        for kernel in kernels:
            others = [s for each in kernels if each is not kernel for s in each.steps]
            alike = [step for step in others if step.kind == kernel.structure.kind]
            known = Experience.of(alike, kernel.structure, GPU)
            near = {n: replace(t, on=SAME_STRUCTURE) for n, t in known.tallies.items()}
            ordered = replace(known, tallies=near)
            by_kind = sorted(kernel.steps, key=lambda step: ordered.place(step.entry))
            found = [kernel.reached_after(steps) for steps in (kernel.steps, by_kind)]
            sums = [one + more for one, more in zip(sums, found, strict=True)]
            print(f"{kernel.name}: {kernel.structure.kind}: {found[0]} -> {found[1]}")
    print(f"all: {sums[0]} -> {sums[1]}")
    return 0


def measured(backend: str) -> Iterator[Measured]:
    """The kernels of the page of a language whose playbook still has the entries."""
    titles = {entry.title: entry.name for entry in for_backend(backend)}
    page = (ROOT / "docs" / "results" / f"h200-{backend}-playbook.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", page, flags=re.MULTILINE):
        name = section.partition("\n")[0]
        if name.startswith(f"{backend}/"):
            structure = _structure(backend, name.partition("/")[2])
            rows = (row for row in _ROW.finditer(section) if row["title"] in titles)
            steps = (_step(row, titles[row["title"]], backend, structure) for row in rows)
            yield Measured(name, structure, tuple(steps))


def _structure(backend: str, name: str) -> Structure:
    found = ROOT / "benchmarks" / backend / name
    for path in sorted(found.glob("*.py")):
        source = Source(path.read_text(encoding="utf-8"), path.name)
        if not path.name.startswith("test_") and BACKENDS[backend].kernels(source):
            return BACKENDS[backend].structure(source)
    raise FileNotFoundError(f"no kernel of {backend} in {found}")


def _step(row: re.Match[str], entry: str, backend: str, structure: Structure) -> Judgement:
    gain = _GAIN.match(row["less"])
    less, low, high = (float(each) / 100 for each in gain.groups()) if gain else (None,) * 3
    if row["status"] == "keep":
        outcome = FASTER
    elif high is None:
        outcome = WRONG
    else:
        outcome = NOT_FASTER if high < Rules().minor else OPEN
    return Judgement(
        key="", began_at_s=0, version="", backend=backend, kind=structure.kind,
        fingerprint=structure.fingerprint, dtypes="", shapes="", gpu=GPU, sm=90, toolchain="{}",
        proposer="playbook", entry=entry, params="{}", status=row["status"], outcome=outcome,
        gain=less, low=low, high=high,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
