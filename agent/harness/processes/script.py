"""Runs one of `tile_agent_pytest`'s programs in the user's interpreter, with a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tile_agent_pytest
from agent.errors import UnreadableCode, UsageError
from agent.harness.processes.variables import worker_environment
from tile_agent_pytest.process_tree import kill_tree

NEWER = ": another version of it may read this"
"""The end of what is said of a binary utility that does not know some code."""


@dataclass(frozen=True)
class ScriptEnd:
    """How a program ended."""

    answers: tuple[dict[str, Any], ...]
    fate: str
    """In one line."""
    code: int | None
    """Its exit code, below zero for a signal; None when it passed its deadline."""
    log: Path | None = None
    """What it printed, where that is kept."""


def run_script(
    command: Sequence[str],
    job: Mapping[str, Any],
    *,
    cwd: Path,
    variables: Mapping[str, str],
    scratch: Path,
    timeout_s: float,
    passed: Collection[str] = (),
) -> ScriptEnd:
    """Hand a job to a program and read what it answers, line by line, into a file.

    Args:
        command: the interpreter and the program.
        job: goes to its stdin as JSON, with `answers`, the file for its answers, added.
        cwd: where it runs.
        variables: on top of this process's environment without its secrets.
        scratch: folder for the job, the answers and the log; also its temporary folder.
        timeout_s: then it is killed with all its descendants.
        passed: names of variables that the user hands on.

    Raises:
        UsageError: the interpreter cannot be run.
    """
    answers, log = scratch / "answers", scratch / "log"
    (scratch / "job").write_text(json.dumps({**job, "answers": str(answers)}), encoding="utf-8")
    with (scratch / "job").open() as stdin, log.open("wb") as output:
        try:
            process = subprocess.Popen(
                list(command),
                cwd=cwd,
                env=worker_environment(os.environ, {"TMPDIR": str(scratch), **variables}, passed),
                stdin=stdin,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as problem:
            raise UsageError(
                f"{command[0]} cannot be run ({problem.strerror}): name another interpreter with "
                "--python"
            ) from None
        code: int | None = None
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            fate = f"not done after {timeout_s:g} s: killed"
        else:
            fate = _death(code, log)
        finally:
            if process.returncode is None:  # or its number may be another's by now
                kill_tree(process.pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return ScriptEnd(tuple(read_answers(answers)), fate, code, log)


def plugin_folder(scratch: Path) -> Path:
    """A folder for the PYTHONPATH of an interpreter that need not have tile-agent installed.

    It holds `tile_agent_pytest` and nothing else of the interpreter that has.
    """
    folder = scratch / "plugin"
    folder.mkdir()
    (folder / tile_agent_pytest.__name__).symlink_to(Path(tile_agent_pytest.__file__).parent)
    return folder


def run_tool(command: Sequence[str], timeout_s: float) -> str:
    """What a binary utility prints.

    Raises:
        UnreadableCode: it refused what it was given.
        UsageError: it cannot be run, or did not end.
    """
    try:
        ended = subprocess.run(
            command, capture_output=True, timeout=timeout_s, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise UsageError(f"{command[0]} failed ({problem}): install another version") from None
    if ended.returncode != 0:
        said = (ended.stderr or ended.stdout).strip().splitlines() or ["without a word"]
        first = next((line for line in said if "error" in line), said[-1])
        raise UnreadableCode(f"{command[0]} failed ({first}){NEWER}")
    return ended.stdout


def read_answers(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of the file; a killed process may leave half a line."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def _death(code: int, log: Path) -> str:
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = f": {said[-1].strip()}" if said else ""
    if code < 0:
        return f"the process was killed by {signal.Signals(-code).name}{last}"
    return f"the process ended with exit code {code}{last}"
