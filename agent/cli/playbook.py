"""`playbook list`, `show` and `reference`: the optimizations, for a person to read."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import completion, observed, output
from agent.cli.shared_options import Json

if TYPE_CHECKING:
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
    as_json: Json = False,
) -> None:
    """Show one optimization: when, what, the risk, the source, and an example."""
    output.use_json(as_json)
    from agent.playbook import find
    from agent.playbook.base import Optimization

    entry = find(name)
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


def _on(entry: Entry, kernel: Path) -> tuple[dict[str, object], list[str]]:
    """What an entry would do to a kernel, and what the newest run on it saw launched."""
    from agent.analysis.common.subject import Hardware, NotApplicable, Subject
    from agent.analysis.triton.wrapped import decorated
    from agent.environment import probe
    from agent.launches import by_cost
    from agent.preflight import read_file
    from agent.proposers.agenda import why_here
    from agent.syntax import Source
    from agent.target import parse

    source, backend = parse(read_file(kernel), str(kernel))
    seen = observed.by_newest_run(kernel)
    gpu = probe().gpu
    hardware = Hardware(sm=gpu.sm if gpu else 0)
    source = decorated(Source(source.text, source.path, by_cost(seen.launches, {})))
    subject = Subject(source, backend.classify(source).kernel_class, hardware, seen.launches)
    try:
        if entry.backend != backend.name:
            raise NotApplicable(f"it is for {entry.backend}, and this is {backend.name}")
        told = why_here(entry, subject)
    except NotApplicable as reason:
        told = f"it does not apply: {reason}"
    lines = [f"On {kernel}: {told}"]
    if seen.launches:
        lines += [f"Launches, as run {seen.run_id} saw them:", *observed.lines(seen.launches)]
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
