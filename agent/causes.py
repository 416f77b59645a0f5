"""What holds a kernel back: the causes and the value that states one.

Only values live here, so that a journal can hold a diagnosis without knowing how one is made.
SCHEDULING and UNKNOWN are the two at which TileGym's cuTile performance skill asks for a person.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """What to change first to make a kernel faster."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LATENCY = "latency"
    OCCUPANCY = "occupancy"
    LOCALITY = "locality"
    SCHEDULING = "scheduling"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Diagnosis:
    """A cause, what it rests on, and what to try first.

    Each line of `evidence` begins with the kind of its source: "measured", "launched", "compiled",
    "source", "assumed" (a figure of a data sheet) or "missing". `families` are families of the
    playbook, the most promising first; empty means that the cause does not change the order.
    """

    cause: Cause
    evidence: tuple[str, ...]
    families: tuple[str, ...] = ()

    @property
    def escalates(self) -> bool:
        """Whether no single rewrite of the playbook is expected to remove the cause."""
        return self.cause in (Cause.SCHEDULING, Cause.UNKNOWN)
