"""`finalize`: what a run kept, as a branch to propose."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import completion, output
from agent.cli.shared_options import Json, examples
from agent.errors import ExitCode, FinalTestsFailed

if TYPE_CHECKING:
    from agent.finalizing.finalize import Finalized
    from agent.measuring.statistics import Comparison

PULL_REQUEST = "pull_request.md"


def register(app: typer.Typer) -> None:
    """Add the command."""
    calls = examples(
        "finalize",
        "finalize --onto main --branch faster-softmax",
        "finalize --without 3",
        "finalize --measure --apply",
    )
    app.command(epilog=calls)(finalize)


def finalize(
    run_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="The latest when left out.", autocompletion=completion.runs
        ),
    ] = None,
    branch: Annotated[
        str | None,
        typer.Option(help="Name of the branch to make; that of the run and -final when left out."),
    ] = None,
    onto: Annotated[
        str | None,
        typer.Option(help="Replay on this branch or commit; on what is checked out if left out."),
    ] = None,
    without: Annotated[
        list[int] | None,
        typer.Option(
            "--without",
            metavar="<iteration>",
            help="Leave out the step of this iteration, whatever it gained; may be given again.",
        ),
    ] = None,
    keep_all: Annotated[
        bool, typer.Option("--keep-all", help="Leave no step out that contributes nothing.")
    ] = False,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Compare the end with and without each step on the GPU of the run, leave out what "
            "makes no difference, and measure the whole again.",
        ),
    ] = False,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Also write the kernel to your checkout, if it holds there what the run began "
            "with.",
        ),
    ] = False,
    target: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help=f"Write the text of the pull request to this file; to {PULL_REQUEST} in the run's "
            "folder when left out.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a clean branch of what a run kept: a commit a step, tested, with a text to propose it.

    Steps that contribute nothing are left out and named: those that a later step replaced, and
    those whose gain did not show when the run measured them again while the others account for all
    of it. Refused where the kernel has changed since the run began. Nothing is pushed, no branch is
    moved, and nothing is checked out.
    """
    output.use_json(as_json)
    from agent.finalizing.finalize import Wish
    from agent.finalizing.finalize import finalize as made
    from agent.repository import Repository
    from agent.runs import begun, chosen_run, runs_folder

    repository = Repository.open(Path.cwd())
    name = chosen_run(repository, run_id)
    events = [line.event for line in begun(repository, name)]
    wish = Wish(branch, onto, tuple(without or ()), keep_all, measure, apply)
    try:
        found = made(repository, events, wish, output.progress, output.without_secrets)
    except FinalTestsFailed as problem:
        code = output.failed(str(problem), ExitCode.NO_IMPROVEMENT)
        raise typer.Exit(code) from problem
    path = target or runs_folder(repository) / name / PULL_REQUEST
    output.write(path, found.text)
    value = found.to_json() | {"pull_request": str(path)}
    output.result(value, "\n".join(_lines(found, path)))


def _lines(found: Finalized, path: Path) -> Iterator[str]:
    has_tests = found.commits.start != found.onto.base
    count = len(found.commits.steps) + has_tests
    yield (
        f"branch {found.branch} has {count} commit{'s' if count > 1 else ''} on {found.onto.name}, "
        f"{found.onto.base[:12]}"
    )
    if has_tests:
        names = ", ".join(sorted(found.onto.first))
        yield f"  {found.commits.start[:12]:<12} tests that the run captured: {names}"
    for step in found.replay.steps:
        sha = found.commits.steps.get(step.iteration, "")[:12]
        why = f": {step.dropped}" if step.dropped else ""
        yield f"  {sha or 'left out':<12} iteration {step.iteration}: {step.title}{why}"
    if found.comparison is not None:
        yield from _measured(found.comparison)
    told = {step.left_out_in_words for step in found.replay.steps}
    yield from (f"note: {note}" for note in found.notes if note not in told)
    if found.applied:
        yield f"{found.replay.kernel} in your checkout is as at its end, not committed"
    yield f"look at it    git log -p {found.onto.base[:12]}..{found.branch}"
    give_back = f"git checkout -- {shlex.quote(f':/{found.replay.kernel}')} && "
    yield f"take it       {give_back if found.applied else ''}git merge --ff-only {found.branch}"
    yield f"propose it    {path}"


def _measured(comparison: Comparison) -> Iterator[str]:
    """The gain of the branch, and of each config where there are several."""
    from agent.measuring.decision import signed

    before_ms, after_ms = comparison.incumbent_ms, comparison.candidate_ms
    parts = [(f"{before_ms:.6f} -> {after_ms:.6f} ms", comparison.overall)]
    if len(comparison.configs) > 1:
        parts += [(config.config, config.effect) for config in comparison.configs]
    for name, effect in parts:
        interval = f"[{signed(effect.low)}, {signed(effect.high)}]"
        yield f"measured      {signed(effect.improvement)} {interval} {name}"
