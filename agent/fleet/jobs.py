"""What a fleet hands to a worker, and what a worker tells: plain values, which Ray pickles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PackedRepository:
    """The user's repository at the commit that a fleet works on."""

    bundle: bytes
    """A git bundle with the commit and all that leads to it."""
    sha: str
    ref: str
    """What the bundle calls the commit."""
    identity: tuple[str, str]
    """Name and address of who commits; empty where git does not know them."""


@dataclass(frozen=True)
class KernelJob:
    """One kernel's run, as `tile-agent run` is to be called for it."""

    name: str
    """Of the kernel within its fleet: a folder, and a part of the branch's name."""
    kernel: str
    """Its path from the root of the repository."""
    backend: str
    branch: str
    words: tuple[str, ...]
    """The arguments of `tile-agent run`, the kernel and the branch among them."""
    folder: str
    """Where those start, from the root of the repository."""
    python: str
    """The interpreter of the tests; empty for the worker's own."""
    gpus: int
    """How many Ray gives it; with 0 the interpreter of the kernel's language runs it."""


@dataclass(frozen=True)
class ResumePoint:
    """From what a run can go on, on any machine that has the commit it began at."""

    run_id: str
    latency_meaning: str
    """What 'latency' meant where it began."""
    journal: bytes
    """Whole lines."""
    bundle: bytes
    """A git bundle of what the run has committed; empty before it has committed anything."""


# --- what a worker tells --------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """A task has begun on a machine that can do it."""

    host: str
    machine: str
    """In one line."""


@dataclass(frozen=True)
class RefusedByMachine:
    """This machine cannot do it; another one may."""

    node_id: str
    """As Ray names the node."""
    host: str
    reason: str


@dataclass(frozen=True)
class Progressed:
    """The run has written to its journal."""

    point: ResumePoint
    held_s: float
    """Seconds since its task began."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Other files of the run's folder: name -> content."""


@dataclass(frozen=True)
class Ended:
    """The run's process has ended by itself."""

    code: int
    """Its exit code, below zero for a signal."""
    said: str
    """The last line that it printed."""
    held_s: float
    log: bytes
    card: str = ""
    """The GPU's UUID; empty without one."""
    attained: Mapping[str, float] = field(default_factory=dict)
    """Unit -> what the GPU was measured to attain; empty where nobody measured it."""


Told = Placed | RefusedByMachine | Progressed | Ended
