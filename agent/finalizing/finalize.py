"""A run as a clean branch: its kept steps on the user's branch, tested, and told.

Nothing of the user's changes: commits are made by plumbing, tested in worktrees of their own, and
the branch is created when all is right, never moved. Their checkout is written on request alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agent.errors import FinalTestsFailed, UsageError
from agent.events import Event, Started
from agent.finalizing import checkout
from agent.finalizing.checking import EACH_STEP_S, Checks, needless
from agent.finalizing.pull_request import pull_request
from agent.finalizing.replay import Commits, KeptSteps, Onto, captured, faded, replay_of
from agent.journal import replay as run_of
from agent.journal import to_json
from agent.measuring.measurement import Failure
from agent.measuring.statistics import Comparison
from agent.report.document import document
from agent.report.iterations import Iteration, iterations
from agent.repository import Repository, shown
from agent.session import opened_at
from agent.state import Phase, Run
from agent.workspace import Workspace

Say = Callable[[str], None]
"""Told in a line what is waited for."""


@dataclass(frozen=True)
class Wish:
    """What the user asked for."""

    branch: str | None = None
    onto: str | None = None
    without: tuple[int, ...] = ()
    """Iterations whose steps are left out, whatever they gained."""
    keep_all: bool = False
    measure: bool = False
    apply: bool = False


@dataclass(frozen=True)
class Finalized:
    """What came of it."""

    run: Run
    replay: KeptSteps
    branch: str
    onto: Onto
    commits: Commits
    each_step: bool
    """Whether the tests ran on each step, and not on the end alone."""
    notes: tuple[str, ...]
    comparison: Comparison | None
    applied: bool
    text: str
    """Of a pull request, as Markdown."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        assert self.run.started is not None
        return {
            "run": self.run.started.run_id,
            "kernel": self.replay.kernel,
            "branch": self.branch,
            "onto": self.onto.name,
            "base_sha": self.onto.base,
            "sha": self.commits.end,
            "steps": [
                {
                    "iteration": each.iteration,
                    "title": each.title,
                    "sha": self.commits.steps[each.iteration],
                }
                for each in self.replay.replayed
            ],
            "dropped": [
                {"iteration": each.iteration, "title": each.title, "reason": each.dropped}
                for each in self.replay.steps
                if each.dropped
            ],
            "each_step_tested": self.each_step,
            "measured": to_json(self.comparison) if self.comparison else None,
            "notes": list(self.notes),
            "applied": self.applied,
            "text": self.text,
        }


def finalize(
    repository: Repository,
    events: Sequence[Event],
    wish: Wish,
    say: Say,
    clean: Callable[[Any], Any],
) -> Finalized:
    """Make the branch.

    Args:
        repository: the user's.
        events: of the run's journal.
        wish: what the user asked for.
        say: told in a line what is waited for.
        clean: takes secrets out of plain values.

    Raises:
        UsageError: it is refused, with the reason; nothing has been changed.
        FinalTestsFailed: tests fail on it; nothing has been changed.
    """
    run, known = run_of(events), iterations(events)
    started = _finished(run)
    workspace = Workspace(repository, f"finalize-{started.run_id}")
    whole = replay_of(repository, run, known)
    name, base = _base(repository, run, whole, wish.onto)
    onto = Onto(workspace, run, name, base, captured(repository, run, base))
    branch = wish.branch or f"{started.branch}-final"
    origin = whole.origin.encode()
    if wish.apply:
        checkout.check_unchanged(repository, whole.kernel, origin)
    chosen = _chosen(whole, run, repository, wish)
    commits = onto.commit(chosen)
    if not wish.measure:
        _check_branch(workspace, branch, commits.end)
    comparison: Comparison | None = None
    told: list[str] = []
    with opened_at(repository, run, commits.start, say) as session:
        checks = Checks(session, run)
        if wish.measure:
            checks.check_machine()
            if not wish.keep_all:
                chosen, told = _measured(checks, chosen, onto, say)
                commits = onto.commit(chosen)
            _check_branch(workspace, branch, commits.end)
        each_step = checks.are_cheap(len(commits.steps))
        _verify(checks, commits, known, say, each_step=each_step)
        if wish.measure:
            say("measuring: the kernel as the run began with it against the end of the branch")
            found = checks.compare(commits.start, commits.end, whole=True)
            if isinstance(found, Failure):
                told.append(f"The end of the branch could not be measured: {found.reason}")
            else:
                comparison = found
    notes = [*_told(onto, chosen, measured=comparison is not None, each_step=each_step), *told]
    text = pull_request(
        clean(document(events, repository)),
        chosen,
        commits.steps,
        branch=branch,
        base=base[:12],
        notes=clean(notes),
        comparison=comparison,
    )
    if not _check_branch(workspace, branch, commits.end):
        workspace.create_branch(branch, commits.end)
    if wish.apply:
        checkout.swap(repository, whole.kernel, origin, chosen.end.encode())
    return Finalized(
        run=run,
        replay=chosen,
        branch=branch,
        onto=onto,
        commits=commits,
        each_step=each_step,
        notes=tuple(notes),
        comparison=comparison,
        applied=wish.apply,
        text=text,
    )


