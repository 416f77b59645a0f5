"""The tools: the verbs of the loop, and views of runs that change nothing.

Each is a command of tile-agent with typed parameters. What a docstring says, the assistant reads.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import MISSING
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field

from agent.mcp import kernel_tools
from agent.mcp.answers import Difference, FinalFigures, Offer, Results, Runs, Tried, TurnAnswer
from agent.mcp.asking import SEVERAL, Repository, Run, answered, viewed
from agent.mcp.command import Value
from agent.mcp.views import diff_of, results_of
from agent.options import ValueForm
from agent.settings import Setting, settings, signed

READS = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
CHANGES = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
REPEATABLE = CHANGES.model_copy(update={"idempotent_hint": True})


def register(server: MCPServer[Any]) -> None:
    """Add the tools to a server."""
    verbs: tuple[tuple[str, Callable[..., Any], ToolAnnotations], ...] = (
        ("begin", _begins(), REPEATABLE),
        ("next", next_step, CHANGES),
        ("try", try_candidate, CHANGES),
        ("finish", finish, REPEATABLE),
        ("stop", stop, REPEATABLE),
    )
    for name, verb, effect in verbs:
        server.add_tool(verb, name=name, annotations=effect)
    runs = (status, results, diff, report)
    for view in (*runs, *kernel_tools.TOOLS):
        server.add_tool(view, annotations=READS)


# --- the loop -----------------------------------------------------------------------------------


async def begin(
    context: Context[Any, Any], repository: str | None = None, **given: Any
) -> Annotated[CallToolResult, TurnAnswer]:
    """Begin a run on a kernel: make a branch, test and time the code as it is.

    The kernel and its tests must be committed. The user's checkout is left alone. Takes minutes.
    A run on this kernel that is not done is gone on with instead, and options that it did not
    begin with are refused; `finish` ends it, or takes it back before its baseline.
    """
    options = dict(_given(setting, given[setting.name]) for setting in settings(led=True))
    return await answered(context, repository, "begin", options=options | {"yes": True})


def _given(setting: Setting, value: Any) -> tuple[str, Value]:
    """An option as the command line takes it; a default is left to the user's configuration."""
    if setting.default is True:
        return f"no_{setting.name}", not value
    return setting.name, value


def _parameter(setting: Setting) -> Parameter:
    """An option as a parameter with a schema."""
    kind, default = setting.kind, None
    if setting.repeatable:
        kind = list[str] | None
    elif setting.default is MISSING:
        kind, default = (str if kind is Path else kind), Parameter.empty
    elif setting.option.form is ValueForm.WORDS:
        kind = str | None
    elif kind is bool:
        default = setting.default
    else:
        kind = kind | None
    return Parameter(
        setting.name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, Field(description=setting.help(SEVERAL), ge=setting.option.min)],
    )


def _begins() -> Callable[..., Any]:
    """`begin` with a parameter for each option."""
    by_keyword = Parameter.KEYWORD_ONLY
    kernel, *others = map(_parameter, settings(led=True))
    where = Parameter("repository", by_keyword, default=None, annotation=Repository)
    context = Parameter("context", by_keyword, annotation=Context[Any, Any])
    return signed(begin, [context, kernel, where, *others])


async def next_step(
    context: Context[Any, Any],
    repository: Repository = None,
    run: Run = None,
    decline: Annotated[
        str | None,
        Field(
            description="Why the offered optimization does not fit here, or the candidate cannot "
            "be mended; offers another one."
        ),
    ] = None,
    drop: Annotated[
        str | None,
        Field(description="Why you give the iteration up, where `try` never ends; a crash then."),
    ] = None,
    choose: Annotated[
        str | None,
        Field(
            description="Take this one of 'others' instead, 'own-idea' for one of yours, or what "
            "was tried, with another value."
        ),
    ] = None,
    full: Annotated[
        bool,
        Field(description="Say again all that was said before, where you do not know it any more."),
    ] = False,
) -> Annotated[CallToolResult, Offer]:
    """Ask for the ONE optimization to apply now, and for the draft to apply it to.

    Read 'brief', edit 'file' and nothing else, then call `try`. What earlier answers of the run
    said is left out, unless nothing happened since the last one, or 'full' asks for it.
    """
    options: dict[str, Value] = {"run": run, "decline": decline, "drop": drop, "full": full}
    options["choose"] = choose
    return await answered(context, repository, "next", options=options)


