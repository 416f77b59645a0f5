"""Command lines that a message suggests; what the user gave is in them, or they would fail."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path


def passing(names: Iterable[str]) -> str:
    """The end of a command that hands variables on; empty where there are none."""
    return "".join(f" --pass-env {shlex.quote(name)}" for name in names)


def looking(command: str, kernel: str, pass_env: Iterable[str] = ()) -> str:
    """A command that looks at a kernel: `explain`, `diagnose`; whole, so that it can be pasted."""
    return f"`tile-agent {command} --kernel {shlex.quote(kernel)}{passing(pass_env)}`"


def here(path: str) -> str:
    """A path below the root of a repository as the current directory names it, where that lies in
    the repository."""
    folder = Path.cwd()
    root = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
    there = root / path
    return os.path.relpath(there, folder) if path and there.exists() else path


def or_captured_in_run(kernel: str, pass_env: Iterable[str] = ()) -> str:
    """The end of a refusal for tests that cannot be had: a run goes by what it captures."""
    given = f"--kernel {shlex.quote(here(kernel))}{passing(pass_env)}"
    return f"or go by the calls of a script: tile-agent run {given} --capture 'python SCRIPT'"


def or_captured(kernel: str, test: str = "", script: str = "", pass_env: Iterable[str] = ()) -> str:
    """The end of a refusal for want of tests: how they are made of what a script calls.

    Args:
        kernel: the file.
        test: a file of tests whose calls would do too; empty where there is none.
        script: one that calls the kernel; empty where none is known.
        pass_env: names of the variables that are handed on.
    """
    given = f"--kernel {shlex.quote(here(kernel))}{passing(pass_env)}"
    caller = f"`python {here(script)}`" if script else "a script"
    named = shlex.quote(here(script) or "SCRIPT")
    capture = f"{caller}: tile-agent capture {given} -- python {named}"
    command = shlex.quote(f"python -m pytest {shlex.quote(here(test))}")
    run = f", or of these tests: tile-agent run {given} --capture {command}" if test else ""
    return f"or have some made of the calls of {capture}{run}"
