"""Workers that take all they can get: each ends in time, whole, and the next one works."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator

import pytest

from agent.errors import WorkerDied, WorkerTimedOut
from agent.harness.processes.confinement import Confinement, Limits
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.worker_session import deadline_in
from tests.support.workers import Project, descendants, eventually, nodeids

MIB = 2**20
SOON_S = 30.0
"""The time that a worker has to be gone in, after its deadline or after it went over a limit."""


@pytest.fixture(autouse=True)
def _the_next_one_works(project: Project, server: ForkServer) -> Iterator[None]:
    """After each of these nothing is left, and the same server runs another test."""
    confinement = server.confinement
    yield
    assert eventually(lambda: not descendants(server.pid), SOON_S), descendants(server.pid)
    server.confinement = confinement
    project.write(
        "test_kernel.py", "from kernel import answer\ndef test(): assert answer() == 42\n"
    )
    assert [test.outcome for test in project.run(server).tests] == ["passed"]


def limited(server: ForkServer, **limits: int) -> None:
    """Lower the limits of the next worker."""
    server.confinement = Confinement(limits=Limits(**limits))


def died(project: Project, server: ForkServer, body: str) -> str:
    """How the worker of a project with this test file ended, soon."""
    project.write("test_kernel.py", "import kernel\n" + textwrap.dedent(body))
    begin = time.monotonic()
    with pytest.raises(WorkerDied) as caught, project.arm(server) as arm:
        every = nodeids(arm)  # how long it takes to start and to collect is another question
        begin = time.monotonic()
        arm.run(every, deadline_in(60))
    assert time.monotonic() - begin < SOON_S
    return str(caught.value)


def timed_out(project: Project, server: ForkServer, body: str, timeout_s: float) -> None:
    """A worker of a project with this test file passes its deadline, and is gone soon."""
    project.write("test_kernel.py", "import kernel\n" + textwrap.dedent(body))
    begin = time.monotonic()
    with pytest.raises(WorkerTimedOut):
        project.run(server, timeout_s=timeout_s)
    assert time.monotonic() - begin < timeout_s + SOON_S


def test_memory(project: Project, server: ForkServer) -> None:
    limited(server, memory_bytes=1024 * MIB)
    body = """
        def test():
            taken = []
            while len(taken) < 64:
                taken.append(b"x" * (64 * 2**20))
    """
    how = died(project, server, body)
    assert "killed by SIGKILL: it had taken 1" in how
    assert how.endswith(" MiB of memory; all workers together may take 1024 MiB")


def test_memory_of_children(project: Project, server: ForkServer) -> None:
    """The worker itself takes little: what it has started counts."""
    limited(server, memory_bytes=1024 * MIB)
    body = """
        import subprocess, sys, time
        def test():
            hungry = "import time; taken = b'x' * (600 * 2**20); time.sleep(60)"
            for _ in range(2):
                subprocess.Popen([sys.executable, "-c", hungry], start_new_session=True)
            time.sleep(60)
    """
    assert "of memory" in died(project, server, body)


def test_a_fork_bomb(project: Project, server: ForkServer) -> None:
    limited(server, processes=12)
    body = """
        import os, time
        def test():
            while True:
                os.fork()
                time.sleep(0.1)
    """
    assert "processes; 12 are allowed" in died(project, server, body)


def test_a_chain_of_processes_that_each_outlive_their_parent(
    project: Project, server: ForkServer
) -> None:
    """None of them is a child of the worker for long, or in its session."""
    body = """
        import os, time
        def test():
            if os.fork() == 0:
                while True:
                    os.setsid() if os.getpid() != os.getsid(0) else None
                    if os.fork():
                        os._exit(0)
                    time.sleep(0.005)
            while True:
                time.sleep(1)
    """
    timed_out(project, server, body, 1.0)


def test_an_endless_loop_that_swallows_everything(project: Project, server: ForkServer) -> None:
    body = """
        import signal
        def test():
            for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_IGN)
            while True:
                try:
                    while True:
                        pass
                except BaseException:
                    pass
    """
    timed_out(project, server, body, 1.0)


def test_output_without_end(project: Project, server: ForkServer) -> None:
    limited(server, file_bytes=MIB)
    body = """
        def test():
            while True:
                print("x" * 100_000)
        def test_next(): pass
    """
    project.write("test_kernel.py", "import kernel\n" + textwrap.dedent(body))
    begin = time.monotonic()
    endless, other = project.run(server).tests
    assert time.monotonic() - begin < SOON_S
    assert (endless.outcome, endless.exception) == ("failed", "OSError")
    assert "File too large" in endless.headline
    assert other.outcome == "passed"


def test_output_without_end_into_the_log(project: Project, server: ForkServer) -> None:
    """Not captured, it goes where pytest itself writes, which then can write no more."""
    limited(server, file_bytes=MIB)
    body = """
        import os
        def test(capfd):
            with capfd.disabled():
                while True:
                    os.write(1, b"x" * 100_000)
    """
    assert "ended by itself" in died(project, server, body)
    logs = project.root.parent.glob(f"{project.root.name}-*.log")
    assert max(log.stat().st_size for log in logs) == MIB
