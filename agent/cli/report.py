"""`report`: what came of a run, for a pull request, a browser or a program."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from agent.cli import output
from agent.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    run_id: str | None = typer.Argument(None, metavar="[RUN]", help="The latest when left out."),
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

    Of a run in progress it says how far that is. The page holds the latency of each iteration with
    its interval, each change with the rule that decided it, and where the time went.
    """
    output.use_json(as_json)
    if as_html + as_markdown + as_json > 1 or (show and (as_markdown or as_json)):
        raise UsageError("choose one of --html, --markdown and --json; --open is for --html")
    from agent.report.document import document
    from agent.report.page import html, markdown
    from agent.repository import Repository
    from agent.runs import begun, chosen_run, runs_folder

    repository = Repository.open(Path.cwd())
    name = chosen_run(repository, run_id)
    folder = runs_folder(repository) / name
    events = [line.event for line in begun(repository, name)]
    found = output.without_secrets(document(events, repository))
    if as_html or show:
        path = target or folder / "report.html"
        output.write(path, html(found))
        output.result({}, str(path))
        if show and not webbrowser.open(path.resolve().as_uri()):
            raise UsageError(f"no browser was found here: open {path} in one")
    elif target is None:
        output.result(found, "" if as_json else markdown(found))
    else:
        output.write(target, output.as_json(found) if as_json else markdown(found))
