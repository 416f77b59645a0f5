"""The kept steps of a run on another commit: which of them, and a commit for each.

Only the kernel's file changes from step to step, so replaying one is writing its bytes. That is
sound as long as the commit has the kernel that the run began with; another is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.errors import UsageError
from agent.events import Finished
from agent.finalizing.contribution import replaced, without
from agent.report.iterations import Iteration
from agent.repository import Repository, shown
from agent.state import Run
from agent.workspace import Workspace


@dataclass(frozen=True)
class KeptStep:
    """A kept step of the run."""

    iteration: int
    optimization: str
    title: str
    sha: str
    """Its commit in the run."""
    improvement: float
    """Over the step before it, by the comparison that kept it."""
    saves: str
    text: str
    """The kernel's after it, with the steps before it that are replayed."""
    dropped: str = ""
    """Why it is not replayed; its text is then that of the step before it."""
    contains: tuple[int, ...] = ()
    """Places of earlier steps that it replaced, and whose change its own holds."""

    @property
    def left_out_in_words(self) -> str:
        """That it is not replayed, and why; empty where it is."""
        said = f"{self.title} (iteration {self.iteration}) is left out: {self.dropped}"
        return said if self.dropped else ""


@dataclass(frozen=True)
class KeptSteps:
    """All kept steps of a run, oldest first."""

    kernel: str
    origin: str
    """The kernel's text."""
    steps: tuple[KeptStep, ...]
    notes: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The kernel's at the origin and after each step."""
        return (self.origin, *(step.text for step in self.steps))

    @property
    def replayed(self) -> tuple[KeptStep, ...]:
        """The steps that get a commit."""
        return tuple(step for step in self.steps if not step.dropped)

    @property
    def end(self) -> str:
        """The kernel's text at the end."""
        return self.texts[-1]

    def left_out(self, why: Mapping[int, str], repository: Repository) -> KeptSteps:
        """Without the steps at these places, where none of the later ones builds on them."""
        found = self
        for place, reason in why.items():
            texts = without(found.texts, place, None, repository.merge)
            step = found.steps[place]
            if texts is None:
                note = f"{step.title} stays, for a later step builds on it: {reason}"
                found = replace(found, notes=(*found.notes, note))
            else:
                found = found._with(texts).marked(place, reason)
        return found

    def without_asked(self, iterations: Collection[int], repository: Repository) -> KeptSteps:
        """Without the steps of these iterations, the last one first: it may build on the others.

        Raises:
            UsageError: one was not kept, a step that stays builds on one, or none is left.
        """
        if not iterations:
            return self
        places = {step.iteration: place for place, step in enumerate(self.steps)}
        if unknown := sorted(set(iterations) - set(places)):
            kept = ", ".join(map(str, places))
            raise UsageError(f"--without {unknown[0]}: no such step was kept; the run kept {kept}")
        found = self
        for iteration in sorted(set(iterations), reverse=True):
            place = places[iteration]
            texts = without(found.texts, place, None, repository.merge)
            if texts is None:
                later = found._built_on(place, repository)
                raise UsageError(
                    f"--without {iteration}: iteration {later.iteration} ({later.title}) builds on "
                    f"it; leave that out too with --without {later.iteration}"
                )
            if not found.steps[place].dropped:
                found = found._with(texts).marked(place, "as asked")
        if not found.without_empty().replayed:
            raise UsageError(
                "--without leaves none of the kept steps: there is nothing to finalize"
            )
        return found

    def _built_on(self, place: int, repository: Repository) -> KeptStep:
        """The first step whose change cannot be brought onto a text without that of `place`."""
        for later in range(place + 1, len(self.steps)):
            if without(self.texts[: later + 2], place, None, repository.merge) is None:
                return self.steps[later]
        raise AssertionError("no later step builds on it")

    def without_replaced(self, repository: Repository) -> KeptSteps:
        """Without the steps of which nothing is left at the end; the end stays as it is."""
        found = self
        names = [step.optimization for step in self.steps]
        for place, by in replaced(self.texts, names).items():
            if self.steps[place].dropped or self.steps[by].dropped:
                continue
            texts = without(found.texts, place, by, repository.merge)
            if texts is None:
                continue  # the steps between build on it
            later = found.steps[by]
            reason = f"{later.title} (iteration {later.iteration}) replaced all that it wrote"
            found = found._with(texts).marked(place, reason)
            later = replace(found.steps[by], contains=(*found.steps[by].contains, place))
            found = replace(found, steps=(*found.steps[:by], later, *found.steps[by + 1 :]))
        return found

    def without_empty(self) -> KeptSteps:
        """Without steps that change nothing any more, since others are left out."""
        found = self
        for place, (before, step) in enumerate(zip(self.texts, self.steps, strict=False)):
            if step.text == before and not step.dropped:
                found = found.marked(place, "nothing of it is left without the others")
        return found

    def marked(self, place: int, reason: str) -> KeptSteps:
        """With a step that is not replayed, whose text is that of the one before it already."""
        step = replace(self.steps[place], dropped=reason)
        return replace(self, steps=(*self.steps[:place], step, *self.steps[place + 1 :]))

    def _with(self, texts: Sequence[str]) -> KeptSteps:
        steps = (replace(step, text=t) for step, t in zip(self.steps, texts[1:], strict=True))
        return replace(self, steps=tuple(steps))


