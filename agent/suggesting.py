"""Command lines that a message suggests; what the user gave is in them, or they would fail."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path


def passing(names: Iterable[str], python: str = "") -> str:
    """The end of a command that hands variables on, and runs the tests by an interpreter which is
    not that of tile-agent; empty where there are none."""
    variables = "".join(f" --pass-env {shlex.quote(name)}" for name in names)
    return f"{variables} --python {shlex.quote(python)}" if _is_another(python) else variables


def _is_another(python: str) -> bool:
    return python not in ("", sys.executable)


def looking(command: str, kernel: str, pass_env: Iterable[str] = (), python: str = "") -> str:
    """A command that looks at a kernel: `explain`, `diagnose`; whole, so that it can be pasted."""
    return f"`tile-agent {command} --kernel {shlex.quote(kernel)}{passing(pass_env, python)}`"


def here(path: str) -> str:
    """A path below the root of a repository as the current directory names it, where that lies in
    the repository."""
    folder = Path.cwd()
    root = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
    there = root / path
    return os.path.relpath(there, folder) if path and there.exists() else path


def or_captured_in_run(kernel: str, pass_env: Iterable[str] = (), python: str = "") -> str:
    """The end of a refusal for tests that cannot be had: a run goes by what it captures."""
    given = f"--kernel {shlex.quote(here(kernel))}{passing(pass_env, python)}"
    command = shlex.quote(f"{_called(python)} SCRIPT")
    return f"or go by the calls of a script: tile-agent run {given} --capture {command}"


def _called(python: str) -> str:
    """An interpreter at the beginning of a command."""
    return shlex.quote(python) if _is_another(python) else "python"


def or_captured(
    kernel: str,
    test: str = "",
    script: str = "",
    pass_env: Iterable[str] = (),
    python: str = "",
) -> str:
    """The end of a refusal for want of tests: how they are made of what a script calls.

    Args:
        kernel: the file.
        test: a file of tests whose calls would do too; empty where there is none.
        script: one that calls the kernel; empty where none is known.
        pass_env: names of the variables that are handed on.
        python: the interpreter that runs the tests.
    """
    given = f"--kernel {shlex.quote(here(kernel))}{passing(pass_env, python)}"
    caller = f"`python {here(script)}`" if script else "a script"
    named = shlex.quote(here(script) or "SCRIPT")
    capture = f"{caller}: tile-agent capture {given} -- {_called(python)} {named}"
    command = shlex.quote(f"{_called(python)} -m pytest {shlex.quote(here(test))}")
    run = f", or of these tests: tile-agent run {given} --capture {command}" if test else ""
    return f"or have some made of the calls of {capture}{run}"
