"""`report`: what came of a run, for a pull request, a browser or a program."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli import completion, output
from agent.cli.shared_options import examples
from agent.errors import UsageError

if TYPE_CHECKING:
    from agent.repository import Repository


def register(app: typer.Typer) -> None:
    """Add the command."""
    calls = examples("report", "report --html --open", "report softmax-1 softmax-2 -o both.md")
    app.command(epilog=calls)(report)


def report(
    run_id: str | None = typer.Argument(
        None, metavar="[RUN]", help="The latest when left out.", autocompletion=completion.runs
    ),
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[OTHER]",
            help="Compare the run with this one on the same kernel.",
            autocompletion=completion.runs,
        ),
    ] = None,
    as_html: Annotated[
        bool,
        typer.Option("--html", help="One file for a browser, with charts; it loads nothing else."),
    ] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="For a pull request; that is the default.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what the two are made of as JSON.")
    ] = False,
    target: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write it to this file. The page goes to report.html in the run's folder when "
            "left out, everything else to standard output.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
) -> None:
    """Say what a run gained, by which steps, what it set aside, and how to reproduce it.

    Of two runs it says what each gained on which config, which steps they share, and where they
    differ. Of a run in progress it says how far that is. The page holds the latency of each
    iteration with its interval, each change with the rule that decided it, and where the time went.
    """
    output.use_json(as_json)
    if as_html + as_markdown + as_json > 1 or (show and (as_markdown or as_json)):
        raise UsageError("choose one of --html, --markdown and --json; --open is for --html")
    from agent.report import page, two_runs
    from agent.repository import Repository
    from agent.runs import chosen_run, runs_folder

    repository = Repository.open(Path.cwd())
    name = chosen_run(repository, run_id)
    found = _found(repository, name, other)
    html, markdown, file = page.html, page.markdown, "report.html"
    if other is not None:
        html, markdown, file = two_runs.html, two_runs.markdown, f"report-{other}.html"
    if as_html or show:
        path = target or runs_folder(repository) / name / file
        output.write(path, html(found))
        output.result({}, str(path))
        if show and not webbrowser.open(path.resolve().as_uri()):
            raise UsageError(f"no browser was found here: open {path} in one")
    elif target is None:
        output.result(found, "" if as_json else markdown(found))
    else:
        output.write(target, output.as_json(found) if as_json else markdown(found))


def _found(repository: Repository, name: str, other: str | None) -> dict[str, Any]:
    """A run, or two compared, without secrets.

    Raises:
        UsageError: there is no such run, or the two do not go together.
    """
    from agent.report.document import document
    from agent.report.two_runs import side_by_side
    from agent.runs import begun, chosen_run

    names = [name] if other is None else [name, chosen_run(repository, other)]
    if len({*names}) < len(names):
        raise UsageError(f"{name} is one run: name another to compare it with")
    found, *others = (
        document([line.event for line in begun(repository, each)], repository) for each in names
    )
    for second in others:
        if second["kernel"] != found["kernel"]:
            raise UsageError(
                f"{name} is a run on {found['kernel']}, {other} on {second['kernel']}: "
                "compare runs on one kernel"
            )
        found = side_by_side(found, second, repository)
    clean: dict[str, Any] = output.without_secrets(found)
    return clean
