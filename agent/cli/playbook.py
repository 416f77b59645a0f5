"""`playbook list`, `show` and `reference`: the optimizations, for a person to read."""

from __future__ import annotations

from typing import Annotated

import typer

from agent.cli import output
from agent.cli.shared_options import Json

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
def show(name: str, as_json: Json = False) -> None:
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
    output.result(facts, text)


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
