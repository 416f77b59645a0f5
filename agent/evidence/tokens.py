"""Chains of memory tokens in Tile IR: which accesses of a cuTile kernel wait for which others.

Tile IR orders accesses of memory by tokens and by nothing else. An access that takes the token of
another one begins after it. What is read here is `tileirdisasm --print-debug-info`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

_LOCATION = re.compile(r" loc\((?P<mark>#loc\d*)\)$")
_DEFINED = re.compile(
    r'^(?P<mark>#loc\d*) = (?:loc\("(?P<file>[^"]*)":(?P<line>\d+):\d+\)'
    r"|#cuda_tile\.di_loc<(?P<inner>#loc\d*) in "
    r"|loc\(callsite\((?P<callee>#loc\d*) at (?P<caller>#loc\d*)\)\))"
)
_RESULTS = re.compile(r"^(?P<results>%[^=]*?) = (?P<rest>.*)$")
_TOKEN = re.compile(r"\btoken ?= ?(?P<token>%[\w#]+)")
_ACQUIRES = re.compile(r"\b(?:acquire|acq_rel)\b")
_CARRIED = re.compile(r"(?P<inside>%\w+) = (?P<before>%[\w#]+)")
_VALUE = re.compile(r"%[\w#]+")
_KINDS = ("load", "store", "atomic")
"""How the names of operations begin. Others are no accesses."""

Origin = tuple[str, int]
"""Where a token is from: `("access", number)`, or `("round before", number of a carried value)`."""
Origins = frozenset[Origin]
_NONE: Origins = frozenset()


@dataclass(frozen=True, order=True)
class MemoryAccess:
    """A load, a store or an atomic of a kernel's source."""

    line: int
    """Of the source; 0 where the compiler names none in the kernel's file."""
    kind: str
    """load, store or atomic."""
    acquires: bool = False
    """Whether whatever follows waits for it, in other arrays too."""

    def __str__(self) -> str:
        return f"{'acquiring ' * self.acquires}{self.kind} at line {self.line}"


@dataclass(frozen=True, order=True)
class Wait:
    """An access that does not begin before another one is done."""

    access: MemoryAccess
    awaited: MemoryAccess
    round_before: bool
    """Whether what it waits for belongs to the round before of a loop around both."""

    def __str__(self) -> str:
        when = ", of the round before" if self.round_before else ""
        return f"line {self.access.line}: the {self.access.kind} waits for the {self.awaited}{when}"


def waits(text: str, file: str) -> tuple[Wait, ...]:
    """What waits for a store, an atomic or a load that acquires, each pair once, by line.

    That something waits for another load is not told: a load is done when its tile is there, which
    whatever is computed from it waits for anyway.

    Args:
        text: the Tile IR of one kernel with its places in the source.
        file: name of the kernel's file, without folders.
    """
    reader = _Reader()
    places = _Places(text, file)
    for line in text.splitlines():
        if line.startswith("#"):
            break
        reader.read(line.strip(), places)
    found = {wait for wait in reader.waits() if _counts(wait.awaited)}
    # A loop that the compiler has split in two has its second part wait for its first.
    split = {replace(wait, round_before=False) for wait in found if wait.round_before}
    return tuple(sorted(found - split))


def _counts(awaited: MemoryAccess) -> bool:
    return awaited.kind != "load" or awaited.acquires


def without_places(text: str) -> str:
    """The same Tile IR as a person reads it."""
    kept = [_LOCATION.sub("", line) for line in text.splitlines() if not line.startswith("#")]
    return "\n".join([*kept, ""]) if kept else ""


