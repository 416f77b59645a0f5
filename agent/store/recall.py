"""What the store knows for a run, where its options ask for it; and what a run adds to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType

from agent.analysis.common.structure import Structure
from agent.errors import TileAgentError, UsageError
from agent.journal import read, replay
from agent.repository import Repository
from agent.state import Run, started
from agent.store.experience import NOTHING, Experience
from agent.store.judgements import Seen, judgements, machine, structure_for


@dataclass
class Recall:
    """Asks the store, once for each kernel; a store that cannot be read knows nothing."""

    repository: Repository
    seen: Seen = field(default_factory=Seen)
    """What earlier runs saw launched, where this one has not looked yet."""
    problem: str = field(init=False, default="")
    """Why the store was not read, in one line."""
    _known: dict[tuple[str, str, bool], Experience] = field(init=False, default_factory=dict)

    def of(self, run: Run) -> Experience:
        """What is known of kernels like that of a run."""
        if not run.options.remember:
            return NOTHING
        began = started(run)
        which = began.origin_sha, began.kernel, run.baseline is not None
        if which not in self._known:
            self._known[which] = self._asked(run)
        return self._known[which]

    def _asked(self, run: Run) -> Experience:
        try:
            before_s = started(run).began_at_s
            return experience_of(run, self.repository, self.seen, before_s)
        except (TileAgentError, ValueError) as problem:
            self.problem = str(problem)
            return NOTHING


def experience_of(
    run: Run, repository: Repository, seen: Seen | None = None, before_s: int | None = None
) -> Experience:
    """What the store knows of kernels like that of a run, on its model of GPU.

    Args:
        run: which one.
        repository: that it is in.
        seen: what earlier runs saw launched, where this one has not looked yet.
        before_s: only by runs that had begun before: a run that is resumed goes by what it knew.

    Raises:
        UsageError: the store cannot be read, or the kernel.
    """
    if not database().store_path().is_file():
        return NOTHING
    seen = Seen.of(run) if run.baseline or seen is None else seen
    structure = structure_for(run, repository, seen)
    gpu, *_ = machine(started(run))
    return experience(started(run).backend, structure, gpu, seen.given, before_s)


def experience(
    backend: str,
    structure: Structure,
    gpu: str,
    given: tuple[str, str] = ("", ""),
    before_s: int | None = None,
) -> Experience:
    """What the store knows of kernels of one structure, or of its kind.

    Args:
        backend: the language.
        structure: of the kernel.
        gpu: the model.
        given: dtypes and shapes of what the kernel is given, where that is known.
        before_s: only by runs that had begun before.

    Raises:
        UsageError: it cannot be read.
    """
    found = database().stored(backend=backend, kind=structure.kind, gpu=gpu, before_s=before_s)
    return Experience.of(found, structure, gpu, given)


def record(journal: Path, repository: Repository) -> str:
    """Keep what a run has judged so far, where its options ask for it.

    Returns:
        Why it could not be kept, in one line; empty where it was. No run ends by that.
    """
    try:
        events = [line.event for line in read(journal)]
        options = replay(events).options
        if not options.remember:
            return ""
        database().add(judgements(events, repository, with_source=options.remember_source))
    except (TileAgentError, OSError, ValueError) as problem:
        return " ".join(str(problem).split())
    return ""


def database() -> ModuleType:
    """What speaks to SQLite, which only who remembers needs.

    Raises:
        UsageError: this Python lacks it.
    """
    try:
        return import_module("agent.store.database")
    except ImportError as problem:
        raise UsageError(
            f"what is remembered is kept by SQLite, and this Python cannot load it ({problem}): "
            "install Python's sqlite3, or leave --remember out"
        ) from problem
