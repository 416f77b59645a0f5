"""A live worker over one checkout, asked for passes of its frozen tests."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from agent.errors import CallFailed, WorkerDied, WorkerError, WrongImport
from agent.harness.processes.collection_errors import fault, fault_of_log
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.kept_folders import KeptFolders
from agent.harness.processes.results import (
    Collection,
    ExaminedCall,
    Pass,
    PreparedTiming,
    Stop,
    TimedBlock,
    read_call,
    read_collection,
    read_latencies,
    read_pass,
    understood,
)
from tile_agent_pytest.examining.calls import ArgumentLayout


class PassLooks(TypedDict, total=False):
    """What a pass over tests tells besides their outcomes; nothing that is not asked for."""

    records: bool
    """The tests' calls of the kernel's file, which are kept, see `WorkerSession.laid_out`."""
    observes: bool
    """What the kernels were launched with."""
    timed: bool
    """What the tests time with functions that are known."""


@dataclass(frozen=True)
class Checkout:
    """A commit on disk, and how Python finds its modules."""

    root: Path
    sys_path: tuple[Path, ...]
    kernel: str
    """Path of the kernel below `root`."""


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
        kept = KeptFolders.of(log.parent, checkout.root / checkout.kernel, server.environment)
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
                "tuned": str(kept.tuned),
                "env": {
                    "PYTHONPATH": ":".join(str(path) for path in checkout.sys_path),
                    **kept.variables(),
                },
            },
            write=(kept.tuned, kept.caches),
        )

    def collection(self, deadline: float) -> Collection:
        """What pytest found, once it has.

        Raises:
            WorkerTimedOut: the collection passed the deadline.
            WorkerDied: it ended without an answer, or pytest refused the arguments.
        """
        if self._collection is None:
            try:
                message = self._worker.receive(deadline)
            except WorkerDied as ended:  # before pytest had begun, so that nobody else tells why
                said = fault_of_log(self._log, self.checkout.root)
                raise WorkerDied(f"{ended}: {said} (see {self._log})" if said else ended) from None
            if message.get("event") == "ended":
                self._worker.close()
                said = fault_of_log(self._log, self.checkout.root)
                said = said or f"pytest ended with exit code {message.get('code')}"
                raise WorkerDied(f"{said} (see {self._log})")
            with understood():
                self._collection = read_collection(message)
        return self._collection

    def run(self, nodeids: Sequence[str], deadline: float, **looks: Unpack[PassLooks]) -> Pass:
        """One pass over the given tests: `order` and `fetch`."""
        self.order(nodeids, deadline, **looks)
        return self.fetch(deadline)

    def order(self, nodeids: Sequence[str], deadline: float, **looks: Unpack[PassLooks]) -> None:
        """Have a pass over the given tests begin; `fetch` waits for its end.

        Args:
            nodeids: of the tests.
            deadline: for the collection, where that goes on still.
            looks: what it tells besides their outcomes.

        Raises:
            WorkerTimedOut: the deadline passed.
            WorkerDied: the worker ended, or a test is not there any more.
        """
        self._order(nodeids, deadline, stepped=False, **looks)

    def has_answer(self) -> bool:
        """Whether `fetch` would not wait: the pass is over, or the worker has ended."""
        return self._worker.has_message()

    def fetch(self, deadline: float) -> Pass:
        """The pass that was ordered, once it is over.

        Raises:
            WorkerTimedOut: the deadline passed.
            WorkerDied: the worker ended.
            WrongImport: the kernel was imported from another file than this checkout's.
        """
        return self._finished(self._worker.receive(deadline))

    # --- stepped: block by block, where the tests time something ---------------------------------

    def begin(self, nodeids: Sequence[str], deadline: float, **looks: Unpack[PassLooks]) -> None:
        """Start a pass that waits for orders wherever a test times something. Raises as `order`."""
        self._order(nodeids, deadline, stepped=True, **looks)

    def next_stop(self, deadline: float) -> Stop | Pass:
        """Where the pass waits now, or the whole pass when it is over. Raises as `fetch`."""
        message = self._worker.receive(deadline)
        with understood():
            if message["event"] == "at":
                where = (message["nodeid"], message["config"], message["through"])
                return Stop(*map(str, where))
        return self._finished(message)

    def finish(self, stop: Stop | Pass, deadline: float) -> Pass:
        """Let the tests go on to their end from where they wait, and time nothing."""
        while isinstance(stop, Stop):
            self.go()
            stop = self.next_stop(deadline)
        return stop

    def prepare(
        self, method: str | None, deadline: float, processor: int | None = None
    ) -> PreparedTiming | str:
        """Have the callable compiled and its sampler chosen; the error's text if that fails.

        Args:
            method: the name of a sampler's class; chosen by the worker if not given.
            deadline: for the answer.
            processor: where it is timed without a GPU; where it runs already if not given.
        """
        self._worker.send({"op": "prepare", "method": method, "processor": processor})
        answer = self._worker.receive(deadline)
        with understood():
            if answer["event"] != "prepared":
                raise WorkerDied(_early_end(answer))
            if "error" in answer:
                return str(answer["error"])
            (estimate_ms,) = read_latencies([answer["estimate_ms"]], 1)
            return PreparedTiming(
                str(answer["method"]),
                str(answer["label"]),
                estimate_ms,
                bool(answer["launched"]),
                int(answer["launches_per_call"]),
                int(answer["skipped_launches"]),
                bool(answer["calls"]),
                int(answer["children"]),
                None if answer["processor"] is None else int(answer["processor"]),
            )

    def block(self, count: int, deadline: float) -> TimedBlock:
        """So many samples, in ms."""
        return _timed(self._ask({"op": "block", "count": count}, deadline), count)

    def pick(self, seed: int, calls: int, deadline: float) -> TimedBlock:
        """So many timed calls on the bytes of a seed; the last one's result is kept."""
        return _timed(self._ask({"op": "pick", "seed": seed, "count": calls}, deadline), calls)

    def show(self, deadline: float) -> ExaminedCall:
        """Where the results of the picked call lie."""
        answer = self._ask({"op": "show"}, deadline)
        with understood():
            return read_call(answer)

    def examine(
        self,
        seed: int | None,
        deadline: float,
        *,
        poison: Sequence[str] = (),
        jitter: bool = False,
        special: bool = False,
        idle: bool = False,
        fill: int | None = None,
        unseen: bool = False,
    ) -> ExaminedCall:
        """One call that is not timed, on the bytes of a seed or, without one, of the test.

        Args:
            seed: says how the inputs differ from the test's.
            deadline: for the answer.
            poison: written tensors whose bytes are spoilt before.
            jitter: with other last bits in the inputs of type float32.
            special: with rows of zeros, of tiny and of large values.
            idle: launch nothing.
            fill: byte that memory holds before anything is written to it; anything if not given.
            unseen: as anybody would call it: nothing is watched, and only results are told.
        """
        request: dict[str, object] = {
            "op": "examine",
            "seed": seed,
            "poison": list(poison),
            "jitter": jitter,
            "special": special,
            "idle": idle,
            "fill": fill,
            "unseen": unseen,
        }
        answer = self._ask(request, deadline)
        with understood():
            return read_call(answer)

    @contextmanager
    def laid_out(self, call: int, layout: ArgumentLayout, deadline: float) -> Iterator[None]:
        """Wait before a call of the last recorded pass, in another layout, for `examine`.

        Args:
            call: its place among those that the worker keeps.
            layout: how its arguments differ from those of the test.
            deadline: for whatever the worker has to do.

        Raises:
            CallFailed: the call raised; the worker goes on.
            WorkerDied: the worker ended.
        """
        self._worker.send(
            {
                "call": call,
                "sizes": [list(pair) for pair in layout.sizes],
                "pitch": layout.pitch,
                "offset": layout.offset,
            }
        )
        answer = self._worker.receive(deadline)
        if answer.get("event") != "at":
            raise WorkerDied(_early_end(answer))
        try:
            yield
        except CallFailed:
            self._await_end(deadline)
            raise
        except WorkerError:
            raise
        except BaseException:
            self.go()
            self._await_end(deadline)
            raise
        self.go()
        self._await_end(deadline)

    def _await_end(self, deadline: float) -> None:
        while (answer := self._worker.receive(deadline)).get("event") != "called":
            if answer.get("event") == "failed":
                raise WorkerDied(_early_end(answer))

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
            if answer["event"] == "failed":
                raise CallFailed(_early_end(answer))
            if answer["event"] != request["op"]:
                raise WorkerDied(_early_end(answer))
        return answer

    def _order(self, nodeids: Sequence[str], deadline: float, **kind: object) -> None:
        found = self.collection(deadline)
        known = {item.nodeid for item in found.items}
        if lost := [nodeid for nodeid in nodeids if nodeid not in known]:
            reasons = [fault(text, self.checkout.root, nodeid) for nodeid, text in found.errors]
            why = "".join(f": {reason}" for reason in reasons[:1])
            raise WorkerDied(f"{lost[0]} can no longer be collected{why} (see {self._log})")
        self._worker.send({"nodeids": list(nodeids), **kind})

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


def _timed(answer: dict[str, Any], count: int) -> TimedBlock:
    with understood():
        samples_ms = read_latencies(answer["samples_ms"], count)
        return TimedBlock(samples_ms, int(answer["launches"]), int(answer["children"]))


def _early_end(message: dict[str, Any]) -> str:
    """A test ended where it should have waited: its callable failed."""
    if message["event"] == "failed":
        return f"{message['nodeid']}: {message['text']}"
    if message["event"] == "ran":
        bad = read_pass(message).not_passed()
        if bad:
            return f"{bad[0].nodeid}: {bad[0].headline}"
    return f"the worker answered {message['event']!r} out of turn"


def deadline_in(seconds: float) -> float:
    """A deadline on the clock of `time.monotonic`."""
    return time.monotonic() + seconds
