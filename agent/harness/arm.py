"""One arm: a live worker over one checkout, asked for passes of its frozen tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.errors import WorkerDied, WrongImport
from agent.harness.results import Collection, Pass, read_collection, read_pass
from agent.harness.server import ForkServer


@dataclass(frozen=True)
class Checkout:
    """A commit on disk, and how Python finds its modules."""

    root: Path
    sys_path: tuple[Path, ...]
    kernel: str
    """Path of the kernel below `root`."""


class Arm:
    """A pytest session over a checkout. Use it in a `with`; it ends with the block."""

    def __init__(
        self,
        server: ForkServer,
        checkout: Checkout,
        log: Path,
        *,
        arguments: Sequence[str],
        tests: Sequence[str] | None,
        deadline: float,
    ) -> None:
        """Start the session and collect.

        Args:
            server: forks the worker.
            checkout: what to run.
            log: file for the worker's output.
            arguments: for pytest: files, node ids, `-k`.
            tests: node ids to keep, in this order; all when None.
            deadline: for the collection, on the clock of `time.monotonic`.

        Raises:
            WorkerTimedOut: the collection passed the deadline.
            WorkerDied: it ended without an answer, or pytest refused the arguments.
        """
        self.checkout = checkout
        self._log = log
        self._worker = server.fork(
            {
                "cwd": str(checkout.root),
                "sys_path": [str(path) for path in checkout.sys_path],
                "log": str(log),
                "args": [f"--rootdir={checkout.root}", *arguments],
                "tests": None if tests is None else list(tests),
                "kernel": checkout.kernel,
                "env": {"PYTHONPATH": ":".join(str(path) for path in checkout.sys_path)},
            }
        )
        message = self._worker.receive(deadline)
        if message["event"] == "ended":
            self._worker.close()
            raise WorkerDied(f"pytest ended with exit code {message['code']}: see {log}")
        self.collection: Collection = read_collection(message)

    def run(self, nodeids: Sequence[str], deadline: float) -> Pass:
        """One pass over the given tests.

        Raises:
            WorkerTimedOut: the deadline passed.
            WorkerDied: the worker ended, or a test is not there any more.
            WrongImport: the kernel was imported from another file than this checkout's.
        """
        known = {item.nodeid for item in self.collection.items}
        if lost := [nodeid for nodeid in nodeids if nodeid not in known]:
            raise WorkerDied(f"{lost[0]} can no longer be collected: see {self._log}")
        self._worker.send({"nodeids": list(nodeids)})
        done = read_pass(self._worker.receive(deadline))
        self._check_import(done)
        return done

    def _check_import(self, done: Pass) -> None:
        """A test that imports the user's own copy would judge the wrong code, silently."""
        expected = str((self.checkout.root / self.checkout.kernel).resolve())
        if expected in done.modules:
            return
        if done.modules:
            raise WrongImport(
                f"the tests import {done.modules[0]}, not {expected}: an installed copy hides the "
                "checkout; uninstall it, or let the tests find the kernel through pytest's "
                "pythonpath setting"
            )
        if any(test.outcome == "passed" for test in done.tests):
            raise WrongImport(
                f"the tests never import {self.checkout.kernel}: name those that do with --tests"
            )

    def close(self) -> None:
        """End the session."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._worker.kill()


def deadline_in(seconds: float) -> float:
    """A deadline on the clock of `time.monotonic`."""
    return time.monotonic() + seconds
