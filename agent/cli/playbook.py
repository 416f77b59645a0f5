"""`playbook list` and `playbook show`: the optimizations, for a person to read."""

from __future__ import annotations

import typer

from agent.cli import output
from agent.cli.options import Json

app = typer.Typer(help="The optimizations that the loop can apply.", no_args_is_help=True)


@app.command("list")
def list_entries(
    backend: str | None = typer.Option(None, help="Only those of 'cutile' or 'triton'."),
    as_json: Json = False,
) -> None:
    """List the optimizations with their expected effect."""
    output.use_json(as_json)
    from agent.backends import BACKENDS
    from agent.errors import UsageError
    from agent.playbook import PLAYBOOK

    if backend is not None and backend not in BACKENDS:
        raise UsageError(f"there is no backend {backend!r}: choose from {', '.join(BACKENDS)}")
    entries = [entry for entry in PLAYBOOK if backend in (None, entry.backend)]
    output.result(
        {
            "optimizations": [
                {
                    "name": entry.name,
                    "backend": entry.backend,
                    "title": entry.title,
                    "family": entry.family,
                    "expected": entry.expected,
                }
                for entry in entries
            ]
        },
        "\n".join(f"{e.backend:<7} {e.name:<20} {e.expected}" for e in entries),
    )


@app.command()
def show(name: str, as_json: Json = False) -> None:
    """Show one optimization: when, what, the risk, the source, and an example."""
    output.use_json(as_json)
    import inspect

    from agent.playbook import get

    entry = get(name)
    prose = inspect.getdoc(inspect.getmodule(type(entry))) or ""
    output.result(
        {
            "name": entry.name,
            "backend": entry.backend,
            "title": entry.title,
            "family": entry.family,
            "expected": entry.expected,
            "hypothesis": entry.hypothesis,
            "prose": prose,
            "example": dict(entry.example),
            "before": entry.before,
            "after": entry.after,
        },
        f"{entry.name} ({entry.backend}, {entry.family})\n\n{prose}\n\n"
        f"Expected: {entry.expected}\n\n"
        f"Before:\n{entry.before}\nAfter ({entry.describe(entry.example)}):\n{entry.after}",
    )
