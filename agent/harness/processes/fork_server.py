"""The parent's side of the fork server: starts it, forks workers, kills those past a deadline.

Several threads may have workers of one server: what the server tells is noted for all of them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tile_agent_pytest
from agent.errors import UsageError, WorkerDied, WorkerError, WorkerTimedOut
from agent.harness.processes.confinement import Confinement
from agent.harness.processes.variables import worker_environment
from agent.interruption import done_whole
from tile_agent_pytest.fork_server import MAX_REQUEST_BYTES
from tile_agent_pytest.process_tree import ProcessorTimes, kill_tree, processor_times
from tile_agent_pytest.wire import Channel, Closed, Message
from tile_agent_pytest.worker_folders import SCRATCH

START_TIMEOUT_S = 180.0
"""Importing torch, Triton and cuda.tile from a cold disk takes a while."""
EXIT_TIMEOUT_S = 10.0
PRELOAD_TIMEOUT_S = 300.0
TURN_S = 0.05
"""For so long one thread listens to the server before another one may."""


class ForkServer:
    """A process that has imported the heavy packages and forks a worker for each job."""

    def __init__(
        self,
        python: str,
        environment: Mapping[str, str],
        log: Path,
        *,
        confinement: Confinement | None = None,
        pass_env: Collection[str] = (),
    ) -> None:
        """Start it.

        Args:
            python: the interpreter of the user's environment.
            environment: variables for the workers, on top of those of this process that they get.
            log: file for what the server itself prints.
            confinement: of the workers; strict where it is left out.
            pass_env: other variables of this process that the workers get.

        Raises:
            UsageError: that interpreter cannot run it.
        """
        self.confinement = confinement or Confinement()
        self.environment = dict(environment)
        """What was set for the workers."""
        self._marks = itertools.count(1)
        self._pids: dict[str, int] = {}
        self._exits: dict[str, int] = {}
        self._why: dict[str, str] = {}
        self._retired: dict[str, float] = {}
        self._listening = threading.Lock()
        # Short: a Unix socket's path, which programs make below it, has 108 bytes.
        self._scratch = tempfile.mkdtemp(prefix="tile-agent-")
        variables = {**environment, SCRATCH: self._scratch, "TMPDIR": self._scratch}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        started = False
        try:
            # An interruption waits until the process that it is to end is known.
            with done_whole(), theirs, log.open("ab") as output:
                self._process = subprocess.Popen(
                    [python, str(Path(tile_agent_pytest.__file__).parent), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=worker_environment(os.environ, variables, pass_env),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
                started = True
            hello = self._event(START_TIMEOUT_S)
        except BaseException as ending:
            if started:  # by Ctrl-C: it has no worker yet, and hears nothing while it imports
                kill_tree(self._process.pid)
                self.close()
                raise
            self._control.close()
            shutil.rmtree(self._scratch, ignore_errors=True)
            if not isinstance(ending, OSError):
                raise
            raise UsageError(
                f"{python} cannot be run ({ending.strerror}): name an interpreter that has "
                "torch and pytest with --python"
            ) from None
        if hello is None:
            self.close()
            raise UsageError(
                f"{python} cannot start a worker: see {log}; "
                "name an interpreter that has torch and pytest with --python"
            )
        self.imported = frozenset(hello["imported"])
        self.missing: dict[str, str] = hello["missing"]
        self.facts: dict[str, Any] = hello["facts"]
        """What the interpreter has installed, by `tile_agent_pytest.facts`."""
        if "pytest" not in self.imported:
            self.close()
            raise UsageError(f"{python} has no pytest: {python} -m pip install pytest")

    @property
    def pid(self) -> int:
        """The number of the server's process, whose children the workers are."""
        return self._process.pid

    def fork(
        self, job: Message, *, write: Iterable[Path] = (), read: Iterable[Path] = ()
    ) -> WorkerProcess:
        """Start a worker on a job. The job's keys are described in `tile_agent_pytest.worker`.

        Args:
            job: what it is to do.
            write: folders that it may write; its temporary files have one of their own.
            read: what it may read in any case.
        """
        mark = str(next(self._marks))
        limits = self.confinement.limits
        request = {"memory_bytes": limits.memory_bytes, "processes": limits.processes}
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._send({"op": "fork", "id": mark, **request}, [theirs.fileno()])
            except WorkerDied:
                ours.close()
                raise
        channel = Channel(ours)
        channel.send(job | self.confinement.of(write, read))
        return WorkerProcess(self, mark, channel)

    def preload(self, seen: Mapping[str, Any], file: Path) -> str:
        """Have the server import what a session imported of what is installed, for those to come.

        Args:
            seen: as a worker told it (`Collection.installed`).
            file: in which it is handed over. It stays where that was done, with what a trial found
                to be left: `preload_again`.

        Returns:
            Why that was left; empty where it was done.

        Raises:
            WorkerDied: the server ended meanwhile, or hangs.
        """
        self.await_retired(EXIT_TIMEOUT_S)  # they may hold the GPU, which is to be tried
        file.write_text(json.dumps(seen), encoding="utf-8")
        self._send({"op": "preload", "file": str(file)})
        while (event := self._event(PRELOAD_TIMEOUT_S)) is not None:
            if event["event"] == "preloaded":
                if event["why"]:
                    file.unlink()
                return str(event["why"])
            self._note(event)
        raise WorkerDied("the fork server does not answer")

    def preload_again(self, file: Path, *, tried: bool = False) -> None:
        """Do as an earlier server did, where it kept what that was.

        Args:
            file: in which it did.
            tried: whether that server's trial holds for this one, too: it is of the same run.
                Another one would import it all once more.

        Raises:
            WorkerDied: the server ended meanwhile, or hangs.
        """
        try:
            seen = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        if isinstance(seen, dict) and seen.get("modules"):
            left = seen.pop("left", None)
            self.preload(seen | ({"left": left} if tried else {}), file)

    def kill(self, mark: str) -> None:
        """Kill a worker with all its descendants and wait until it is gone."""
        with contextlib.suppress(WorkerError):
            self._send({"op": "kill", "id": mark})
        self.exit_code(mark, EXIT_TIMEOUT_S)

    def exit_code(self, mark: str, timeout_s: float) -> int | None:
        """The exit code of a worker, below zero for a signal; None while it is alive."""
        self._listen(lambda: mark in self._exits, timeout_s)
        return self._exits.get(mark)

    def pid_of(self, mark: str) -> int:
        """The process of a worker, as the server knows it: no worker is asked.

        Raises:
            WorkerDied: the server is gone, or hangs.
        """
        self._listen(lambda: mark in self._pids, EXIT_TIMEOUT_S)
        if mark not in self._pids:
            raise WorkerDied("the fork server does not answer")
        return self._pids[mark]

    def _listen(self, is_told: Callable[[], bool], timeout_s: float) -> None:
        """Note what the server tells until that is among it, it is gone, or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not is_told():
            left_s = max(0.0, deadline - time.monotonic())
            turn_s = min(TURN_S, left_s)
            # Whoever listens may do so for long, and notes for all what it hears.
            if self._listening.acquire(timeout=turn_s):
                try:
                    event = None if is_told() else self._event(turn_s)
                    if event is not None:
                        self._note(event)
                        continue
                finally:
                    self._listening.release()
            if left_s <= TURN_S or self._is_gone():
                return

    def _is_gone(self) -> bool:
        return self._control.fileno() < 0 or self._process.poll() is not None

    def _note(self, event: Message) -> None:
        if event["event"] == "forked":
            self._pids[event["id"]] = event["pid"]
        if event["event"] == "exited":
            self._exits[event["id"]] = event["code"]
            self._why[event["id"]] = event["why"]

    def death(self, mark: str) -> str:
        """How a worker ended, in one line; it is waited for."""
        code = self.exit_code(mark, EXIT_TIMEOUT_S)
        why = self._why.get(mark)
        return f"{_death(code)}: {why}" if why else _death(code)

    def retire(self, mark: str) -> None:
        """Expect a worker to end by itself; those that had time enough and did not are killed."""
        now = time.monotonic()
        self._retired[mark] = now
        for other, since in list(self._retired.items()):
            if self.exit_code(other, 0.0) is not None:
                self._retired.pop(other, None)
            elif now - since > EXIT_TIMEOUT_S:
                self.kill(other)

    def abandon(self, mark: str) -> None:
        """Kill a worker with all its descendants; `await_retired` waits until they are gone."""
        with contextlib.suppress(WorkerError):
            self._send({"op": "kill", "id": mark})
        self.retire(mark)

    def await_retired(self, timeout_s: float) -> None:
        """Wait until the workers that were not waited for have ended, with what they hold.

        One that is not gone by then is killed: nobody waits for it twice.
        """
        deadline = time.monotonic() + timeout_s
        for mark in list(self._retired):
            if self.exit_code(mark, max(0.0, deadline - time.monotonic())) is None:
                with contextlib.suppress(WorkerError):
                    self._send({"op": "kill", "id": mark})
            self._retired.pop(mark, None)

    def close(self) -> None:
        """End the server and every worker."""
        self._control.close()
        try:
            self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, message: Message, fds: list[int] | None = None) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], fds or [])
        except OSError as gone:
            raise WorkerDied("the fork server is gone") from gone

    def _event(self, timeout_s: float) -> Message | None:
        """The next event; None at the timeout or when the server is gone."""
        with contextlib.suppress(OSError, ValueError):
            if select.select([self._control], [], [], timeout_s)[0]:
                data = self._control.recv(16 * MAX_REQUEST_BYTES)
                if data:
                    event: Message = json.loads(data)
                    return event
        return None


class WorkerProcess:
    """One forked worker and the conversation with it."""

    def __init__(self, server: ForkServer, mark: str, channel: Channel) -> None:
        self._server = server
        self._mark = mark
        self._channel = channel
        self._sent_at = time.monotonic()
        """When it was told something last: its job, at first."""

    def receive(self, deadline: float) -> Message:
        """Wait for the worker's next message.

        Args:
            deadline: on the clock of `time.monotonic`.

        Raises:
            WorkerTimedOut: the deadline passed; the worker's process tree has been killed.
            WorkerDied: it ended without a message; the error names the signal or exit code.
        """
        try:
            return self._channel.receive(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            self.kill()
            waited_s = time.monotonic() - self._sent_at
            raise WorkerTimedOut(f"no answer after {waited_s:.0f} s; killed") from None
        except Closed:
            how = self._server.death(self._mark)
            self.kill()
            raise WorkerDied(how) from None

    def processor_times(self) -> ProcessorTimes:
        """How long it has been on a processor, and has waited for one.

        Raises:
            WorkerDied: the server is gone.
        """
        return processor_times(self._server.pid_of(self._mark))

    def has_message(self) -> bool:
        """Whether `receive` would find something: a message has begun to arrive, or none will."""
        return self._channel.is_readable()

    def fileno(self) -> int:
        """Readable, for `select`, when a message has begun to arrive or none will."""
        return self._channel.socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message. Raises `WorkerDied`."""
        self._sent_at = time.monotonic()
        try:
            self._channel.send(message)
        except Closed:
            raise WorkerDied(self._server.death(self._mark)) from None

    def kill(self) -> None:
        """End it at once, with all its descendants."""
        self._channel.close()
        self._server.kill(self._mark)

    def abandon(self) -> None:
        """End it at once, and do not wait: giving up a CUDA context takes a second."""
        self._channel.close()
        self._server.abandon(self._mark)

    def close(self) -> None:
        """Let it finish its session, and do not wait either."""
        self._channel.close()
        self._server.retire(self._mark)


def _death(code: int | None) -> str:
    import signal

    if code is None:
        return "the worker closed its connection without an answer"
    if code < 0:
        return f"the worker was killed by {signal.Signals(-code).name}"
    return f"the worker ended by itself with exit code {code}"
