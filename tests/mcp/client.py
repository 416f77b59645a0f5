"""A client of the official SDK, connected to the server over stdio."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextResourceContents

from tests.support.warm_python import warm_interpreter

TIMEOUT_S = 400.0
T = TypeVar("T")


def connected(
    folder: Path, use: Callable[[Client], Awaitable[T]], *, legacy: bool = False, python: str = ""
) -> T:
    """Start the server in a folder, use it, and end it.

    With `legacy` the client speaks the protocol of before 2026-07-28, as many assistants do. What
    the server starts are children of this process where `python` is the tests' own.
    """

    async def session() -> T:
        with anyio.fail_after(TIMEOUT_S):
            async with client_in(folder, legacy=legacy, python=python) as client:
                return await use(client)

    return anyio.run(session)


def client_in(folder: Path, *, legacy: bool = False, python: str = "", **more: Any) -> Client:
    """One that starts a server in a folder when it is entered; `more` is the SDK's."""
    server = StdioServerParameters(
        command=python or warm_interpreter(),
        args=["-m", "agent", "mcp", "--repository", str(folder)],
        env=dict(os.environ),
    )
    return Client(server, mode="legacy" if legacy else "auto", **more)


def text_of(result: CallToolResult) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


def answer_of(result: CallToolResult) -> dict[str, Any]:
    """The structured content of a call that went well."""
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    return result.structured_content


async def read(client: Client, uri: str) -> str:
    (contents,) = (await client.read_resource(uri)).contents
    assert isinstance(contents, TextResourceContents)
    return contents.text
