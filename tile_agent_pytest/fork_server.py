"""The fork server: imports torch, triton, cuda.tile and pytest once, then forks a worker a job.

A forked worker is ready in a fraction of a second, where a fresh interpreter pays several for its
imports, and it is as isolated as a fresh process as far as the user's code is concerned: none of
it has run here. CUDA is never initialised in this process, because a context does not survive a
fork.

The server ends when its parent does, and takes every worker along. A worker is a child subreaper:
what its tests leave behind (a daemon, a `setsid` grandchild) stays below it while it lives. Then
the server, one too, inherits that and kills it. It also ends a worker that takes too much memory
or too many processes, and removes the folder for temporary files that each has had.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tile_agent_pytest import forked_work  # noqa: F401 - its slots are of all workers
from tile_agent_pytest.facts import facts
from tile_agent_pytest.preloading import preload, preload_more
from tile_agent_pytest.process_tree import (
    become_subreaper,
    children,
    die_with_parent,
    kill_tree,
    variable_of,
    wake_on_child_exit,
)
from tile_agent_pytest.sandbox import make_devices
from tile_agent_pytest.watchdog import PERIOD_S, overrun
from tile_agent_pytest.wire import Channel, Message
from tile_agent_pytest.worker_folders import SCRATCH

WORKER_MARK = "TILE_AGENT_WORKER"
MAX_REQUEST_BYTES = 4096
PRECEDENCE = -10
"""The server's niceness: among a thousand processes that a worker has started it gets its turn."""
KILL_TIMEOUT_S = 3.0
"""What forks faster than it can be killed gets no more time than this."""


@dataclass(frozen=True)
class _Limits:
    memory_bytes: int
    processes: int


def serve(control_fd: int) -> None:
    """Answer the parent until it goes away."""
    server = Server(socket.socket(fileno=control_fd))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, lambda *_: server.leave())
    become_subreaper()
    die_with_parent(signal.SIGTERM)
    with contextlib.suppress(PermissionError):  # only root may
        os.setpriority(os.PRIO_PROCESS, 0, PRECEDENCE)
    server.run()


class Server:
    """The event loop: forks on demand, tells who was forked and who has ended, kills on demand.

    The control socket keeps message boundaries, and every message is small: a worker reads its job
    from its own socket, whose descriptor comes with the request to fork.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: dict[int, str] = {}
        self._why: dict[str, str] = {}
        self._limits = _Limits(sys.maxsize, sys.maxsize)
        self._scratch = Path(os.environ[SCRATCH])
        self._wakeup = wake_on_child_exit()
        self._niceness = os.getpriority(os.PRIO_PROCESS, 0)

    def run(self) -> None:
        """Serve until the parent closes its end."""
        make_devices()
        imported, missing = preload()
        try:
            hello = {"imported": imported, "missing": missing, "facts": facts()}
            self._tell({"event": "hello", **hello})
            while True:
                period_s = PERIOD_S if self._workers else None
                ready, _, _ = select.select(
                    [self._control.fileno(), self._wakeup], [], [], period_s
                )
                self._watch()
                if self._wakeup in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wakeup, 4096)
                    self._reap()
                if self._control.fileno() in ready and not self._answer():
                    break
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            self.leave()

    def leave(self) -> NoReturn:
        """Kill every worker, and what tests have started, and end."""
        for pid in list(self._workers):
            kill_tree(pid)
        self._kill_orphans(alive=set())
        shutil.rmtree(self._scratch, ignore_errors=True)
        os._exit(0)

    def _tell(self, message: Message) -> None:
        self._control.send(json.dumps(message).encode())

    def _answer(self) -> bool:
        """Serve one request; False when the parent is gone."""
        data, fds, _, _ = socket.recv_fds(self._control, MAX_REQUEST_BYTES, 1)
        if not data:
            return False
        request = json.loads(data)
        if request["op"] == "fork":
            self._limits = _Limits(request["memory_bytes"], request["processes"])
            self._fork(str(request["id"]), fds[0])
        elif request["op"] == "preload":
            file = Path(request["file"])
            seen = json.loads(file.read_text(encoding="utf-8"))
            why, seen["left"] = preload_more(**seen)
            file.write_text(json.dumps(seen), encoding="utf-8")
            self._kill_orphans(alive=set(self._workers.values()))
            self._tell({"event": "preloaded", "why": why})
        elif request["op"] == "kill":
            for pid, mark in self._workers.items():
                if mark == request["id"]:
                    kill_tree(pid)
        return True

    def _watch(self) -> None:
        """End a worker that takes too much; its exit is told with the reason."""
        limits = self._limits
        found = overrun(self._workers, limits.memory_bytes, limits.processes)
        if found is not None:
            pid, why = found
            self._why.setdefault(self._workers[pid], why)
            kill_tree(pid)

    def _fork(self, mark: str, fd: int) -> None:
        (self._scratch / mark).mkdir()
        pid = os.fork()
        if pid == 0:
            self._become_worker(fd, mark)
        os.close(fd)
        self._workers[pid] = mark
        self._tell({"event": "forked", "id": mark, "pid": pid})

    def _become_worker(self, fd: int, mark: str) -> None:
        """Leave the server behind and do the job that waits on the socket; never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.setsid()
            os.setpriority(os.PRIO_PROCESS, 0, self._niceness)
            become_subreaper()
            die_with_parent(signal.SIGKILL)
            self._control.close()
            os.close(self._wakeup)
            os.environ[WORKER_MARK] = mark
            os.environ["TMPDIR"] = os.environ[SCRATCH] = str(self._scratch / mark)
            from tile_agent_pytest.worker import work

            code = work(Channel(socket.socket(fileno=fd)))
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            mark = self._workers.pop(pid, None)
            if mark is None:
                continue
            self._kill_orphans(alive=set(self._workers.values()))
            shutil.rmtree(self._scratch / mark, ignore_errors=True)
            code = os.waitstatus_to_exitcode(status)
            why = self._why.pop(mark, "")
            self._tell({"event": "exited", "id": mark, "code": code, "why": why})

    def _kill_orphans(self, *, alive: set[str]) -> None:
        """Kill what dead workers left behind: our children that are neither workers nor theirs.

        As often as it takes: what one had started while it was killed becomes our child then.
        """
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while orphans := [
            pid
            for pid in children(os.getpid())
            if pid not in self._workers and variable_of(pid, WORKER_MARK) not in alive
        ]:
            for pid in orphans:
                kill_tree(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            if time.monotonic() > deadline:
                break
            time.sleep(0.001)
