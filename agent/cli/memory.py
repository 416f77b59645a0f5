"""`memory show`, `export` and `forget`: what the user-wide store holds of earlier judgements."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import completion, output
from agent.cli.shared_options import Json, Yes
from agent.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from agent.store.experience import Experience

app = typer.Typer(
    help="What runs with --remember found, over all repositories: facts of kernel, GPU and gain.",
    no_args_is_help=True,
)
Entry = Annotated[
    str | None,
    typer.Option("--only", help="Only this optimization.", autocompletion=completion.optimizations),
]
Gpu = Annotated[
    str | None,
    typer.Option(help="Only on this model, such as 'NVIDIA H200'; '' for an interpreter."),
]
LATEST = 30
"""Judgements that a person is shown; JSON has all."""


def register(parent: typer.Typer) -> None:
    """Add the commands, as a group."""
    parent.add_typer(app, name="memory")


@app.command()
def show(
    kernel: Annotated[
        Path | None,
        typer.Option(
            autocompletion=completion.kernels,
            help="What is known of kernels like this one on the GPU of this machine, and the "
            "order that this gives.",
        ),
    ] = None,
    only: Entry = None,
    gpu: Gpu = None,
    as_json: Json = False,
) -> None:
    """Say what is remembered: which optimizations, on which kernels and GPUs, and what they gained.

    The latest come last.
    """
    output.use_json(as_json)
    from agent.store.experience import table
    from agent.store.recall import database

    path = str(database().store_path())
    if kernel is not None:
        if only is not None:
            raise UsageError("--only is for all kernels: leave it out, or --kernel")
        found = _of(kernel, gpu)
        heading = f"Kernels like {kernel} ({found.about}), by {path}:"
        lines = found.lines or ("nothing is remembered of such kernels",)
        output.result(
            {"store": path, "about": found.about, "known": list(found.lines)},
            "\n".join([heading, "", *lines]),
        )
        return
    judged = database().stored(entry=only or "", gpu=gpu)
    head, *rows = table(judged[-LATEST:])
    kept = sum(each.status == "keep" for each in judged)
    lines = (f"{path}: judged {len(judged)}, kept {kept}",)
    if judged:
        rule = [":---"] * len(head)
        lines += ("", *(f"| {' | '.join(row)} |" for row in (head, rule, *rows)))
    if len(judged) > LATEST:
        lines += ("", f"and {len(judged) - LATEST} earlier ones: --json has all")
    told = [asdict(each) for each in judged]
    output.result({"store": path, "judgements": told}, "\n".join(lines))


@app.command()
def export(
    out: Annotated[
        Path | None, typer.Option("--output", help="A file in place of standard output.")
    ] = None,
    only: Entry = None,
    gpu: Gpu = None,
) -> None:
    """Write all that is remembered, a JSON object a line.

    The text of a change is among it where runs had --remember-source.
    """
    output.use_json(False)
    from agent.store.recall import database

    judged = database().stored(entry=only or "", gpu=gpu)
    text = "\n".join(json.dumps(asdict(each), sort_keys=True) for each in judged)
    if out is None:
        output.result({}, text)
        return
    output.write(out, output.without_secrets(text))
    output.progress(f"{out}: {len(judged)} judgements")


@app.command()
def forget(
    everything: Annotated[
        bool, typer.Option("--all", help="Delete the store's file, whatever is in it.")
    ] = False,
    only: Entry = None,
    gpu: Gpu = None,
    before: Annotated[
        str | None, typer.Option(help="Only of runs that began before this day, as 2026-11-25.")
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete what is remembered, or a part of it; no byte of that stays in the file.

    The journals of your repositories stay as they are.
    """
    output.use_json(as_json)
    from agent.store.recall import database

    store = database()
    chosen = (only, gpu, before) != (None, None, None)
    if everything == chosen:
        raise UsageError("say what to forget: --all, or some of --only, --gpu and --before")
    if only == "":
        raise UsageError("--only names no optimization: give one, or --all")
    before_s = None if before is None else _day(before)
    path = str(store.store_path())
    what = "the whole store" if everything else "this part of the store"
    if not yes and output.interactive() and not typer.confirm(f"Delete {what}, {path}?", err=True):
        raise Interrupted("nothing was deleted")
    if everything:
        existed = store.remove()
        told = f"{path}: deleted" if existed else f"{path}: there was none"
        output.result({"store": path, "deleted": existed}, told)
        return
    count = store.forget(entry=only or "", gpu=gpu, before_s=before_s)
    output.result({"store": path, "forgotten": count}, f"{path}: {count} judgements deleted")


def _of(kernel: Path, gpu: str | None) -> Experience:
    """What is known of kernels like one, by the launches that its newest run saw."""
    from agent.cli import observed
    from agent.environment import probe
    from agent.preflight import read_file
    from agent.store.judgements import Seen
    from agent.store.recall import experience
    from agent.syntax import Source
    from agent.target import parse

    source, backend = parse(read_file(kernel), str(kernel))
    seen = Seen(observed.by_newest_run(kernel).launches)
    structure = backend.structure(Source(source.text, source.path, seen.timed))
    if gpu is None:
        here = probe().gpu
        gpu = here.name if here else ""
    return experience(backend.name, structure, gpu, seen.given)


def _day(text: str) -> int:
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise UsageError(f"--before {text}: write a day, as 2026-11-25") from None
