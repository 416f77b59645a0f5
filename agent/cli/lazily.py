"""The commands by name, each loaded when called: `--help` lists them without their modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from agent.cli.help_text import with_plain_help, write_help


class CommandPlace(NamedTuple):
    """Where a command is, and the first paragraph of its help."""

    module: str
    """Below `agent.cli`; its `register` adds the command."""
    help: str


PLACES: Mapping[str, CommandPlace] = {
    "run": CommandPlace(
        "runs",
        "Make a kernel faster: branch, baseline, one optimization an iteration, keep or revert.",
    ),
    "plan": CommandPlace(
        "plan",
        "Say what a run would do: what applies, in which order, and its cost; nothing is run.",
    ),
    "resume": CommandPlace("runs", "Go on with a run that was interrupted."),
    "status": CommandPlace(
        "status", "Say how the runs of this repository stand, and what to do next."
    ),
    "stop": CommandPlace(
        "status", "Ask a run that is alive to end as Ctrl-C would end it: cleanly, to be resumed."
    ),
    "report": CommandPlace(
        "report",
        "Say what a run gained, by which steps, what it set aside, and how to reproduce it.",
    ),
    "diff": CommandPlace(
        "review",
        "Show what a run changed: origin against best, or one iteration against the best before "
        "it.",
    ),
    "history": CommandPlace(
        "review",
        "Say what all runs on a kernel tried: with which value, gain and verdict, when, on which "
        "GPU.",
    ),
    "finalize": CommandPlace(
        "finalize",
        "Make a clean branch of what a run kept: a commit a step, tested, with a text to propose "
        "it.",
    ),
    "begin": CommandPlace(
        "assistant",
        "Begin a run that you lead: branch and baseline; go on with `tile-agent next`.",
    ),
    "next": CommandPlace(
        "assistant", "Say which ONE optimization to carry out, and in which file."
    ),
    "try": CommandPlace(
        "assistant",
        "Have the draft tested, measured, and kept or reverted; what fails may be mended twice.",
    ),
    "finish": CommandPlace(
        "assistant", "End the run: origin against best, measured afresh, and the summary."
    ),
    "doctor": CommandPlace(
        "inspect", "Say what this machine can do: GPU, driver, toolchains, backends."
    ),
    "classify": CommandPlace(
        "inspect",
        "Estimate what bounds a kernel, and list the optimizations in the order that follows.",
    ),
    "verify": CommandPlace(
        "inspect", "Run the correctness tests on the committed kernel, as the loop does."
    ),
    "bench": CommandPlace(
        "inspect", "Run the perf tests on the committed kernel once, as the loop does."
    ),
    "calibrate": CommandPlace(
        "inspect",
        "Compare the committed kernel with itself: which effects can be told from noise here.",
    ),
    "capture": CommandPlace(
        "capture",
        "Run a command, and write tests for the calls of the kernel's file that it makes.",
    ),
    "profile": CommandPlace(
        "profile",
        "Run a command, and rank the kernels of its files by their share of the time on the GPU.",
    ),
    "lint": CommandPlace(
        "lint",
        "Check a cuTile kernel by its source: what will not compile or launch, and what is slow.",
    ),
    "explain": CommandPlace(
        "explain", "Compile what the tests launch and say what came out: no GPU is needed."
    ),
    "diagnose": CommandPlace(
        "diagnose",
        "Say what holds a kernel back: memory, compute, latency, occupancy, locality, scheduling.",
    ),
    "autotune": CommandPlace(
        "autotune",
        "Let a cuTile kernel search its best config on its first call, and remember it.",
    ),
    "port": CommandPlace(
        "port",
        "Write the cuTile version of a Triton kernel's file, and compare both without a GPU.",
    ),
    "mcp": CommandPlace(
        "mcp",
        "Serve the loop and its views over MCP, on stdin and stdout, for an assistant to start.",
    ),
    "playbook": CommandPlace("playbook", "The optimizations that the loop can apply."),
    "memory": CommandPlace(
        "memory",
        "What runs with --remember found, over all repositories: facts of kernel, GPU and gain.",
    ),
    "tileir": CommandPlace(
        "tileir",
        "Prepare, verify and time a Triton kernel for Triton's Tile IR backend. "
        "What this machine cannot do is said, step by step.",
    ),
    "fleet": CommandPlace("fleet", "Make many kernels faster, on many GPUs and machines, by Ray."),
    "skill": CommandPlace("skill", "Skills that tell coding assistants how to drive tile-agent."),
}


class Commands(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        """As typer makes a group, which knows of no command."""
        super().__init__(**attributes)
        self.commands = _Loaded()  # type: ignore[assignment]  # nobody writes into it
        self._listing = False

    def get_params(self, ctx: Any) -> list[Any]:
        """The options. A flag has a bool for its default: of None, typer makes one with pydantic.

        Loading that takes longer than all else that a help needs.
        """
        found: list[Any] = super().get_params(ctx)
        for param in found:
            if getattr(param, "is_flag", False) and param.default is None:
                param.default = False
        return found

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's
        """The names, in the order in which the help has them."""
        return list(PLACES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command; while the help lists them all, no more of it than its help."""
        if self._listing:
            return TyperCommand(cmd_name, help=PLACES[cmd_name].help)
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        self._listing = True
        try:
            write_help(self, ctx, formatter)
        finally:
            self._listing = False


class _Loaded(Mapping[str, Any]):
    """Name -> command; whoever asks for a command has it loaded."""

    def __getitem__(self, name: str) -> Any:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


@cache
def _load(name: str) -> Any:
    holder = typer.Typer()
    import_module(f"agent.cli.{PLACES[name].module}").register(holder)
    return with_plain_help(get_group(holder).commands[name])
