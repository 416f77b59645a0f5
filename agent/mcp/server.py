"""The server: what a client sees when it connects. It keeps no state; the runs are on disk."""

from __future__ import annotations

import warnings
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPDeprecationWarning

from agent import __version__
from agent.mcp import resources, tools

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


def make() -> MCPServer[Any]:
    """The server with its tools and resources."""
    # Later protocols send logs on request alone and call them deprecated; many clients show them.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    server: MCPServer[Any] = MCPServer(
        "tile-agent", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING"
    )
    tools.register(server)
    resources.register(server)
    return server
