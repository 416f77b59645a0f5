"""Runs one program and leaves no process of it behind: `... tile_agent_pytest program FD ARGV`.

A process of its own between tile-agent and the program: as a child subreaper it inherits what the
program leaves behind, a daemon of a double fork included, and kills that when the program ends,
when tile-agent asks for it by closing the socket, and when tile-agent dies.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import NoReturn

from tile_agent_pytest.process_tree import (
    become_subreaper,
    children,
    die_with_parent,
    kill_tree,
    wake_on_child_exit,
)
from tile_agent_pytest.wire import Channel, Closed, Message

KILL_TIMEOUT_S = 5.0
"""What cannot be killed by then (another user's process, one stuck in a driver) is left."""


def supervise(control_fd: int, argv: Sequence[str]) -> NoReturn:
    """Run the program and tell the parent how it ended: its exit code, or why it cannot start.

    Standard input, output and error of this process are the program's.
    """
    control = socket.socket(fileno=control_fd)
    signal.signal(signal.SIGTERM, lambda *_: _leave())
    become_subreaper()
    die_with_parent(signal.SIGTERM)
    wakeup = wake_on_child_exit()
    try:
        # In a session of its own: `kill 0` in the program must not reach us.
        program = subprocess.Popen(
            argv, start_new_session=True, preexec_fn=lambda: die_with_parent(signal.SIGKILL)
        )
    except OSError as problem:
        answer: Message | None = {"problem": problem.strerror}
    else:
        code = _wait(program.pid, control, wakeup)
        answer = None if code is None else {"code": code}
    _kill_all()
    if answer is not None:
        with contextlib.suppress(Closed):
            Channel(control).send(answer)
    os._exit(0)


def _wait(pid: int, control: socket.socket, wakeup: int) -> int | None:
    """The program's exit code, below zero for a signal; None when the parent has hung up."""
    while True:
        ready, _, _ = select.select([control.fileno(), wakeup], [], [])
        if control.fileno() in ready:
            return None
        os.read(wakeup, 4096)
        while ended := _reap():
            if ended[0] == pid:
                return os.waitstatus_to_exitcode(ended[1])


def _reap() -> tuple[int, int] | None:
    """Pid and status of a child that has ended; None when there is none."""
    with contextlib.suppress(ChildProcessError):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            return pid, status
    return None


def _kill_all() -> None:
    """Kill every descendant; those that lose their parent meanwhile become our children."""
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while (left := children(os.getpid())) and time.monotonic() < deadline:
        for pid in left:
            kill_tree(pid)
        while _reap():
            pass
        time.sleep(0.005)


def _leave() -> NoReturn:
    _kill_all()
    os._exit(128 + signal.SIGTERM)