class _Places:
    """Marks such as `#loc12`, and the lines of the kernel's file that they stand for."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._defined = {
            found["mark"]: found
            for line in text.splitlines()
            if line.startswith("#loc") and (found := _DEFINED.match(line))
        }

    def line(self, mark: str) -> int:
        found = self._defined.get(mark)
        if found is None:
            return 0
        if found["line"]:
            within = found["file"].rpartition("/")[2] == self._file
            return int(found["line"]) if within else 0
        if found["inner"]:
            return self.line(found["inner"])
        return self.line(found["callee"]) or self.line(found["caller"])


@dataclass
class _Region:
    """What a brace has opened."""

    kind: str
    """for, loop, if, or '' for what handles no tokens."""
    results: tuple[str, ...] = ()
    before: tuple[Origins, ...] = ()
    """Of the values that a loop carries, when it begins."""
    carried: tuple[int, ...] = ()
    """Their numbers."""
    after: dict[int, Origins] = field(default_factory=lambda: defaultdict(frozenset))
    """Of the results, by place: what breaks, yields and last rounds hand over."""


class _Reader:
    def __init__(self) -> None:
        self._origins: dict[str, Origins] = {}
        """Of each value. Names of regions side by side are the same, and set anew by each."""
        self._accesses: list[tuple[MemoryAccess, Origins]] = []
        self._continued: dict[int, Origins] = defaultdict(frozenset)
        """Carried value -> what a round hands to the next."""
        self._regions: list[_Region] = []

    def read(self, line: str, places: _Places) -> None:
        """One line, without the white space around it."""
        if line.startswith("}"):
            self._close(also_opens=line.endswith("{"))
            return
        results, rest = "", line
        if (found := _RESULTS.match(line)) is not None:
            results, rest = found["results"], found["rest"]
        operation = rest.partition(" ")[0]
        if rest.endswith("{"):
            self._open(operation, results, rest)
        elif operation == "join_tokens":
            self._origins[results] = self._of(rest)
        elif operation in ("continue", "break", "yield"):
            self._hand_over(operation, rest)
        elif operation.endswith("_tko") and (token := _TOKEN.search(rest)) is not None:
            self._access(results, rest, self._of(token["token"]), places)

    def waits(self) -> Iterator[Wait]:
        """All of them, with those for loads."""
        for access, origins in self._accesses:
            for number, round_before in self._reached(origins):
                yield Wait(access, self._accesses[number][0], round_before)

    def _of(self, text: str) -> Origins:
        values = _VALUE.findall(text.partition(" : ")[0])
        return frozenset().union(*(self._origins.get(value, _NONE) for value in values))

    def _access(self, results: str, rest: str, awaited: Origins, places: _Places) -> None:
        token = results.rpartition(", ")[2]
        kind = rest.partition("_")[0]
        if kind not in _KINDS:  # a print, which is ordered too
            self._origins[token] = awaited
            return
        found = _LOCATION.search(rest)
        acquires = _ACQUIRES.search(rest) is not None
        access = MemoryAccess(places.line(found["mark"]) if found else 0, kind, acquires)
        self._origins[token] = frozenset({("access", len(self._accesses))})
        self._accesses.append((access, awaited))

    def _open(self, operation: str, results: str, rest: str) -> None:
        if operation not in ("for", "loop", "if"):
            self._regions.append(_Region(""))
            return
        name, _, count = results.partition(":")
        named = tuple(f"{name}#{i}" for i in range(int(count))) if count else (name,) * bool(name)
        region = _Region(operation, named)
        pairs = _CARRIED.findall(rest.partition("iter_values(")[2]) if operation != "if" else []
        region.before = tuple(self._origins.get(before, _NONE) for _, before in pairs)
        first = len(self._continued)
        region.carried = tuple(range(first, first + len(pairs)))
        for number, (inside, _), before in zip(region.carried, pairs, region.before, strict=True):
            self._continued[number] = _NONE
            self._origins[inside] = before | {("round before", number)}
        self._regions.append(region)

    def _hand_over(self, operation: str, rest: str) -> None:
        kinds = ("if",) if operation == "yield" else ("for", "loop")
        if operation == "yield" and (not self._regions or self._regions[-1].kind != "if"):
            return  # of a reduction
        region = next((r for r in reversed(self._regions) if r.kind in kinds), None)
        if region is None:
            return
        for place, value in enumerate(_VALUE.findall(rest.partition(" : ")[0])):
            given = self._origins.get(value, _NONE)
            if operation == "continue" and place < len(region.carried):
                self._continued[region.carried[place]] |= given
            if operation != "continue" or region.kind == "for":
                region.after[place] |= given

    def _close(self, *, also_opens: bool) -> None:
        if also_opens or not self._regions:  # `} else {`
            return
        region = self._regions.pop()
        own = {("round before", number) for number in region.carried}
        for place, name in enumerate(region.results):
            origins = region.after[place]
            if region.kind == "for" and place < len(region.before):
                origins |= region.before[place]
            self._origins[name] = frozenset(self._followed(origins, own))

    def _followed(self, origins: Origins, carried: set[Origin]) -> Iterator[Origin]:
        """What is behind these, with the given carried values replaced by what they may hold."""
        seen: set[Origin] = set()
        left = list(origins)
        while left:
            origin = left.pop()
            if origin in seen:
                continue
            seen.add(origin)
            if origin in carried:
                left += self._continued[origin[1]]
            else:
                yield origin

    def _reached(self, origins: Origins) -> Iterator[tuple[int, bool]]:
        """The accesses behind a token, and whether each belongs to a round before."""
        seen: set[Origin] = set()
        left = [(origin, False) for origin in origins]
        while left:
            origin, before = left.pop()
            kind, number = origin
            if kind == "access":
                yield number, before
            elif origin not in seen:
                seen.add(origin)
                left += [(further, True) for further in self._continued[number]]
