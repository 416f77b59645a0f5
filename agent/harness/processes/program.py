"""Runs any program in a folder, with a deadline, and leaves no process of it behind."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tile_agent_pytest
from agent.errors import UsageError
from agent.harness.processes.variables import program_environment, withheld
from tile_agent_pytest.process_tree import kill_tree, variable_of
from tile_agent_pytest.program_supervisor import KILL_TIMEOUT_S
from tile_agent_pytest.wire import Channel, Closed, Message

HEAD_BYTES = TAIL_BYTES = 256 * 2**10
"""What a log keeps of the beginning and of the end of the output."""
_EXIT_TIMEOUT_S = KILL_TIMEOUT_S + 5.0
_MARK = "TILE_AGENT_PROGRAM"
_PIPE_BYTES = 2**20  # the most that a pipe holds, so that one read empties it


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended."""

    code: int | None
    """Its exit code, below zero for a signal; None when it passed its deadline."""
    log: Path
    """What it printed, the middle left out where that is long. Secrets are still in it."""
    withheld: tuple[str, ...]
    """Variables of this process that it did not get because they look like secrets."""
    took_s: float

    @property
    def fate(self) -> str:
        """In one line."""
        if self.code is None:
            return f"not done after {self.took_s:.0f} s: killed"
        if self.code == 0:
            return "ended"
        if self.code < 0:
            return f"killed by signal {-self.code} ({signal.strsignal(-self.code)})"
        if not self.withheld:
            return f"exited with {self.code}"
        return (
            f"exited with {self.code}; these variables were not handed on: "
            f"{', '.join(self.withheld)}; --pass-env NAME hands one on"
        )


def run_program(
    argv: Sequence[str],
    folder: Path,
    *,
    log: Path,
    timeout_s: float,
    stdin: str = "",
    pass_env: Collection[str] = (),
    drop_env: Collection[str] = (),
    variables: Mapping[str, str] | None = None,
) -> ProgramEnd:
    """Run a program to its end or to its deadline; then all its descendants are killed.

    Args:
        argv: the program and its arguments; no shell reads them.
        folder: where it runs.
        log: file for its standard output and error, at most half a megabyte of them.
        timeout_s: wall time.
        stdin: what it reads from its standard input.
        pass_env: variables of this process that it gets although they are secret, or unknown.
        drop_env: other variables that it does not get.
        variables: on top of those of this process that it gets.

    Raises:
        UsageError: it cannot be started.
    """
    begin = time.monotonic()
    with running_program(
        argv,
        folder,
        log=log,
        stdin=stdin,
        pass_env=pass_env,
        drop_env=drop_env,
        variables=variables,
    ) as program:
        code = program.wait(timeout_s)
    return ProgramEnd(code, log, program.withheld, time.monotonic() - begin)


class RunningProgram:
    """A program that was started and may go on while its caller does something else."""

    def __init__(self, name: str, program: _Supervised, log: _Log, withheld: tuple[str, ...]):
        self.withheld = withheld
        self._name, self._program, self._log = name, program, log

    def wait(self, seconds: float) -> int | None:
        """Its exit code, below zero for a signal; None when it has not ended after so long.

        Raises:
            UsageError: it cannot be started.
        """
        answer = self._program.follow(self._log, time.monotonic() + seconds)
        if "problem" in answer:
            raise UsageError(f"{self._name} cannot be run: {answer['problem']}")
        code: int | None = answer["code"]
        return code


@contextlib.contextmanager
def running_program(
    argv: Sequence[str],
    folder: Path,
    *,
    log: Path,
    stdin: str = "",
    pass_env: Collection[str] = (),
    drop_env: Collection[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Iterator[RunningProgram]:
    """Run a program while the block lasts; then it and all its descendants are killed.

    The arguments are those of `run_program`.
    """
    given = {name: os.environ[name] for name in pass_env if name in os.environ}
    given |= {"PWD": str(folder), **(variables or {}), _MARK: uuid.uuid4().hex}
    base = {k: v for k, v in os.environ.items() if k not in drop_env and k != "OLDPWD"}
    environment = program_environment(base, given)
    with contextlib.closing(_Log(log)) as output:
        program = _Supervised(argv, folder, environment, stdin)
        try:
            yield RunningProgram(argv[0], program, output, withheld(base, environment))
        finally:
            program.end(output)


class _Supervised:
    """A program and the process that supervises it."""

    def __init__(
        self, argv: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: str
    ) -> None:
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        self._mark = environment[_MARK]
        self._output, write_end = os.pipe()
        os.set_blocking(self._output, False)
        main = str(Path(tile_agent_pytest.__file__).parent)
        with theirs, tempfile.TemporaryFile() as file, os.fdopen(write_end, "wb") as output:
            file.write(stdin.encode())
            file.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, main, "program", str(theirs.fileno()), *argv],
                cwd=folder,
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=file,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def follow(self, log: _Log, deadline: float) -> Message:
        """Copy the output until the supervisor answers, or is gone, or the deadline passes."""
        with selectors.DefaultSelector() as ready:
            ready.register(self._channel.socket, selectors.EVENT_READ)
            ready.register(self._output, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                for key, _ in ready.select(left):
                    if key.fileobj == self._channel.socket:
                        try:
                            return self._channel.receive(_EXIT_TIMEOUT_S)
                        except Closed:
                            return {"code": self._process.wait(_EXIT_TIMEOUT_S)}
                    if not self._copy(log):
                        ready.unregister(self._output)
        return {"code": None}

    def end(self, log: _Log) -> None:
        """Kill what is left of the program, and take the last of its output."""
        self._channel.close()  # the supervisor's sign
        self._process.send_signal(signal.SIGCONT)  # should the program have stopped it
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_EXIT_TIMEOUT_S)
        finally:
            if self._process.poll() is None:
                kill_tree(self._process.pid)
            if self._process.wait() != 0:  # or killed it: then its orphans are not ours
                _kill_marked(self._mark)
            self._copy(log)
            os.close(self._output)

    def _copy(self, log: _Log) -> bool:
        """Copy what has been printed and not been read; False at the end of the output."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._output, _PIPE_BYTES)
            log.write(data)
            return bool(data)
        return True


def _kill_marked(mark: str) -> None:
    for entry in Path("/proc").glob("[0-9]*"):
        if variable_of(int(entry.name), _MARK) == mark:
            kill_tree(int(entry.name))


class _Log:
    """A file that keeps the beginning and the end of what is written to it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._room = HEAD_BYTES
        self._tail = bytearray()
        self._left_out = 0

    def write(self, data: bytes) -> None:
        """Add to it."""
        if head := data[: self._room]:
            self._file.write(head)
            self._file.flush()  # somebody may be looking
            self._room -= len(head)
        self._tail += data[len(head) :]
        self._trim(2 * TAIL_BYTES)  # twice the tail, so that few writes move it

    def close(self) -> None:
        """Write the end."""
        self._trim(TAIL_BYTES)
        if self._left_out:
            self._file.write(f"\n[... {self._left_out} bytes left out ...]\n".encode())
        self._file.write(self._tail)
        self._file.close()

    def _trim(self, most_bytes: int) -> None:
        if len(self._tail) > most_bytes:
            excess = len(self._tail) - TAIL_BYTES
            del self._tail[:excess]
            self._left_out += excess
