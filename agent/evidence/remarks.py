"""The remarks of cuTile's compiler: which instruction a load, a store or an MMA became, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FIELD = re.compile(r"^\s*(?:- )?(?P<name>\w+):\s+(?P<value>.*)$")
_PLACE = re.compile(r"File: '?(?P<file>[^',]*)'?, Line: (?P<line>\d+)")
_LOCATION = re.compile(r"^loc\(.*\): ")
_KNOWN = ("RemarkId", "Remark", "Instruction", "Reason")


@dataclass(frozen=True)
class Remark:
    """One remark."""

    kind: str
    """Passed, Missed, Failure or Analysis."""
    name: str
    """The compiler's name for it, such as RemarkTensorCoreMMA."""
    line: int
    """Of the source; 0 where it names none."""
    text: str
    instruction: str = ""
    reason: str = ""
    details: tuple[tuple[str, str], ...] = ()
    """What else it says, such as the shape."""

    def __str__(self) -> str:
        tail = [self.instruction, self.reason, *(f"{n} {v}" for n, v in self.details)]
        said = ", ".join(part for part in tail if part)
        return f"line {self.line}: {self.text}" + (f" ({said})" if said else "")


def read(text: str) -> tuple[Remark, ...]:
    """Remarks from the compiler's YAML, each once, in the order of the lines.

    The documents are flat, and a reader of YAML would be a dependency for them alone.
    """
    found = {_read(document) for document in re.split(r"^--- ", text, flags=re.M) if document}
    return tuple(sorted(found, key=lambda r: (r.line, r.name, r.text, r.details)))


def _read(document: str) -> Remark:
    kind, _, body = document.partition("\n")
    fields = dict(_fields(body))
    place = _PLACE.search(fields.get("DebugLoc", ""))
    outside = ("Pass", "Name", "DebugLoc", "Function", "Args", *_KNOWN)
    return Remark(
        kind=kind.strip().removeprefix("!"),
        name=fields.get("Name", ""),
        line=int(place["line"]) if place else 0,
        text=fields.get("Remark", fields.get("Name", "")),
        instruction=fields.get("Instruction", ""),
        reason=_LOCATION.sub("", fields.get("Reason", "")),
        details=tuple((n, v) for n, v in fields.items() if n not in outside),
    )


def _fields(body: str) -> Iterator[tuple[str, str]]:
    for row in body.splitlines():
        if (match := _FIELD.match(row)) is not None:
            yield match["name"], match["value"].strip().strip("'\"")
