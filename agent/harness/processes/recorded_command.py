"""Runs a command of the user's with a recorder switched on in every Python process of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import tile_agent_pytest
from agent.errors import Interrupted, UsageError
from agent.harness.processes.script import read_answers

_AT_ONCE_S = 0.5
_GRACE_S = 5.0
"""What a command has to end, and to write its records, before it is asked more firmly."""
_ERRORS = 2
"""The descriptor: of what we print ourselves, standard output is the result."""
_PYTHON = re.compile(r"python[\d.]*")
SITE = Path(tile_agent_pytest.__file__).parent / "recording" / "site"
CALLS = "tile_agent_pytest.capture.installing"
"""Records the calls that launch kernels of one file."""
LAUNCHES = "tile_agent_pytest.profiling.installing"
"""Records all launches, and the time of the GPU's that each kernel takes."""


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended, and what was recorded until then."""

    code: int
    """Below zero for a signal."""
    records: tuple[tuple[dict[str, Any], ...], ...]
    """The messages of each process."""
    stopped_s: float | None = None
    """After how long it was asked to end; None: it ended by itself."""
    interrupted: bool = False
    """The user asked for that."""


def run_recorded(
    command: Sequence[str],
    recorder: str,
    setting: Mapping[str, Any],
    variables: Mapping[str, str],
    stop_after_s: float | None = None,
    sys_path: Sequence[Path] = (),
    also_on_path: Sequence[Path] = (),
    when_interrupted: Callable[[], None] | None = None,
) -> CommandEnd:
    """Run a command as the user would, here and with their variables; it writes to our errors.

    Args:
        command: a program and its arguments.
        recorder: the module that records, `CALLS` or `LAUNCHES`.
        setting: what that is told, as JSON.
        variables: what it needs beside the user's; theirs hold.
        stop_after_s: when to end it as Ctrl-C would, and then by force; None: it ends by itself.
        sys_path: what its Python processes find before the user's own PYTHONPATH.
        also_on_path: what they find after all else: of a script Python adds its own folder alone,
            and the project's modules may lie above.
        when_interrupted: tells the user that the first interruption ends the command alone, and
            what was recorded is gone on with; None: it ends us.

    Raises:
        UsageError: there is no such program.
    """
    with tempfile.TemporaryDirectory(prefix="tile-agent-recorded-") as folder:
        places = [str(place) for place in also_on_path if place.is_dir()]
        told = json.dumps({**setting, "module": recorder, "folder": folder, "also_on_path": places})
        path = [*map(str, [SITE, *sys_path]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **variables,
            **os.environ,
            "TILE_AGENT_RECORDER": told,
            "PYTHONPATH": os.pathsep.join(path),
        }
        try:
            process = subprocess.Popen(command, env=environment, stdout=_ERRORS)
        except OSError as problem:
            mend = "name a program that is here"
            if "=" in command[0]:
                mend = f"no shell sets variables here: begin with `env {command[0]}`"
            raise UsageError(f"{command[0]} cannot be run ({problem.strerror}): {mend}") from None
        begin = time.monotonic()
        stopped_s: float | None = None
        interrupted = False
        try:
            code = process.wait(stop_after_s)
        except subprocess.TimeoutExpired:
            stopped_s, code = time.monotonic() - begin, _stop(process)
        except Interrupted as end:
            if when_interrupted is None or end.by != signal.SIGINT:
                raise
            interrupted, stopped_s = True, time.monotonic() - begin
            when_interrupted()
            with contextlib.suppress(subprocess.TimeoutExpired):  # a terminal's Ctrl-C reaches it
                _wait_once_more(process)
            code = _stop(process)
        finally:
            if process.returncode is None:  # we were asked to end
                process.terminate()
                process.wait()
        records = tuple(tuple(read_answers(path)) for path in sorted(Path(folder).glob("*.jsonl")))
    return CommandEnd(code, records, stopped_s, interrupted)


def _wait_once_more(process: subprocess.Popen[bytes]) -> None:
    """Give a command that was interrupted time to end.

    The same interruption may come twice at once: `timeout -s INT` sends it to us and to our group.
    """
    begin = time.monotonic()
    try:
        process.wait(_GRACE_S)
    except Interrupted:
        if time.monotonic() - begin > _AT_ONCE_S:
            raise
        process.wait(_GRACE_S)


def _stop(process: subprocess.Popen[bytes]) -> int:
    """End a command and what it has started; returns its exit code."""
    try:
        command = psutil.Process(process.pid)
        family = [*command.children(recursive=True), command]
    except psutil.NoSuchProcess:
        family = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(number)
        _, family = psutil.wait_procs(family, _GRACE_S)
    return process.wait()


def other_python(command: Sequence[str]) -> str:
    """What a command may lack whose `python` is not the one that tile-agent runs in; empty where
    it is that one, or none."""
    program = command[0] if command else ""
    found = shutil.which(program) if program.startswith("python") else None
    environment = Path(sys.executable).parent
    if found is None or Path(found).parent == environment:
        return ""
    return f"; {program} is {found} here: where it lacks a module, name {environment / program}"


def interpreter_of(command: Sequence[str]) -> str:
    """The Python that a command names, where that has pytest; else this one."""
    program = command[0] if command else ""
    found = shutil.which(program) if _PYTHON.fullmatch(Path(program).name) else None
    if found is None or Path(found).parents[1] == Path(sys.prefix):
        return sys.executable
    asked = [found, "-c", "import pytest"]
    ended = subprocess.run(asked, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    return sys.executable if ended.returncode else found


def how_it_ended(code: int) -> str:
    """An exit code other than zero in a few words; below zero for a signal."""
    return f"exit code {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