async def try_candidate(
    context: Context[Any, Any],
    message: Annotated[
        str | None, Field(description="What you changed and why it should be faster, in a line.")
    ] = None,
    repository: Repository = None,
    run: Run = None,
    source: Annotated[
        str | None,
        Field(
            description="The whole new text of the kernel's file, where you cannot edit the draft "
            "yourself."
        ),
    ] = None,
    variants: Annotated[
        list[str] | None,
        Field(
            description="Files with the same optimization by other values: they are ranked with "
            "the draft, and the one that looks fastest is judged."
        ),
    ] = None,
    variant_sources: Annotated[
        list[str] | None,
        Field(description="The same as whole texts, where you cannot write files."),
    ] = None,
) -> Annotated[CallToolResult, Tried]:
    """Judge the draft: test it, time it against the best so far, keep or revert it, record it.

    tile-agent decides; do not commit yourself, and leave the tests alone. Takes minutes. A draft
    that cannot be a candidate is refused with the reason, and counts for nothing: mend it and try
    again. A candidate that fails or is slower comes back with 'do' 'edit' and all that is known in
    'attempt': mend it and try again, three attempts in all, or give it up by `next` with 'decline'.
    After an interruption it goes on where it was.
    """
    options: dict[str, Value] = {"message": message, "run": run}
    with tempfile.TemporaryDirectory(prefix="tile-agent-draft-") as folder:
        if source is not None:
            options["draft"] = _written(Path(folder) / "draft.py", source)
        texts = [
            _written(Path(folder) / f"variant-{number}.py", text)
            for number, text in enumerate(variant_sources or (), start=1)
        ]
        options["variant"] = [*(variants or ()), *texts]
        return await answered(context, repository, "try", options=options)


def _written(file: Path, text: str) -> str:
    """A file with what a client says, which may be no text."""
    file.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    return str(file)


async def finish(
    context: Context[Any, Any], repository: Repository = None, run: Run = None
) -> Annotated[CallToolResult, FinalFigures]:
    """End a run: compare the original with the best commit once more, and sum up. Takes minutes."""
    return await answered(context, repository, "finish", options={"run": run})


async def stop(
    context: Context[Any, Any], repository: Repository = None, run: Run = None
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Interrupt a run that is at work, begun here or elsewhere; it can be gone on with."""
    return await answered(context, repository, "stop", names=[run] if run else [])


# --- views --------------------------------------------------------------------------------------


async def status(
    context: Context[Any, Any],
    repository: Repository = None,
    run: Annotated[
        str | None, Field(description="Id of the only run to tell of; all when left out.")
    ] = None,
    full: Annotated[
        bool, Field(description="All of every run: older ones have a short record otherwise.")
    ] = False,
) -> Annotated[CallToolResult, Runs]:
    """Say how the runs stand and what to do next. Call it first when you do not know."""
    names = [run] if run else []
    return await answered(context, repository, "status", options={"full": full}, names=names)


async def results(
    context: Context[Any, Any], repository: Repository = None, run: Run = None
) -> Annotated[CallToolResult, Results]:
    """Show the table of a run: each iteration with latency, correctness, verdict and reason."""
    return await viewed(results_of, context, repository, run)


async def diff(
    context: Context[Any, Any],
    repository: Repository = None,
    run: Run = None,
    iteration: Annotated[
        int | None,
        Field(ge=1, description="The change of this iteration, kept or not; all kept by default."),
    ] = None,
) -> Annotated[CallToolResult, Difference]:
    """Show what a run changed in the kernel: origin to best, or the change of one iteration."""
    return await viewed(partial(diff_of, iteration=iteration), context, repository, run)


async def report(
    context: Context[Any, Any], repository: Repository = None, run: Run = None
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Sum a run up for a review: gains with intervals, each change, its rule and evidence."""
    return await answered(context, repository, "report", names=[run] if run else [])
