"""A live worker over one checkout, asked for passes of its frozen tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from agent.errors import WorkerDied, WrongImport
from agent.harness.processes.call_orders import CallOrders
from agent.harness.processes.collection import Collection, read_collection
from agent.harness.processes.collection_errors import fault, fault_of_log
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.kept_folders import KeptFolders
from agent.harness.processes.results import (
    Pass,
    Stop,
    read_pass,
    understood,
)

Telling = Callable[[int, str], None]
"""Told that a test begins, after how many that are done."""
MOST_ACCOUNTS = 20
"""Of failures of one pass, that are written to the log."""


class PassLooks(TypedDict, total=False):
    """What a pass over tests tells besides their outcomes; nothing that is not asked for."""

    records: bool
    """The tests' calls of the kernel's file, which are kept, see `WorkerSession.laid_out`."""
    observes: bool
    """What the kernels were launched with."""
    timed: bool
    """What the tests time with functions that are known."""
    as_timed: bool
    """What tunes itself chooses as where it is timed, though nothing is."""
    short: bool
    """What tunes itself takes less for a choice, see `tile_agent_pytest.tuning_effort`."""
    within_s: float
    """After how long no further test is begun; the answer then lacks the others. One is begun in
    any case."""


@dataclass(frozen=True)
class Checkout:
    """A commit on disk, and how Python finds its modules."""

    root: Path
    sys_path: tuple[Path, ...]
    kernel: str
    """Path of the kernel below `root`."""

    def has_module(self, name: str) -> bool:
        """Whether it has one of that name, or its package: then it is no matter of installing."""
        top = name.partition(".")[0]
        folders = (self.root, *self.sys_path)
        return any((f / top).exists() or (f / f"{top}.py").exists() for f in folders)

    def beside(self, file: str, name: str) -> str:
        """The path of a module of that name in the folder of a file; empty where there is none."""
        top, folder = name.partition(".")[0], (self.root / file).parent
        found = next((p for p in (folder / f"{top}.py", folder / top) if p.exists()), None)
        return found.relative_to(self.root).as_posix() if found else ""


class WorkerSession(CallOrders):
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
        opens_gpu: bool = False,
        keywords: Sequence[str] = (),
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
            opens_gpu: have it open the GPU, if there is one, before it waits for orders.
            keywords: expressions for `-k`; the collection is to say what each would choose.
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
                "opens_gpu": opens_gpu,
                "keywords": [*keywords],
                "tuned": str(kept.tuned),
                "tuned_first": str(kept.first_tuned),
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

    def run(
        self,
        nodeids: Sequence[str],
        deadline: float,
        tell: Telling | None = None,
        **looks: Unpack[PassLooks],
    ) -> Pass:
        """One pass over the given tests: `order` and `fetch`; `tell` is called as each begins."""
        if tell is None:
            self.order(nodeids, deadline, **looks)
            return self.fetch(deadline)
        self._order(nodeids, deadline, stepped=False, tells=True, **looks)
        return self._finished(self._told(nodeids, deadline, tell))

    def _told(self, nodeids: Sequence[str], deadline: float, tell: Telling) -> dict[str, Any]:
        """The answer behind what tells that tests begin: of that only the number is believed."""
        message = self._worker.receive(deadline)
        for done, nodeid in enumerate(nodeids):
            if message.get("event") != "begins":
                break
            tell(done, nodeid)
            message = self._worker.receive(deadline)
        return message

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
        self._write_down(done)
        self._check_import(done)
        return done

    def _write_down(self, done: Pass) -> None:
        """Why tests failed: pytest would print it at the end of a session, which is killed."""
        failed = [test for test in done.tests if test.outcome == "failed"]
        if not failed:
            return
        with self._log.open("a", encoding="utf-8", errors="backslashreplace") as log:
            for test in failed[:MOST_ACCOUNTS]:
                log.write(f"\n\n{test.nodeid} fails:\n{test.text}\n")

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
        """End the worker at once, and wait until it has."""
        self._worker.kill()

    def abandon(self) -> None:
        """End the worker at once; what it holds of the GPU is free a second later."""
        self._worker.abandon()

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


def deadline_in(seconds: float) -> float:
    """A deadline on the clock of `time.monotonic`."""
    return time.monotonic() + seconds


TUNERS = (b"autotune", b"exhaustive_search", b"libtuner")
"""What the text of a kernel holds that tunes itself: nothing else may run while it times that."""


def tunes_itself(checkout: Checkout) -> bool:
    """Whether its text says so. Where it hides that, it chooses beside another's compiler."""
    text = (checkout.root / checkout.kernel).read_bytes()
    return any(tuner in text for tuner in TUNERS)


def tunes_for_other_tests(checkout: Checkout) -> bool:
    """Whether what it chooses in one test may be what another is timed with.

    What cuTile's search chooses is held for the test that it was made in, and what Triton's tuner
    chooses in a correctness test is forgotten, see `tile_agent_pytest.tuned`. Of others, as
    FlagGems' with a database of its own, nobody knows.
    """
    text = (checkout.root / checkout.kernel).read_bytes()
    if b"triton" in text:
        text = text.replace(b"triton.autotune", b"")
        return any(tuner in text for tuner in TUNERS)
    return tunes_itself(checkout) and b"exhaustive_search" not in text


def chooses_roughly(checkout: Checkout) -> bool:
    """Whether what it launches in a correctness test need not be what is timed."""
    text = (checkout.root / checkout.kernel).read_bytes()
    return tunes_itself(checkout) and (b"triton" in text or b"exhaustive_search" in text)


def can_choose_later(checkout: Checkout) -> bool:
    """Whether what it tunes with can be told to compile first, and to choose later.

    Triton's tuner can, or one made of it; cuTile's search takes what is known, or is put off.
    FlagGems' keeps choices of its own, and would keep what it chose beside others.
    """
    text = (checkout.root / checkout.kernel).read_bytes()
    return chooses_roughly(checkout) and b"libtuner" not in text