def _check_branch(workspace: Workspace, branch: str, sha: str) -> bool:
    """Whether there is such a branch at that commit already.

    Raises:
        UsageError: it is elsewhere; no branch is ever moved.
    """
    there = workspace.repository.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
    if there.status == 0 and there.text == sha:
        return True
    workspace.check_free(branch)
    if workspace.repository.ask("check-ref-format", "--branch", branch).status != 0:
        raise UsageError(f"{branch!r} cannot name a branch: give another with --branch NAME")
    return False


# --- what is replayed, and onto what ------------------------------------------------------------


def _finished(run: Run) -> Started:
    """How a run began that is done and kept something.

    Raises:
        UsageError: it is not, or did not.
    """
    assert run.started is not None
    name = run.started.run_id
    if run.phase is not Phase.DONE:
        raise UsageError(f"run {name} is not done: `tile-agent status {name}` says how to go on")
    if not run.kept:
        raise UsageError(f"run {name} kept nothing: there is nothing to finalize")
    return run.started


def _base(repository: Repository, run: Run, whole: KeptSteps, onto: str | None) -> tuple[str, str]:
    """The name and the commit to replay onto: it has the kernel that the run began with.

    Raises:
        UsageError: it has not.
    """
    assert run.started is not None
    name = onto or repository.branch() or "HEAD"
    ask = repository.ask
    found = ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found.status != 0:
        raise UsageError(f"{name} names no commit here: give a branch with --onto")
    sha, origin, kernel = found.text, run.started.origin_sha, whole.kernel
    entry = repository.entry(sha, kernel)
    if entry is None:
        raise UsageError(f"{shown(kernel)} is not in {name}: give the branch that has it by --onto")
    expected = repository.entry(origin, kernel)
    if expected is not None and entry.blob == expected.blob:
        return name, sha
    end = repository.entry(run.incumbent_sha, kernel)
    if end is not None and entry.blob == end.blob:
        raise UsageError(f"{name} has all that run {run.started.run_id} kept already")
    logged = ("log", "-1", "--format=%h %s", f"{origin}..{sha}", "--", f":(top,literal){kernel}")
    last = ask(*logged).text
    by = f" ({' '.join(last.split())})" if last else ""
    raise UsageError(
        f"{shown(kernel)} in {name} is not what the run began with{by}: what was measured does not "
        f"hold for it; run again, or take steps by `git cherry-pick` from {run.started.branch}"
    )


