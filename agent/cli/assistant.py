"""`begin`, `next`, `try`, `finish`: the loop as an assistant leads it, one call at a time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import completion, output
from agent.cli.observe import announce, observer
from agent.cli.run_parameters import asking_which
from agent.cli.shared_options import Json
from agent.errors import UsageError

if TYPE_CHECKING:
    from agent.assistant.turn import Turn
    from agent.options import Request
    from agent.proposers.agenda import Task
    from agent.repository import Repository
    from agent.settings import Setting

RunId = Annotated[
    str | None,
    typer.Option(
        "--run",
        help="Id of the run; the one that waits when left out.",
        autocompletion=completion.runs,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(asking_which(begin))
    app.command("next")(next_task)
    app.command("try")(try_draft)
    app.command()(finish)


def begin(request: Request, yes: bool, given: Collection[Setting]) -> None:
    """Begin a run that you lead: branch and baseline; go on with `tile-agent next`.

    Where a run on the kernel is under way it goes on with that one, and refuses options that the
    run did not begin with; `tile-agent finish` ends it, or takes it back before its baseline.
    """
    from agent.assistant.driving import begin_run
    from agent.repository import Repository

    announced = partial(announce, ask=not yes)
    turn = begin_run(request, observer, announced, output.progress, given)
    _show(replace(turn, whole=True), Repository.open(request.kernel.absolute().parent))


def next_task(
    run_id: RunId = None,
    decline: Annotated[
        str, typer.Option(help="Why what is offered is not worth a try, or cannot be mended.")
    ] = "",
    drop: Annotated[
        str,
        typer.Option(
            help="Why you leave the iteration behind, whatever state it is in; it is a crash if it "
            "had a candidate."
        ),
    ] = "",
    choose: Annotated[
        str,
        typer.Option(
            help="Name of the one that you would rather do, also once more with another value.",
            autocompletion=completion.optimizations,
        ),
    ] = "",
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Say in the JSON what earlier answers said, too: for who does not know it now.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say which ONE optimization to carry out, and in which file.

    The JSON leaves out what earlier answers of the run said, unless nothing happened since the last
    one; `--full` has it say everything.
    """
    output.use_json(as_json)
    from agent.assistant.offering import offer
    from agent.repository import Repository

    repository, whole = Repository.open(Path.cwd()), full or not as_json
    turn = offer(repository, run_id, declined=decline, dropped=drop, wanted=choose, whole=whole)
    _show(turn, repository)


def try_draft(
    message: Annotated[
        str, typer.Option("--message", "-m", help="What you did, and why it should help.")
    ] = "",
    draft: Annotated[
        Path | None, typer.Option(help="A file whose text takes the place of the draft's.")
    ] = None,
    variant: Annotated[
        list[Path] | None,
        typer.Option(
            help="A file with the same optimization by another value; give several, and the one "
            "that looks fastest beside the draft is judged."
        ),
    ] = None,
    run_id: RunId = None,
    as_json: Json = False,
) -> None:
    """Have the draft tested, measured, and kept or reverted; what fails may be mended twice."""
    output.use_json(as_json)
    from agent.assistant.driving import attempt
    from agent.repository import Repository

    repository = Repository.open(Path.cwd())
    text = _text_of("--draft", draft) if draft else None
    variants = {f"--variant {file}": _text_of("--variant", file) for file in variant or ()}
    turn = attempt(repository, run_id, message, observer, output.progress, text, variants)
    _show(turn, repository, verdict=True)


