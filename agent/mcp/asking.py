"""What the tools share: their common parameters, and a command asked in the caller's folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, TextContent
from pydantic import Field

from agent.errors import ExitCode
from agent.mcp.command import Report, Value, call, command_line
from agent.mcp.views import View
from agent.options import KERNEL, TESTS

SEVERAL = "one or several"
LOGGER = "tile-agent"
"""Of the lines in the client's log."""

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


async def answered(
    context: Context[Any, Any],
    repository: str | None,
    *words: str,
    options: Mapping[str, Value] | None = None,
    names: Sequence[str] = (),
) -> CallToolResult:
    """The answer of a command, or its error with the mend."""
    return result(await ask(context, repository, *words, options=options, names=names))


async def viewed(
    view: View, context: Context[Any, Any], repository: str | None, run: str | None
) -> CallToolResult:
    """What a view makes of a run, as `tile-agent status` knows it."""
    known = await ask(context, repository, "status", names=[run] if run else [])
    return result(known if "error" in known else await view(known, Path(repository or ".")))


async def ask(
    context: Context[Any, Any],
    repository: str | None,
    *words: str,
    options: Mapping[str, Value] | None = None,
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """What a command answers, or what is wrong with the folder."""
    folder = Path(repository or ".")
    if not folder.is_dir():
        mend = "give one in the kernel's git checkout"
        return {"error": f"{folder} is no directory: {mend}", "exit_code": int(ExitCode.USAGE)}
    arguments = command_line(*words, options=options or {}, names=names)
    report, pulse = _reporters(context)
    return await call(arguments, folder, report, pulse=pulse, client=_named(context))


def result(value: dict[str, Any]) -> CallToolResult:
    """The same as text and as values, for clients that take either."""
    error = value.get("error")
    run = f" (run {value['run']})" if error and value.get("run") else ""
    text = f"{error}{run}" if error else json.dumps(value, indent=2)
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=value,
        is_error=error is not None,
    )


def _reporters(context: Context[Any, Any]) -> tuple[Report, Report]:
    """What hands lines to the client, as progress and to its log, and what only says "alive"."""
    count = 0

    async def pulse(line: str) -> None:
        nonlocal count
        count += 1
        await context.report_progress(count, message=line)

    async def report(line: str) -> None:
        await pulse(line)
        await context.log("info", line, logger_name=LOGGER)

    return report, pulse


def _named(context: Context[Any, Any]) -> str:
    """The client for whom a command is run, as others are told of it."""
    known = context.session.client_params
    name = known.client_info.name if known else "a client"
    return f"{name} over MCP, server {os.getpid()}"
