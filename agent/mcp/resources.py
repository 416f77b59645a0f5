"""The resources: runs, their tables and the playbook, for a person to attach to a conversation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from agent.errors import ExitCode
from agent.mcp.command import call, command_line
from agent.mcp.views import results_of


def register(server: MCPServer[Any]) -> None:
    """Add the resources to a server."""
    for uri, read, mime_type in (
        ("tile-agent://runs", runs, "application/json"),
        ("tile-agent://runs/{run}", one_run, "application/json"),
        ("tile-agent://runs/{run}/perf_results", perf_results, "text/markdown"),
        ("tile-agent://playbook/{name}", optimization, "text/markdown"),
    ):
        server.resource(uri, mime_type=mime_type)(read)


async def runs() -> str:
    """All runs of the repository in the server's working directory, the latest last."""
    return json.dumps(await _answer("status"), indent=2)


async def one_run(run: str) -> str:
    """A run: how it stands, every row with its reason, and what to do next."""
    return json.dumps((await _answer("status", names=[run]))["runs"][0], indent=2)


async def perf_results(run: str) -> str:
    """The table of a run: iteration, optimization, latency in ms, correctness, status."""
    found = await results_of(await _answer("status", names=[run]), Path.cwd())
    if "error" in found:
        raise ResourceError(found["error"])
    return str(found["table"])


async def optimization(name: str) -> str:
    """An optimization of the playbook: when, what, the risk, the source, before and after."""
    entry = await _answer("playbook", "show", names=[name])
    parts = [f"# {entry['title']}", entry["prose"], f"Expected: {entry['expected']}"]
    if entry["measured"]:
        parts.append(f"Measured: {entry['measured']}")
    for heading in ("before", "after"):
        if heading in entry:
            parts += [f"## {heading.title()}", f"```python\n{entry[heading].rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"


async def _answer(*words: str, names: Sequence[str] = ()) -> dict[str, Any]:
    answer = await call(command_line(*words, options={}, names=names), Path.cwd(), _unheard)
    if "error" in answer:
        usage = answer["exit_code"] == ExitCode.USAGE
        raise (ResourceNotFoundError if usage else ResourceError)(answer["error"])
    return answer


async def _unheard(_line: str) -> None:
    """Reading a resource has no progress."""