def replay_of(repository: Repository, run: Run, known: Sequence[Iteration]) -> KeptSteps:
    """All that a run kept, nothing left out.

    Raises:
        UsageError: git no longer has a commit of it.
    """
    assert run.started is not None
    kernel, origin = run.started.kernel, run.started.origin_sha
    repository.check_commits(origin, *(row.sha for row in run.kept))
    by_number = {each.number: each for each in known}
    steps = []
    for row in run.kept:
        each = by_number[row.iteration]
        assert each.comparison is not None
        steps.append(
            KeptStep(
                row.iteration,
                each.proposal.optimization,
                row.optimization,
                row.sha,
                each.comparison.overall.improvement,
                row.saves,
                repository.read(row.sha, kernel).decode(),
            )
        )
    return KeptSteps(kernel, repository.read(origin, kernel).decode(), tuple(steps))


def faded(replay: KeptSteps, finished: Finished) -> dict[int, str]:
    """The steps whose gain did not show again, where the others account for the gain of all.

    The judge measured each step anew at the end of the run. One whose gain is not told from zero
    then may still be a part of a gain that shows in sum: several such steps are not taken out
    unless the comparisons of what is left promise at least what origin against best surely gained.

    Returns:
        Its place -> why it contributes nothing.
    """
    found = {
        place: "its gain did not show when the run measured it again at its end"
        for place, step in enumerate(replay.steps)
        if step.iteration in finished.faded and not step.dropped
    }
    if not found or finished.comparison is None:
        return {}
    left = 1.0
    for place, step in enumerate(replay.steps):
        left *= 1.0 if place in found else 1 - step.improvement
    return found if 1 - left >= finished.comparison.overall.low else {}


@dataclass(frozen=True)
class Onto:
    """Where a run is replayed."""

    workspace: Workspace
    """Writes the commits."""
    run: Run
    name: str
    """As the user would name the commit."""
    base: str
    """The commit; it has the kernel that the run began with."""
    first: Mapping[str, bytes]
    """Files that a commit before the first step adds: tests that the run captured."""

    def commit(self, replay: KeptSteps) -> Commits:
        """Commits, one a step, with the messages that the run gave them.

        They have the dates of the run's commits: the same replay gives the same commits.
        """
        workspace, tip = self.workspace, self.base
        assert self.run.started is not None
        if self.first:
            origin = self.run.started.origin_sha
            tip = workspace.commit_files(tip, self.first, *_message(workspace.repository, origin))
        start, shas = tip, {}
        for step in replay.replayed:
            message, when = _message(workspace.repository, step.sha)
            for place in step.contains:
                other = replay.steps[place]
                message += (
                    f"\nIt holds the change of iteration {other.iteration} ({other.title}), which "
                    "it replaced,\nand was measured against the kernel with it.\n"
                )
            tip = workspace.commit_files(tip, {replay.kernel: step.text.encode()}, message, when)
            shas[step.iteration] = tip
        return Commits(start, shas)


@dataclass(frozen=True)
class Commits:
    """A replay in git."""

    start: str
    """The commit before the first step."""
    steps: Mapping[int, str]
    """Iteration -> its commit, oldest first."""

    @property
    def end(self) -> str:
        """The last commit."""
        return [self.start, *self.steps.values()][-1]


def _message(repository: Repository, sha: str) -> tuple[str, float]:
    """The message of a commit, and when it was made, in seconds since the epoch."""
    head, _, message = repository.git("show", "--no-patch", "--format=%ct%n%B", sha).text.partition(
        "\n"
    )
    return f"{message.rstrip()}\n", float(head)


def captured(repository: Repository, run: Run, base: str) -> dict[str, bytes]:
    """The files that the run captured its tests in, where the base lacks them.

    Raises:
        UsageError: it lacks tests of the run that were not captured for it.
    """
    assert run.started is not None
    origin = run.started.origin_sha
    tests = {file.partition("::")[0] for file in run.started.tests.files}
    here, there = repository.files(origin), repository.files(base)
    missing = {t for t in tests if t in here and t not in there}
    if not missing:
        return {}
    parent = repository.ask("rev-parse", "--verify", "--quiet", f"{origin}^")
    before = repository.files(parent.text) if parent.status == 0 else {}
    added = {path: entry for path, entry in here.items() if path not in before}
    if not missing <= added.keys():
        name = shown(min(missing - added.keys()))
        raise UsageError(f"{name}, a test of the run, is not in {base[:12]}: name another --onto")
    contents = repository.read_blobs({entry.blob for entry in added.values()})
    return {path: contents[entry.blob] for path, entry in added.items()}
