"""`mcp`: tile-agent for assistants that speak the Model Context Protocol."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from agent.cli import output


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(mcp)


def mcp(
    repository: Annotated[
        Path,
        typer.Option(help="Directory in the git checkout of the kernels; this one by default."),
    ] = Path(),
) -> None:
    """Serve the loop and its views over MCP, on stdin and stdout, for an assistant to start."""
    from agent.errors import UsageError

    try:
        from agent.mcp.server import make
    except ImportError as problem:
        if not (problem.name or "").startswith(("mcp", "pydantic", "anyio")):
            raise
        raise UsageError(
            f"the MCP server needs the package mcp, 2.3 or later ({problem}): "
            "pip install 'tile-agent[mcp]'"
        ) from None
    if not repository.is_dir():
        raise UsageError(f"{repository} is no directory: give one in the kernels' git checkout")
    os.chdir(repository)
    if output.interactive():
        output.progress("serving MCP on stdin and stdout; an assistant is to start this")
    # The server has nothing to close: it ends at once, and a command that it runs then ends itself.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    make().run("stdio")
