"""What the store knows of kernels like one, and in which order that puts the playbook. Pure.

Kernels are alike that have the same structure, on the same model of GPU; those that are given the
same dtypes and shapes outweigh the others. What is known of them moves an optimization to the front
or to the end; it never takes one away, for no other kernel says what is true of this one. Kernels
of the same kind are told of, and order nothing: of 22 kernels on an H200, each ordered by what was
known of the others of its kind, two came sooner to nine tenths of their gain and three later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import mean, median

from agent.analysis.common.structure import Structure
from agent.measuring.decision import Rules, signed
from agent.store.judgements import (
    FASTER,
    NOT_FASTER,
    OPEN,
    OWN_IDEA,
    WRONG,
    Judgement,
    known_entries,
)

FAILED_OFTEN = 2
"""So many times at least, and never kept: it comes last."""
WORTH_TELLING = 12
"""Optimizations that are told of, those that gained most first."""
CHANGES = 3
"""Changes that are told where the user had them kept."""
SAME_SHAPES, SAME_STRUCTURE, SAME_KIND = (
    "the same structure and shapes",
    "the same structure",
    "the same kind",
)
"""How near kernels are."""
_COUNTED = (FASTER, NOT_FASTER, WRONG, OPEN)


@dataclass(frozen=True)
class Tally:
    """What became of one optimization on kernels like this one."""

    entry: str
    on: str
    """How near the kernels are: of those that are known, the nearest."""
    judged: tuple[Judgement, ...]

    @property
    def kept(self) -> tuple[Judgement, ...]:
        """Those that gained."""
        return tuple(each for each in self.judged if each.outcome == FASTER)

    @property
    def failed(self) -> int:
        """How many gained too little beyond doubt, were wrong or did not run."""
        return sum(each.outcome in (NOT_FASTER, WRONG) for each in self.judged)

    @property
    def expected(self) -> float:
        """The share of the latency that it saved on average; what was not kept saved nothing."""
        return mean((each.gain or 0.0) if each.outcome == FASTER else 0.0 for each in self.judged)

    @property
    def place(self) -> tuple[int, float]:
        """Where it belongs: before what is not known, or after it; what gained most first."""
        if self.on == SAME_KIND:
            return 0, 0.0
        if self.expected >= Rules().minor:
            return -1, -self.expected
        return (1 if not self.kept and self.failed >= FAILED_OFTEN else 0), 0.0

    def __str__(self) -> str:
        kept = self.kept
        told = f"{self.entry}: kept {len(kept)} of {len(self.judged)} times on {self.on}"
        if kept:
            gains = [each.gain or 0.0 for each in kept]
            best = max(kept, key=lambda each: each.gain or 0.0)
            told += f", {signed(median(gains))} less time"
            if len(gains) > 1:
                told += f" ({signed(min(gains))} to {signed(max(gains))})"
            elif best.low is not None and best.high is not None:
                told += f" [{signed(best.low)}, {signed(best.high)}]"
            if best.params != "{}":
                told += f", best with {best.params}"
        latest = max(each.began_at_s for each in self.judged)
        return f"{told}; last {datetime.fromtimestamp(latest, UTC):%Y-%m-%d}"


@dataclass(frozen=True)
class Experience:
    """What is known of kernels like one on one model of GPU."""

    about: str = ""
    """Which kernels these are, in words."""
    tallies: dict[str, Tally] = field(default_factory=dict)
    changes: tuple[Judgement, ...] = ()
    """Of kernels of the same structure, with the change; the latest first."""

    @classmethod
    def of(
        cls,
        judged: Sequence[Judgement],
        structure: Structure,
        gpu: str,
        given: tuple[str, str] = ("", ""),
    ) -> Experience:
        """What judgements of kernels of the same kind, on one model of GPU, amount to.

        Args:
            judged: these, the oldest first.
            structure: of the kernel.
            gpu: the model.
            given: dtypes and shapes of what the kernel is given, where that is known.
        """
        counted = [each for each in judged if each.outcome in _COUNTED]
        same = [each for each in counted if each.fingerprint == structure.fingerprint]
        nearest = [each for each in same if all(given) and (each.dtypes, each.shapes) == given]
        found: dict[str, Tally] = {}
        for on, some in ((SAME_SHAPES, nearest), (SAME_STRUCTURE, same), (SAME_KIND, counted)):
            for entry in dict.fromkeys(each.entry for each in some):
                # a text that is told comes from this program alone
                if entry in known_entries() and entry not in found:
                    of_entry = tuple(each for each in some if each.entry == entry)
                    found[entry] = Tally(entry, on, of_entry)
        changes = tuple(each for each in reversed(same) if each.change)
        return cls(f"{structure.kind}; {gpu or 'no GPU'}", found, changes[:CHANGES])

    def place(self, entry: str) -> tuple[int, float]:
        """Where an optimization belongs, the smaller the earlier; (0, 0) where nothing is known."""
        return self.tallies[entry].place if entry in self.tallies else (0, 0.0)

    @property
    def lines(self) -> tuple[str, ...]:
        """A line each of what is known, what gained most first, and what is near."""
        nearest = (SAME_SHAPES, SAME_STRUCTURE, SAME_KIND).index
        best_first = sorted(
            self.tallies.values(),
            key=lambda tally: (tally.place, nearest(tally.on), -tally.expected),
        )
        return tuple(map(str, best_first[:WORTH_TELLING]))

    @property
    def orders(self) -> bool:
        """Whether it moves an optimization."""
        return any(tally.place[0] for tally in self.tallies.values())


NOTHING = Experience()


def table(judged: Iterable[Judgement]) -> Iterator[tuple[str, ...]]:
    """Rows for a person: what, on which kernels and GPU, and what came of it."""
    yield "date", "optimization", "values", "status", "less time", "interval", "kernel", "machine"
    for each in judged:
        timed = each.gain is not None and each.low is not None and each.high is not None
        yield (
            f"{datetime.fromtimestamp(each.began_at_s, UTC):%Y-%m-%d}",
            each.entry if each.entry in known_entries() else OWN_IDEA,
            each.params if each.params != "{}" else "",
            each.status,
            signed(each.gain) if timed and each.gain is not None else "",
            f"[{signed(each.low)}, {signed(each.high)}]"
            if each.low is not None and each.high is not None
            else "",
            f"{each.backend}: {each.kind} ({each.fingerprint[:8]})",
            each.gpu or "no GPU",
        )
