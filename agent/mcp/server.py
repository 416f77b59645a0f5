"""The server: what a client sees when it connects. It keeps no state; the runs are on disk."""

from __future__ import annotations

import difflib
import warnings
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import CallToolResult, InputRequiredResult, Tool

from agent import __version__
from agent.errors import ExitCode
from agent.mcp import resources, tools
from agent.mcp.asking import result

INSTRUCTIONS = """\
tile-agent makes a cuTile or Triton kernel faster: one optimization at a time, each one tested, \
timed, and kept or reverted.

1. `begin` with the kernel's file: a branch, the baseline, the noise floor.
2. `next` says which ONE optimization to apply, and to which draft.
3. Edit that draft, and no other file.
4. `try` tests and times it. tile-agent decides, commits or reverts, and records.
5. Repeat 2 to 4 until an answer's "do" says "finish", then `finish`.

Each answer says in "do" what comes next. If you lost track, or a call was cut off, `status` tells.
"""


class StrictServer(MCPServer[Any]):
    """One whose tools refuse arguments that they do not have: the SDK drops them unseen, and with a
    limit that is misspelt a run would have none."""

    async def list_tools(self) -> list[Tool]:
        """The tools; their schemas say that they take nothing else."""
        closed = {"additionalProperties": False}
        return [
            tool.model_copy(update={"input_schema": tool.input_schema | closed})
            for tool in await super().list_tools()
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """The answer of a tool; an error where it is given what it does not take."""
        schemas = {tool.name: tool.input_schema for tool in await self.list_tools()}
        taken = schemas.get(name, {}).get("properties", {})
        if name in schemas and (unknown := [each for each in arguments if each not in taken]):
            return result({"error": _not_taken(name, unknown, taken), "exit_code": ExitCode.USAGE})
        return await super().call_tool(name, arguments, context)


def _not_taken(name: str, unknown: list[str], taken: dict[str, Any]) -> str:
    near = [word for each in unknown for word in difflib.get_close_matches(each, taken, n=1)]
    mend = f"did you mean {', '.join(near)}?" if near else f"it takes {', '.join(taken)}"
    return f"`{name}` has no argument {', '.join(unknown)}, and was not called: {mend}"


def make() -> MCPServer[Any]:
    """The server with its tools and resources."""
    # Later protocols send logs on request alone and call them deprecated; many clients show them.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    server = StrictServer(
        "tile-agent", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING"
    )
    tools.register(server)
    resources.register(server)
    return server
