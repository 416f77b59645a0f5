"""Tools that look at a kernel or at this machine; none of them changes anything."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp_types import CallToolResult
from pydantic import Field

from agent.mcp.asking import Kernel, Repository, Tests, answered
from agent.mcp.command import Value


async def doctor(context: Context[Any, Any]) -> Annotated[CallToolResult, dict[str, Any]]:
    """Say what this machine can do: GPU, driver, toolchains, and which kernels it can time."""
    return await answered(context, None, "doctor")


async def classify(
    context: Context[Any, Any], kernel: Kernel, repository: Repository = None
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Estimate what bounds a kernel, and order the optimizations by what helps there."""
    return await _of_kernel(context, "classify", kernel, repository)


async def diagnose(
    context: Context[Any, Any],
    kernel: Kernel,
    repository: Repository = None,
    tests: Tests = None,
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Say what holds a kernel back, with the evidence; times its perf tests where a GPU is."""
    return await _of_kernel(context, "diagnose", kernel, repository, tests)


async def plan(
    context: Context[Any, Any],
    kernel: Kernel,
    repository: Repository = None,
    tests: Tests = None,
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Say what a run would do before it begins: what applies, in which order, and what it costs."""
    return await _of_kernel(context, "plan", kernel, repository, tests)


async def verify(
    context: Context[Any, Any],
    kernel: Kernel,
    repository: Repository = None,
    tests: Tests = None,
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Run the correctness tests on the committed kernel, as a run does."""
    return await _of_kernel(context, "verify", kernel, repository, tests)


async def bench(
    context: Context[Any, Any],
    kernel: Kernel,
    repository: Repository = None,
    tests: Tests = None,
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Time the committed kernel once by its perf tests; a comparison needs a run."""
    return await _of_kernel(context, "bench", kernel, repository, tests)


async def lint(
    context: Context[Any, Any], kernel: Kernel, repository: Repository = None
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Check a cuTile kernel by its source: what will not compile or launch, and what is slow."""
    return await _of_kernel(context, "lint", kernel, repository)


async def playbook_list(
    context: Context[Any, Any],
    backend: Annotated[
        Literal["cutile", "triton"] | None, Field(description="Only those of this language.")
    ] = None,
) -> Annotated[CallToolResult, dict[str, Any]]:
    """List the optimizations that tile-agent knows, with their expected and measured effects."""
    return await answered(context, None, "playbook", "list", options={"backend": backend})


async def playbook_show(
    context: Context[Any, Any],
    name: Annotated[str, Field(description="Name of the optimization, as `playbook_list` has it.")],
) -> Annotated[CallToolResult, dict[str, Any]]:
    """Show one optimization: when it pays, what to do, the risk, the source, before and after."""
    return await answered(context, None, "playbook", "show", names=[name])


TOOLS = (doctor, classify, diagnose, plan, verify, bench, lint, playbook_list, playbook_show)


async def _of_kernel(
    context: Context[Any, Any],
    command: str,
    kernel: str,
    repository: str | None,
    tests: list[str] | None = None,
) -> CallToolResult:
    """What a command says of a kernel."""
    options: dict[str, Value] = {"kernel": kernel, "tests": tests}
    return await answered(context, repository, command, options=options)