def _chosen(whole: KeptSteps, run: Run, repository: Repository, wish: Wish) -> KeptSteps:
    """Without what the user leaves out and what contributes nothing, as texts and journal tell.

    Raises:
        UsageError: nothing is left, or what the user leaves out cannot be.
    """
    found = whole.without_asked(wish.without, repository)
    if wish.keep_all:
        return found
    # That a step's gain did not show holds beside all others; measuring the steps says more.
    if not wish.without and not wish.measure and run.finished is not None:
        found = found.left_out(faded(found, run.finished), repository)
    found = found.without_replaced(repository).without_empty()
    if not found.replayed:
        raise UsageError(
            "no kept step of the run contributes anything: there is nothing to finalize; "
            "--keep-all takes them nevertheless"
        )
    return found


def _measured(
    checks: Checks, chosen: KeptSteps, onto: Onto, say: Say
) -> tuple[KeptSteps, list[str]]:
    """Without the steps that make no difference to the end; and what else to tell.

    Steps that make none one by one may make one together: then they stay.
    """
    repository, end = onto.workspace.repository, onto.commit(chosen).end
    looks: dict[int, Comparison | Failure] = {}
    for place, step in enumerate(chosen.steps):
        if step.dropped or step.saves or len(chosen.replayed) < 2:
            continue
        rest = chosen.left_out({place: "asked"}, repository)
        if not rest.steps[place].dropped:
            continue  # a later step builds on it
        say(f"measuring: the end without {step.title} (iteration {step.iteration})")
        looks[place] = checks.compare(onto.commit(rest.without_empty()).end, end)
    found = needless(chosen, looks)
    rest = chosen.left_out(found, repository).without_empty()
    if not found:
        return chosen, []
    if not rest.replayed:
        return chosen, ["No step makes a difference by itself: all stay."]
    if len(found) > 1:
        say("measuring: the end without all of these")
        together = checks.compare(onto.commit(rest).end, end)
        if isinstance(together, Failure) or together.overall.low > 0:
            names = ", ".join(chosen.steps[place].title for place in found)
            return chosen, [f"None of {names} makes a difference by itself, all together do."]
    return rest, []


# --- what is checked and told -------------------------------------------------------------------


def _verify(
    checks: Checks, commits: Commits, known: Sequence[Iteration], say: Say, *, each_step: bool
) -> None:
    """Run the tests on the end, and on the steps before it.

    Raises:
        FinalTestsFailed: some fail.
    """
    *before, (_, end) = commits.steps.items()
    say("testing the end of the branch")
    if problem := checks.verify(end, commits.start, known):
        raise FinalTestsFailed(f"tests fail on the end of the branch, so none is made: {problem}")
    for number, sha in before if each_step else ():
        say(f"testing iteration {number}")
        if problem := checks.verify(sha, None, known):
            raise FinalTestsFailed(
                f"tests fail on iteration {number} as it is replayed, so no branch is made: "
                f"{problem}; --keep-all replays every step"
            )


def _told(onto: Onto, chosen: KeptSteps, *, measured: bool, each_step: bool) -> Iterator[str]:
    """What a reader of the pull request should know."""
    run, repository = onto.run, onto.workspace.repository
    assert run.started is not None
    several = len(chosen.replayed) > 1
    if several and each_step:
        yield "The correctness tests pass on each commit of the branch."
    else:
        longer = f"; on each step they would take more than {EACH_STEP_S:.0f} s"
        yield f"The correctness tests pass on the end of the branch{longer if several else ''}."
    yield from chosen.notes
    for step in chosen.steps:
        if step.dropped:
            yield step.left_out_in_words
    best = repository.read(run.incumbent_sha, chosen.kernel).decode()
    if not measured and chosen.end != best:
        yield (
            "The figures are those of the run's best, with the steps that are left out here: "
            "without them it was not measured."
        )
    elif not measured and len(chosen.replayed) < len(chosen.steps):
        yield (
            "The figures are those of the run's best, which is the code at the end of the branch; "
            "each step's are over the step before it in the run, with those that are left out here."
        )
    listed = ("diff", "--name-only", "-z", "--no-renames", run.started.origin_sha, onto.base)
    names = repository.git(*listed).text.split("\0")
    others = [name for name in names if name and name not in onto.first]
    if others and not measured:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        yield f"Other files have changed since it was measured: {shown(others[0])}{more}."
