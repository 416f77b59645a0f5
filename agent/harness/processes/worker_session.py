"""A live worker over one checkout, asked for passes of its frozen tests."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent.errors import WorkerDied, WrongImport
from agent.harness.processes.collection_errors import fault
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import (
    Collection,
    Pass,
    read_collection,
    read_latencies,
    read_pass,
    understood,
)


@dataclass(frozen=True)
class Checkout:
    """A commit on disk, and how Python finds its modules."""

    root: Path
    sys_path: tuple[Path, ...]
    kernel: str
    """Path of the kernel below `root`."""


@dataclass(frozen=True)
class Stop:
    """Where a stepped run waits: inside the `tile_bench` call of a test."""

    nodeid: str
    config: str


@dataclass(frozen=True)
class PreparedTiming:
    """How a stopped test's callable will be timed."""

    method: str
    """Name of the sampler, for the other arm to use the same."""
    label: str
    estimate_ms: float
    launched: bool
    """Whether the callable launched a kernel of the file."""


class WorkerSession:
    """A pytest session over a checkout. Use it in a `with`; it ends with the block."""

    def __init__(
        self,
        server: ForkServer,
        checkout: Checkout,
        log: Path,
        *,
        arguments: Sequence[str],
        tests: Sequence[str] | None,
        detect_launches: bool = False,
        repeat: bool = False,
    ) -> None:
        """Start the session; it collects while the caller goes on.

        Args:
            server: forks the worker.
            checkout: what to run.
            log: file for the worker's output.
            arguments: for pytest: files, node ids, `-k`.
            tests: node ids to keep, in this order; all when None.
            detect_launches: look whether each test launches a kernel of the file, which makes
                launches slower.
            repeat: have each launch of Triton's interpreter repeated, and note what differs.
        """
        self.checkout = checkout
        self._log = log
        self._collection: Collection | None = None
        self._worker = server.fork(
            {
                "cwd": str(checkout.root),
                "sys_path": [str(path) for path in checkout.sys_path],
                "log": str(log),
                "args": [f"--rootdir={checkout.root}", *arguments],
                "tests": None if tests is None else list(tests),
                "kernel": checkout.kernel,
                "detect_launches": detect_launches,
                "repeat": repeat,
                "tuned": str(log.parent / "tuned" / _digest(checkout)),
                "env": {"PYTHONPATH": ":".join(str(path) for path in checkout.sys_path)},
            }
        )

    def collection(self, deadline: float) -> Collection:
        """What pytest found, once it has.

        Raises:
            WorkerTimedOut: the collection passed the deadline.
            WorkerDied: it ended without an answer, or pytest refused the arguments.
        """
        if self._collection is None:
            message = self._worker.receive(deadline)
            if message.get("event") == "ended":
                self._worker.close()
                said = fault(self._log.read_text("utf-8", "replace"), self.checkout.root)
                said = said or f"pytest ended with exit code {message.get('code')}"
                raise WorkerDied(f"{said} (see {self._log})")
            with understood():
                self._collection = read_collection(message)
        return self._collection

    def run(self, nodeids: Sequence[str], deadline: float) -> Pass:
        """One pass over the given tests.

        Raises:
            WorkerTimedOut: the deadline passed.
            WorkerDied: the worker ended, or a test is not there any more.
            WrongImport: the kernel was imported from another file than this checkout's.
        """
        self._order(nodeids, deadline, stepped=False)
        return self._finished(self._worker.receive(deadline))

    # --- stepped: block by block, in the `tile_bench` calls of the tests --------------------------

    def begin(self, nodeids: Sequence[str], deadline: float) -> None:
        """Start a pass that waits in every `tile_bench` call for orders. Raises as `run`."""
        self._order(nodeids, deadline, stepped=True)

    def next_stop(self, deadline: float) -> Stop | Pass:
        """Where the pass waits now, or the whole pass when it is over. Raises as `run`."""
        message = self._worker.receive(deadline)
        with understood():
            if message["event"] == "at":
                return Stop(str(message["nodeid"]), str(message["config"]))
        return self._finished(message)

    def prepare(self, method: str | None, deadline: float) -> PreparedTiming | str:
        """Have the callable compiled and its sampler chosen; the error's text if that fails."""
        self._worker.send({"op": "prepare", "method": method})
        answer = self._worker.receive(deadline)
        with understood():
            if answer["event"] != "prepared":
                raise WorkerDied(_early_end(answer))
            if "error" in answer:
                return str(answer["error"])
            (estimate_ms,) = read_latencies([answer["estimate_ms"]], 1)
            return PreparedTiming(
                str(answer["method"]), str(answer["label"]), estimate_ms, bool(answer["launched"])
            )

    def block(self, count: int, deadline: float) -> tuple[float, ...]:
        """So many samples, in ms."""
        answer = self._ask({"op": "block", "count": count}, deadline)
        with understood():
            return read_latencies(answer["samples_ms"], count)

    def burst(self, count: int, deadline: float) -> None:
        """So many launches; it returns when they are over."""
        self._ask({"op": "burst", "count": count}, deadline)

    def go(self) -> None:
        """Let the test go on."""
        self._worker.send({"op": "go"})

    def _ask(self, request: dict[str, object], deadline: float) -> dict[str, Any]:
        self._worker.send(request)
        answer = self._worker.receive(deadline)
        with understood():
            if answer["event"] != request["op"]:
                raise WorkerDied(_early_end(answer))
        return answer

    def _order(self, nodeids: Sequence[str], deadline: float, *, stepped: bool) -> None:
        found = self.collection(deadline)
        known = {item.nodeid for item in found.items}
        if lost := [nodeid for nodeid in nodeids if nodeid not in known]:
            reasons = [fault(text, self.checkout.root, nodeid) for nodeid, text in found.errors]
            why = "".join(f": {reason}" for reason in reasons[:1])
            raise WorkerDied(f"{lost[0]} can no longer be collected{why} (see {self._log})")
        self._worker.send({"nodeids": list(nodeids), "stepped": stepped})

    def _finished(self, message: dict[str, Any]) -> Pass:
        with understood():
            done = read_pass(message)
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

    def kill(self) -> None:
        """End the worker at once."""
        self._worker.kill()

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
            self.kill()


def _early_end(message: dict[str, Any]) -> str:
    """A test ended where it should have waited: its callable failed."""
    if message["event"] == "failed":
        return f"{message['nodeid']}: {message['text']}"
    if message["event"] == "ran":
        bad = read_pass(message).not_passed()
        if bad:
            return f"{bad[0].nodeid}: {bad[0].headline}"
    return f"the worker answered {message['event']!r} out of turn"


def _digest(checkout: Checkout) -> str:
    """Names the kernel's text: a kept candidate is another commit, and the same code."""
    text = (checkout.root / checkout.kernel).read_bytes()
    return hashlib.sha256(text).hexdigest()[:16]


def deadline_in(seconds: float) -> float:
    """A deadline on the clock of `time.monotonic`."""
    return time.monotonic() + seconds
