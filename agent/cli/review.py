"""`diff` and `history`: what a run changed, and what all runs on a kernel tried."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import completion, output
from agent.cli.shared_options import Json, examples
from agent.errors import TileAgentError, UsageError

if TYPE_CHECKING:
    from agent.report.iterations import Iteration
    from agent.repository import Repository
    from agent.store.experience import Experience


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog=examples("diff", "diff 3", "diff softmax-20250102-030405 3"))(diff)
    app.command(
        epilog=examples("history --kernel softmax.py", "history --kernel softmax.py --json")
    )(history)


def diff(
    run_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="The latest when left out.", autocompletion=completion.runs
        ),
    ] = None,
    iteration: Annotated[
        int | None,
        typer.Argument(
            metavar="[ITERATION]",
            help="Origin against best when left out. A number alone is an iteration of the latest "
            "run.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a run changed: origin against best, or one iteration against the best before it.

    Of a sweep it is the variant that was judged. The text is one that `git apply` takes.
    """
    output.use_json(as_json)
    from agent.journal import replay
    from agent.report.iterations import iterations
    from agent.repository import Repository
    from agent.runs import begun, chosen_run, find_runs

    repository = Repository.open(Path.cwd())
    if iteration is None and run_id and run_id.isdecimal() and run_id not in find_runs(repository):
        iteration = int(run_id)
        run_id = None
    name = chosen_run(repository, run_id)
    events = [line.event for line in begun(repository, name)]
    run = replay(events)
    assert run.started is not None
    found: dict[str, Any] = {"run": name, "kernel": run.started.kernel, "iteration": iteration}
    if iteration is None:
        found |= {"title": "origin against best", "status": None}
        before, after = run.started.origin_sha, run.incumbent_sha
    else:
        each = _of(iterations(events), iteration, name)
        found |= {
            "title": each.row.optimization if each.row else each.proposal.optimization,
            "status": each.row.status.value if each.row else None,
        }
        before, after = each.base_sha, each.shown_sha
    text = repository.diff(before, after, run.started.kernel)
    output.result(
        found | {"before": before, "after": after, "diff": text},
        text or f"no change: {run.started.kernel} is the same in both",
        is_diff=bool(text),
    )


def history(
    kernel: Annotated[Path, typer.Option(help="The kernel's file; it may be gone by now.")],
    as_json: Json = False,
) -> None:
    """Say what all runs on a kernel tried: with which value, gain and verdict, when, on which GPU.

    The oldest comes first. Gains are those of each iteration over the best before it.
    """
    output.use_json(as_json)
    from agent.errors import JournalError, TransitionError
    from agent.report.history import history_of, table
    from agent.runs import begun, find_runs, kernel_in

    repository, name = kernel_in(kernel)
    runs, unreadable, others = [], [], set()
    for run in find_runs(repository):
        try:
            found = history_of(begun(repository, run))
        except UsageError:  # it tried nothing
            continue
        except (JournalError, TransitionError) as problem:
            unreadable.append({"run": run, "why": str(problem)})
            continue
        if found["kernel"] == name:
            runs.append(found)
        else:
            others.add(found["kernel"])
    if not runs:
        there = f"; there are runs on: {', '.join(sorted(others))}" if others else ""
        broken = f"; not readable: {', '.join(u['run'] for u in unreadable)}" if unreadable else ""
        raise UsageError(f"no run on {name} here{there}{broken}")
    known, unread = _remembered(repository, name)
    notes = [f"run {each['run']} cannot be read: {each['why']}" for each in unreadable]
    if known.lines:
        notes += ["", f"Remembered of kernels like it ({known.about}):", *known.lines]
    notes += [unread] if unread else []
    output.result(
        {"kernel": name, "runs": runs, "unreadable": unreadable, "remembered": list(known.lines)},
        "\n".join([f"{name}, as its runs tried it:", "", table(runs), *notes]),
    )


def _remembered(repository: Repository, kernel: str) -> tuple[Experience, str]:
    """What the user's store knows of kernels like one, where there is a store; or why not."""
    from agent.runs import runs_on
    from agent.store.experience import NOTHING
    from agent.store.recall import experience_of

    run = next((run for _, run in runs_on(repository, kernel)), None)
    try:
        return (experience_of(run, repository) if run else NOTHING), ""
    except TileAgentError as problem:
        return NOTHING, str(problem)


def _of(known: tuple[Iteration, ...], number: int, run: str) -> Iteration:
    """The iteration of that number.

    Raises:
        UsageError: there is none.
    """
    for each in known:
        if each.number == number:
            return each
    having = ", ".join(str(each.number) for each in known) or "none"
    raise UsageError(f"run {run} has no iteration {number}; there are: {having}")
