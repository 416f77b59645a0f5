"""`playbook list`, `show` and `reference`: the optimizations, for a person to read."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import completion, observed, output
from agent.cli.shared_options import Json

if TYPE_CHECKING:
    from agent.analysis.common.subject import Subject
    from agent.playbook.base import Entry

app = typer.Typer(help="The optimizations that the loop can apply.", no_args_is_help=True)
Backend = Annotated[str | None, typer.Option(help="Only those of 'cutile' or 'triton'.")]


def register(parent: typer.Typer) -> None:
    """Add the commands, as a group."""
    parent.add_typer(app, name="playbook")


@app.command("list")
def list_entries(
    backend: Backend = None,
    as_json: Json = False,
) -> None:
    """List the optimizations with their expected effect."""
    output.use_json(as_json)
    from agent.playbook import ADVICE, PLAYBOOK
    from agent.playbook.base import Optimization

    chosen = _backends(backend)
    entries = [entry for entry in (*PLAYBOOK, *ADVICE) if entry.backend in chosen]
    width = max(len(entry.name) for entry in entries)
    output.result(
        {
            "optimizations": [
                {
                    "name": entry.name,
                    "backend": entry.backend,
                    "title": entry.title,
                    "family": entry.family,
                    "expected": entry.expected,
                    "measured": entry.measured,
                    "automatic": isinstance(entry, Optimization),
                }
                for entry in entries
            ]
        },
        "\n".join(
            f"{e.backend:<7} {e.name:<{width}} {'' if isinstance(e, Optimization) else '(prose) '}"
            f"{e.expected}"
            for e in entries
        ),
    )


@app.command()
def show(
    name: Annotated[str, typer.Argument(autocompletion=completion.optimizations)],
    kernel: Annotated[
        Path | None,
        typer.Option(
            autocompletion=completion.kernels,
            help="Also what it would try of this kernel, and the launches that this rests on.",
        ),
    ] = None,
    diff: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Only what the Nth of these versions changes in --kernel, for a person and for "
            "`git apply`.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show one optimization: when, what, the risk, the source, and an example."""
    output.use_json(as_json)
    from agent.playbook import find
    from agent.playbook.base import Optimization

    entry = find(name)
    if diff is not None:
        output.result(*_changed(entry, kernel, diff))
        return
    facts: dict[str, object] = {
        "name": entry.name,
        "backend": entry.backend,
        "title": entry.title,
        "family": entry.family,
        "expected": entry.expected,
        "measured": entry.measured,
        "hypothesis": entry.hypothesis,
        "changes_rounding": entry.changes_rounding,
        "prose": entry.prose,
        "automatic": isinstance(entry, Optimization),
    }
    text = f"{entry.name} ({entry.backend}, {entry.family})\n\n{entry.prose}\n\n"
    text += f"Expected: {entry.expected}\n"
    if entry.measured:
        text += f"Measured, latency saved: {entry.measured}\n"
    if isinstance(entry, Optimization):
        facts |= {
            "example": dict(entry.example),
            "before": entry.before,
            "after": entry.after,
        }
        text += (
            f"\nBefore:\n{entry.before}\nAfter ({entry.describe(entry.example)}):\n{entry.after}"
        )
    else:
        text += "It needs judgement: no program carries it out."
    if kernel is not None:
        more, lines = _on(entry, kernel)
        facts |= more
        text = "\n".join([text.rstrip("\n"), "", *lines])
    output.result(facts, text)


def _subject(entry: Entry, kernel: Path, seen: observed.SeenByRun) -> Subject:
    """What an entry is asked about a kernel, which is in its language or not for it."""
    from agent.analysis.common.subject import Hardware, NotApplicable, Subject
    from agent.analysis.triton.wrapped import decorated
    from agent.environment import probe
    from agent.launches import by_cost
    from agent.preflight import read_file
    from agent.syntax import Source
    from agent.target import parse

    source, backend = parse(read_file(kernel), str(kernel))
    if entry.backend != backend.name:
        raise NotApplicable(f"it is for {entry.backend}, and this is {backend.name}")
    gpu = probe().gpu
    hardware = Hardware(sm=gpu.sm if gpu else 0)
    source = decorated(Source(source.text, source.path, by_cost(seen.launches, {})))
    return Subject(source, backend.classify(source).kernel_class, hardware, seen.launches)


def _changed(entry: Entry, kernel: Path | None, number: int) -> tuple[dict[str, object], str]:
    """One of the versions that an entry would try of a kernel, as facts and as a diff."""
    from agent.analysis.common.subject import NotApplicable
    from agent.errors import UsageError
    from agent.playbook.base import Optimization
    from agent.proposers.playbook import edited
    from agent.report.unified import unified

    if kernel is None:
        raise UsageError("--diff shows a change of a kernel: name its file with --kernel")
    if not isinstance(entry, Optimization):
        raise UsageError(f"no program carries out {entry.name}: there is no change to show")
    try:
        subject = _subject(entry, kernel, observed.by_newest_run(kernel))
        variants = entry.variants(subject)
        if number > len(variants):
            versions = "one version" if len(variants) == 1 else f"{len(variants)} versions"
            raise UsageError(
                f"{entry.name} has {versions} of {kernel}, and none is number {number}"
            )
        params = variants[number - 1]
        text = unified(
            subject.source.text, edited(entry, subject, params), _within_checkout(kernel)
        )
    except NotApplicable as reason:
        raise UsageError(f"{entry.name} does not apply to {kernel}: {reason}") from None
    title = entry.describe(params)
    return {"name": entry.name, "title": title, "params": dict(params), "diff": text}, text


def _within_checkout(kernel: Path) -> Path:
    """As `git apply` names the file; as it was given outside of a repository."""
    from agent.errors import UsageError
    from agent.repository import Repository

    try:
        return kernel.resolve().relative_to(Repository.open(kernel.resolve().parent).root)
    except UsageError:
        return kernel


def _on(entry: Entry, kernel: Path) -> tuple[dict[str, object], list[str]]:
    """What an entry would do to a kernel, and what the newest run on it saw launched."""
    from agent.analysis.common.subject import NotApplicable
    from agent.proposers.agenda import why_here

    seen = observed.by_newest_run(kernel)
    try:
        told = why_here(entry, _subject(entry, kernel, seen))
    except NotApplicable as reason:
        told = f"it does not apply: {reason}"
    lines = [f"On {kernel}: {told}"]
    if seen.launches:
        lines += [f"Launches, as run {seen.run_id} saw them:", *observed.lines(seen.launches)]
    elif seen.of_another_text:
        lines.append(f"Run {seen.of_another_text} saw what another version of this file launches.")
    launches = [asdict(launch) for launch in seen.launches]
    facts: dict[str, object] = {"on_kernel": told, "run": seen.run_id or None, "observed": launches}
    return facts, [*lines, *seen.tuning()]


@app.command()
def reference(backend: Backend = None) -> None:
    """Print all of them as one page of Markdown, with their order and what they gained."""
    output.use_json(False)
    from agent.skillbook.playbook_page import as_markdown

    output.result({}, as_markdown(_backends(backend)))


def _backends(chosen: str | None) -> tuple[str, ...]:
    """The one that was asked for, or all."""
    from agent.backends import BACKENDS
    from agent.errors import UsageError

    if chosen is not None and chosen not in BACKENDS:
        raise UsageError(f"there is no backend {chosen!r}: choose from {', '.join(BACKENDS)}")
    return tuple(BACKENDS) if chosen is None else (chosen,)
