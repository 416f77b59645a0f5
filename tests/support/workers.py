"""Small projects on disk, and arms over them: real pytest in real forked workers, no GPU."""

from __future__ import annotations

import itertools
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from agent.harness.processes.collection import Collection
from agent.harness.processes.confinement import Confinement
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import Pass
from agent.harness.processes.worker_session import Checkout, WorkerSession, deadline_in
from tests.support.warm_python import warm_interpreter

KERNEL = "def answer():\n    return 42\n"
TEST = "from kernel import answer\n\n\ndef test_answer():\n    assert answer() == 42\n"
_numbers = itertools.count(1)


class Project:
    """A checkout with a `kernel.py` and tests in `test_kernel.py`."""

    def __init__(self, root: Path, test: str = TEST, kernel: str = KERNEL) -> None:
        self.root = root
        self.write("kernel.py", kernel)
        self.write("test_kernel.py", test)

    def write(self, name: str, text: str) -> None:
        """Write a file below the root; the text may be indented."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def checkout(self, *sys_path: str, kernel: str = "kernel.py") -> Checkout:
        """The project, imported from these folders; from its root when none is given."""
        return Checkout(self.root, tuple(self.root / p for p in sys_path or (".",)), kernel)

    def log(self) -> Path:
        """A fresh file for a worker's output, outside the checkout."""
        return self.root.parent / f"{self.root.name}-{next(_numbers):04d}.log"

    def arm(
        self,
        server: ForkServer,
        *arguments: str,
        checkout: Checkout | None = None,
        tests: Sequence[str] | None = None,
        timeout_s: float = 60.0,
    ) -> WorkerSession:
        """A worker that has collected the project."""
        arm = WorkerSession(
            server,
            checkout or self.checkout(),
            self.log(),
            arguments=arguments or ["test_kernel.py"],
            tests=tests,
        )
        arm.collection(deadline_in(timeout_s))
        return arm

    def run(self, server: ForkServer, *arguments: str, timeout_s: float = 60.0) -> Pass:
        """One pass over everything, in a worker of its own."""
        with self.arm(server, *arguments, timeout_s=timeout_s) as arm:
            return arm.run(nodeids(arm), deadline_in(timeout_s))


def collected(arm: WorkerSession) -> Collection:
    """What an arm of `Project.arm` has collected."""
    return arm.collection(deadline_in(0))


def nodeids(arm: WorkerSession) -> list[str]:
    """The tests of an arm of `Project.arm`."""
    return [item.nodeid for item in collected(arm).items]


def start_server(
    log: Path, *, python: str = "", write: Sequence[Path] = (), **environment: str
) -> ForkServer:
    """A fork server, of a warm interpreter where none is named.

    Its workers are confined; `write` is what they may write besides, to tell the test something.
    """
    confinement = Confinement(write=tuple(write))
    return ForkServer(python or warm_interpreter(), environment, log, confinement=confinement)


def descendants(pid: int) -> set[int]:
    """Every process below this one that is more than a zombie."""
    return {p.pid for p in psutil.Process(pid).children(recursive=True) if alive(p.pid)}


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def eventually(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
