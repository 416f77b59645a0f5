"""The tools: the four verbs of the loop, and views that change nothing.

Each is a command of tile-agent with typed parameters. What a docstring says, the assistant reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from agent.errors import ExitCode
from agent.mcp.answers import Difference, FinalFigures, Offer, Results, Runs, Tried, TurnAnswer
from agent.mcp.command import Report, Value, call, command_line
from agent.mcp.views import View, diff_of, results_of
from agent.options import KERNEL, TESTS, ValueForm
from agent.settings import Setting, settings, signed

SEVERAL = "one or several"

Repository = Annotated[
    str | None,
    Field(
        description="A directory in the git checkout of the kernel; the server's working directory "
        "when left out. Other paths start there."
    ),
]
Run = Annotated[str | None, Field(description="Id of the run; the latest when left out.")]
Kernel = Annotated[str, Field(description=KERNEL.help)]
Tests = Annotated[list[str] | None, Field(description=TESTS.told(SEVERAL))]

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
    )
    for name, verb, effect in verbs:
        server.add_tool(verb, name=name, annotations=effect)
    runs = (status, results, diff)
    kernels = (doctor, classify, diagnose, lint, playbook_list, playbook_show)
    for view in (*runs, *kernels):
        server.add_tool(view, annotations=READS)


# --- the loop -----------------------------------------------------------------------------------


async def begin(
    context: Context[Any, Any], repository: str | None = None, **given: Any
) -> Annotated[CallToolResult, TurnAnswer]:
    """Begin a run on a kernel: make a branch, test and time the code as it is.

    The kernel and its tests must be committed. The user's checkout is left alone. Takes minutes.
    A run on this kernel that waits for you already is gone on with instead.
    """
    options = dict(_given(setting, given[setting.name]) for setting in settings(led=True))
    return await _answered(context, repository, "begin", options=options | {"yes": True})


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
) -> Annotated[CallToolResult, Offer]:
    """Ask for the ONE optimization to apply now, and for the draft to apply it to.

    Read 'brief' and 'prose', edit 'file' and nothing else, then call `try`. Asked twice, it says
    the same.
    """
    options: dict[str, Value] = {"run": run, "decline": decline, "drop": drop}
    options["choose"] = choose
    return await _answered(context, repository, "next", options=options)


async def try_candidate(
    context: Context[Any, Any],
    hypothesis: Annotated[
        str | None, Field(description="What you changed and why it should be faster, in a line.")
    ] = None,
    repository: Repository = None,
    run: Run = None,
) -> Annotated[CallToolResult, Tried]:
    """Judge the draft: test it, time it against the best so far, keep or revert it, record it.

    tile-agent decides; do not commit yourself, and leave the tests alone. Takes minutes. A draft
    that cannot be a candidate is refused with the reason, and counts for nothing: mend it and try
    again. A candidate that fails or is slower comes back with 'do' 'edit' and all that is known in
    'attempt': mend it and try again, three attempts in all, or give it up by `next` with 'decline'.
    After an interruption it goes on where it was.
    """
    options: dict[str, Value] = {"message": hypothesis, "run": run}
    return await _answered(context, repository, "try", options=options)


async def finish(
    context: Context[Any, Any], repository: Repository = None, run: Run = None
) -> Annotated[CallToolResult, FinalFigures]:
    """End a run: compare the original with the best commit once more, and sum up. Takes minutes."""
    return await _answered(context, repository, "finish", options={"run": run})


# --- views --------------------------------------------------------------------------------------


async def status(
    context: Context[Any, Any], repository: Repository = None, run: Run = None
) -> Annotated[CallToolResult, Runs]:
    """Say how the runs stand and what to do next. Call it first when you do not know."""
    return await _answered(context, repository, "status", names=[run] if run else [])


async def results(
    context: Context[Any, Any], repository: Repository = None, run: Run = None
) -> Annotated[CallToolResult, Results]:
    """Show the table of a run: each iteration with latency, correctness, verdict and reason."""
    return await _viewed(results_of, context, repository, run)


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
    return await _viewed(partial(diff_of, iteration=iteration), context, repository, run)


async def doctor(context: Context[Any, Any]) -> Annotated[CallToolResult, dict[str, Any]]:
    """Say what this machine can do: GPU, driver, toolchains, and which kernels it can time."""
    return await _answered(context, None, "doctor")


async def classify(
    context: Context[Any, Any], kernel: Kernel, repository: Repository = None
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Estimate what bounds a kernel, and order the optimizations by what helps there."""
    return await _answered(context, repository, "classify", options={"kernel": kernel})


async def diagnose(
    context: Context[Any, Any],
    kernel: Kernel,
    repository: Repository = None,
    tests: Tests = None,
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Say what holds a kernel back, with the evidence; times its perf tests where a GPU is."""
    options: dict[str, Value] = {"kernel": kernel, "tests": tests}
    return await _answered(context, repository, "diagnose", options=options)


async def lint(
    context: Context[Any, Any], kernel: Kernel, repository: Repository = None
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Check a cuTile kernel by its source: what will not compile or launch, and what is slow."""
    return await _answered(context, repository, "lint", options={"kernel": kernel})


async def playbook_list(
    context: Context[Any, Any],
    backend: Annotated[
        Literal["cutile", "triton"] | None, Field(description="Only those of this language.")
    ] = None,
) -> Annotated[CallToolResult, dict[str, Any]]:
    """List the optimizations that tile-agent knows, with their expected and measured effects."""
    return await _answered(context, None, "playbook", "list", options={"backend": backend})


async def playbook_show(
    context: Context[Any, Any],
    name: Annotated[str, Field(description="Name of the optimization, as `playbook_list` has it.")],
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Show one optimization: when it pays, what to do, the risk, the source, before and after."""
    return await _answered(context, None, "playbook", "show", names=[name])


# --- helpers ------------------------------------------------------------------------------------


async def _answered(
    context: Context[Any, Any],
    repository: str | None,
    *words: str,
    options: Mapping[str, Value] | None = None,
    names: Sequence[str] = (),
) -> CallToolResult:
    """The answer of a command, or its error with the mend."""
    return _result(await _ask(context, repository, *words, options=options, names=names))


async def _viewed(
    view: View, context: Context[Any, Any], repository: str | None, run: str | None
) -> CallToolResult:
    """What a view makes of a run, as `tile-agent status` knows it."""
    known = await _ask(context, repository, "status", names=[run] if run else [])
    return _result(known if "error" in known else await view(known, Path(repository or ".")))


async def _ask(
    context: Context[Any, Any],
    repository: str | None,
    *words: str,
    options: Mapping[str, Value] | None = None,
    names: Sequence[str] = (),
) -> dict[str, Any]:
    folder = Path(repository or ".")
    if not folder.is_dir():
        mend = "give one in the kernel's git checkout"
        return {"error": f"{folder} is no directory: {mend}", "exit_code": int(ExitCode.USAGE)}
    arguments = command_line(*words, options=options or {}, names=names)
    return await call(arguments, folder, _reporter(context))


def _result(value: dict[str, Any]) -> CallToolResult:
    error = value.get("error")
    run = f" (run {value['run']})" if error and value.get("run") else ""
    text = f"{error}{run}" if error else json.dumps(value, indent=2)
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=value,
        is_error=error is not None,
    )


def _reporter(context: Context[Any, Any]) -> Report:
    """Hands lines of progress to the client, which numbers them."""
    count = 0

    async def report(line: str) -> None:
        nonlocal count
        count += 1
        await context.report_progress(count, message=line)

    return report