def _text_of(option: str, file: Path) -> str:
    """What a candidate is to be.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return file.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"{option} {file}: give a file of text ({problem})") from None


def finish(run_id: RunId = None, as_json: Json = False) -> None:
    """End the run: origin against best, measured afresh, and the summary.

    A run that has no baseline yet is taken back: its branch and its folder go.
    """
    output.use_json(as_json)
    from agent.assistant.driving import finish_run
    from agent.environment import describe
    from agent.report.result import exit_code, to_result
    from agent.report.summary import summarize
    from agent.repository import Repository

    turn = finish_run(Repository.open(Path.cwd()), run_id, observer, output.progress)
    run = turn.run
    assert run.started is not None
    if turn.taken_back:
        name, command = run.started.run_id, _command(turn)
        value = {"run": name, "do": turn.do, "reason": turn.reason, "command": command}
        output.result(value, f"run {name} {turn.reason}\nbegin anew: {command}")
        return
    output.result(
        to_result(run) | {"do": turn.do, "command": _command(turn)},
        summarize(run, describe(run.started.environment)),
    )
    raise typer.Exit(exit_code(run))


# --- what is shown ------------------------------------------------------------------------------


def _show(turn: Turn, repository: Repository, *, verdict: bool = False) -> None:
    from agent.assistant.told import NOTHING, note, told_of, without_what_was_told
    from agent.report.attempt import last_attempt_in_words
    from agent.report.result import exit_code, left_in_words

    value = _value(turn, verdict=verdict)
    told = NOTHING if turn.whole else told_of(repository, turn.run)
    short, said = without_what_was_told(value, told)
    lines = []
    if turn.row is not None:
        row = turn.row
        lines.append(f"{row.iteration} {row.optimization}: {row.status.value}: {row.reason}")
    if turn.unjudged:
        lines.append(turn.unjudged)
    if turn.is_mending:
        lines += last_attempt_in_words(turn.run)
    if turn.skipped is not None:
        lines.append(f"not worth an iteration: {turn.skipped.reason}")
    if turn.do != "done":
        lines.append(left_in_words(turn.run))
    if turn.brief is not None:
        lines.append(turn.brief.text)
    if turn.draft is not None:
        lines.append(f"Edit {turn.draft}, then: {value['command']}")
    else:
        lines.append(f"{turn.reason or 'go on'}: {value['command']}")
    output.result(value if turn.whole else short, "\n".join(lines))
    if output.is_json():
        note(repository, turn, told, said)
    if turn.do == "done":
        raise typer.Exit(exit_code(turn.run))


def _value(turn: Turn, *, verdict: bool) -> dict[str, Any]:
    from agent.journal import to_json
    from agent.report.attempt import last_attempt
    from agent.report.forecast import forecast
    from agent.report.result import iteration_of, kept_at, left

    run = turn.run
    started, expected = run.started, forecast(run)
    assert started is not None
    value: dict[str, Any] = {
        "run": started.run_id,
        "kernel": started.kernel,
        "branch": started.branch,
        "best_ref": kept_at(run),
        "iteration": iteration_of(run),
        "kept": len(run.kept),
        "left": left(run),
        "do": turn.do,
        "reason": turn.reason,
        "command": _command(turn),
        "latency_meaning": started.latency_meaning,
        "incumbent_ms": run.incumbent_ms,
        "noise_floor": run.calibration.noise_floor if run.calibration else None,
        "subset": to_json(run.subset) if run.subset else None,
        "forecast": expected.to_json() if expected else None,
        "diagnosis": to_json(run.diagnosis) if run.diagnosis else None,
    }
    if verdict:
        value |= {"resumed": turn.resumed, "unjudged": turn.unjudged or None} | _verdict(turn)
    if turn.is_mending or (verdict and turn.row is not None):
        value["attempt"] = last_attempt(run)
    if turn.draft is not None:
        value |= {"file": str(turn.draft), "edited": turn.edited}
    if turn.task is not None:
        value |= {
            "optimization": turn.task.optimization,
            "title": turn.task.title,
            "family": turn.task.family,
            "prose": turn.task.prose,
            "why": turn.task.why,
            "brief": turn.brief.text if turn.brief else "",
            "others": [_other(task) for task in turn.others],
            "again": list(turn.again),
        }
    return value


def _verdict(turn: Turn) -> dict[str, Any]:
    """What became of the draft: a row with its effect, or why it was not worth an iteration."""
    from agent.journal import to_json

    effect = turn.run.comparison.overall if turn.row and turn.run.comparison else None
    return {
        "row": to_json(turn.row) if turn.row else None,
        "effect": to_json(effect) if effect else None,
        "skipped": turn.skipped.reason if turn.skipped else None,
    }


def _other(task: Task) -> dict[str, Any]:
    return {
        "optimization": task.optimization,
        "title": task.title,
        "fits": task.fits,
        "why": task.why,
    }


def _command(turn: Turn) -> str:
    """The command line that comes next."""
    from agent.report.result import next_command

    return next_command(turn.run, turn.do)
