"""Compiles, each in a forked process of its own with a deadline, several of them at a time.

A compiler may loop for minutes, or abort; and one that waits for another leaves processors idle.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tile_agent_pytest.compile_cutile import with_place

Message = dict[str, Any]
_POLL_S = 0.01


@dataclass(frozen=True)
class CompileTask:
    """One compile."""

    index: int
    """Of the launch."""
    target: str
    work: Callable[[str, Path], Message]
    """Compiles for a target into a folder, and says which files it wrote."""
    folder: Path
    """Empty; no other compile writes to it."""


@dataclass(frozen=True)
class _Running:
    task: CompileTask
    pid: int
    deadline: float


def in_own_processes(
    tasks: Iterable[CompileTask], at_once: int, limit_s: float
) -> Generator[tuple[CompileTask, Message], None, None]:
    """Compile, and yield each answer as it comes: in no order.

    Args:
        tasks: taken one by one, each when its process is about to begin.
        at_once: how many processes there are at most.
        limit_s: for one compile; after it the process is killed.

    Yields:
        The task, and what it says with `ok` true, or `ok` false with the error.
    """
    left = iter(tasks)
    running: list[_Running] = []
    try:
        while True:
            while len(running) < at_once and (task := next(left, None)) is not None:
                running.append(_Running(task, _fork(task), time.monotonic() + limit_s))
            if not running:
                return
            ended = [(each, answer) for each in running if (answer := _answer(each, limit_s))]
            running = [each for each in running if each not in (other for other, _ in ended)]
            yield from ((each.task, answer) for each, answer in ended)
            if not ended:
                time.sleep(_POLL_S)
    finally:
        for each in running:
            _kill(each.pid)


def _fork(task: CompileTask) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            said = json.dumps(_attempt(task))
            (task.folder / "answer").write_text(said, encoding="utf-8")
            code = 0
        finally:
            os._exit(code)
    return pid


def _attempt(task: CompileTask) -> Message:
    try:
        return {"ok": True, **task.work(task.target, task.folder)}
    except Exception as problem:
        return {"ok": False, "error": with_place(problem)}


def _answer(running: _Running, limit_s: float) -> Message | None:
    """What a process has said in the end; None while it is at work."""
    pid, status = os.waitpid(running.pid, os.WNOHANG)
    if pid == 0:
        if time.monotonic() <= running.deadline:
            return None
        _kill(running.pid)
        error = f"not compiled after {limit_s:g} s: killed; a smaller tile compiles faster"
        return {"ok": False, "error": error, "timed_out": True}
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        said = (running.task.folder / "answer").read_text(encoding="utf-8")
        answer: Message = json.loads(said)
        return answer
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return {"ok": False, "error": f"the compiler ended by {name}"}


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # it may not have had its own group yet
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
