"""The application: its commands, and what becomes of an error."""

from __future__ import annotations

import errno
import gc
import os
import shlex
import signal
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import typer

from agent import __version__
from agent.cli import config, output
from agent.cli.lazily import Commands
from agent.errors import BaselineOutrun, ExitCode, Interrupted, TileAgentError, UsageError
from agent.interruption import interrupt

# Newer typer carries click inside itself and older typer depends on it: ask typer for the class
# of "the command line is wrong", the grandparent of BadParameter, instead of importing click.
_BadCommandLine: type[Exception] = typer.BadParameter.__mro__[2]
_NO_ARGUMENTS = "NoArgsIsHelpError"
"""The one of them that holds the help; typer has no public name for it."""
ALLOCATED_BEFORE_COLLECTION = 100_000
"""Python's 700 walk a syntax tree again and again while it is built: a fifth of the time."""
AGAIN_S = 0.02
"""A destructor is over by then."""

PROGRAM = "tile-agent"

app = typer.Typer(
    name=PROGRAM,
    cls=Commands,
    help="Makes a cuTile or Triton kernel faster: one optimization at a time, each one tested, "
    "timed, and kept or reverted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if context.invoked_subcommand in config.CONFIGURABLE:
        context.default_map = config.defaults(Path.cwd())
    if version:
        print(__version__)
        raise typer.Exit


def main() -> NoReturn:
    """Run the command line; the process ends here."""
    gc.set_threshold(ALLOCATED_BEFORE_COLLECTION)
    sys.excepthook = output.print_traceback
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    sys.unraisablehook = _unraisable
    code = _run()
    if "triton" not in sys.modules:  # whose bindings report as leaked what is not collected
        gc.freeze()  # Python ends by collecting what is left: a quarter of a second for a run
    sys.exit(code)


def _run() -> int:
    output.use_json("--json" in sys.argv)  # the command line itself may be what is wrong
    try:
        return int(app(prog_name=PROGRAM, standalone_mode=False) or 0)
    except _BadCommandLine as problem:
        if type(problem).__name__ == _NO_ARGUMENTS:
            return _helped(problem)
        return output.failed(_message(problem), ExitCode.USAGE)
    except (Interrupted, typer.Abort) as end:
        told = output.is_json() and output.knows("run")  # others have read it line by line
        how = ": `tile-agent status --json` says how to go on" if told else ""
        return output.failed(str(end) or f"interrupted; nothing is lost{how}", ExitCode.STOPPED)
    except BaselineOutrun as problem:
        return output.failed(str(problem), ExitCode.STOPPED)
    except UsageError as problem:
        return output.failed(str(problem), ExitCode.USAGE)
    except TileAgentError as problem:
        return output.failed(str(problem), ExitCode.FAULT)
    except OSError as problem:
        if problem.errno != errno.ENOSPC:
            output.fault(problem)
            raise
        return output.failed(
            f"the disk is full ({problem.filename or 'writing'}): free some space, then "
            "`tile-agent resume` if a run had begun",
            ExitCode.STOPPED,
        )
    except Exception as problem:
        output.fault(problem)
        raise


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """An interruption that came while Python ran a destructor is lost there: it comes once more."""
    if issubclass(lost.exc_type, Interrupted):
        threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(lost)


def _message(problem: Exception) -> str:
    """What click would have said, in one line."""
    context = getattr(problem, "ctx", None)
    said = f"{_said(problem)}{_with_its_option(context)}"
    return f"{said} (see {context.command_path if context else PROGRAM} --help)"


def _with_its_option(context: Any) -> str:
    """How a kernel is named, where one was named without that."""
    words = sys.argv[1:]
    takes = any(param.name == "kernel" for param in context.command.params) if context else False
    if not takes or any(word.startswith("--kernel") for word in words):
        return ""
    bare = (word for before, word in pairwise(words) if not before.startswith("-"))
    named = next((word for word in bare if word.endswith(".py")), "")
    return f" Write --kernel {shlex.quote(named)}." if named else ""


def _helped(problem: Exception) -> int:
    """A group without a command: its help is all there is to say, and rich has printed it."""
    if text := _said(problem).strip():
        print(text)
    return ExitCode.USAGE


def _said(problem: Exception) -> str:
    format_message = getattr(problem, "format_message", None)
    return str(format_message() if format_message else problem)
