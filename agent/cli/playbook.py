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
    from agent.playbook import ADVICE, PLAYBOOK
    from agent.playbook.base import Optimization

    if backend is not None and backend not in BACKENDS:
        raise UsageError(f"there is no backend {backend!r}: choose from {', '.join(BACKENDS)}")
    entries = [entry for entry in (*PLAYBOOK, *ADVICE) if backend in (None, entry.backend)]
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
    import inspect

    from agent.playbook import find
    from agent.playbook.base import Optimization

    entry = find(name)
    prose = inspect.getdoc(inspect.getmodule(type(entry))) or ""
    facts: dict[str, object] = {
        "name": entry.name,
        "backend": entry.backend,
        "title": entry.title,
        "family": entry.family,
        "expected": entry.expected,
        "hypothesis": entry.hypothesis,
        "changes_rounding": entry.changes_rounding,
        "prose": prose,
        "automatic": isinstance(entry, Optimization),
    }
    text = f"{entry.name} ({entry.backend}, {entry.family})\n\n{prose}\n\n"
    text += f"Expected: {entry.expected}\n"
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
