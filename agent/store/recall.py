"""What the store knows for a run, where its options ask for it; and what a run adds to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from agent.analysis.common.structure import Structure
from agent.errors import JournalError, TransitionError, UsageError
from agent.journal import read, replay
from agent.repository import Repository
from agent.state import Run, started
from agent.store.experience import NOTHING, Experience
from agent.store.judgements import given_to, judgements, machine, structure_for


@dataclass
class Recall:
    """Asks the store, once for each kernel; a store that cannot be read knows nothing."""

    repository: Repository
    timed: tuple[str, ...] = ()
    """The kernels that perf tests spend time in, where a run has not seen that yet."""
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
            return experience_of(run, self.repository, self.timed, before_s)
        except UsageError as problem:
            self.problem = str(problem)
            return NOTHING


def experience_of(
    run: Run, repository: Repository, timed: tuple[str, ...] = (), before_s: int | None = None
) -> Experience:
    """What the store knows of kernels like that of a run, on its model of GPU.

    Args:
        run: which one.
        repository: that it is in.
        timed: kernels that perf tests spend time in, where the run has seen nothing yet.
        before_s: only by runs that had begun before: a run that is resumed goes by what it knew.

    Raises:
        UsageError: the store cannot be read, or the kernel.
    """
    from agent.store.database import store_path  # only who remembers needs SQLite

    if not store_path().is_file():
        return NOTHING
    structure = structure_for(run, repository, timed)
    gpu, *_ = machine(started(run))
    return experience(started(run).backend, structure, gpu, given_to(run), before_s)


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
    from agent.store.database import stored

    found = stored(backend=backend, kind=structure.kind, gpu=gpu, before_s=before_s)
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
        from agent.store.database import add

        add(judgements(events, repository, with_source=options.remember_source))
    except (JournalError, TransitionError, UsageError) as problem:
        return str(problem)
    return ""
