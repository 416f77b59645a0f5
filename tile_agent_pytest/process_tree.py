"""Processes and their descendants, as Linux knows them: found, adopted, killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PROCESSOR_CLOCK = 2
"""Of the kernel's three clocks of a process, the one that counts when it runs."""


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants. Stops them first, so that none forks meanwhile."""
    tree = [pid]
    for member in tree:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGSTOP)
        tree += [child for child in children(member) if child not in tree]
    for member in reversed(tree):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """Child processes of every thread of `pid`; empty when it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def running_children(pid: int) -> list[int]:
    """Those that have not ended: one that nobody has waited for yet runs nothing any more."""
    return [child for child in children(pid) if _state(child) not in ("", "Z", "X")]


def end_children(names: Collection[str] = ()) -> None:
    """Kill this process's children, with their descendants, and wait for them.

    Args:
        names: of the programs that are meant; all where there are none.
    """
    while found := [c for c in children(os.getpid()) if not names or _program(c) in names]:
        for child in found:
            kill_tree(child)
            with contextlib.suppress(ChildProcessError):  # somebody else has waited for it
                os.waitpid(child, 0)


def _state(pid: int) -> str:
    """Its letter in proc(5); empty when it is gone."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _program(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def variable_of(pid: int, name: str) -> str | None:
    """A variable that a process was started with; None when there is none, or no such process."""
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            known, _, value = entry.partition(b"=")
            if known.decode(errors="replace") == name:
                return value.decode(errors="replace")
    return None


@dataclass(frozen=True)
class ProcessorTimes:
    """What the system counts for a process; 0 where it does not tell."""

    on_ms: float = 0.0
    """How long its threads have been on a processor."""
    waited_ms: float = 0.0
    """How long its first thread has been ready to run, and waited for a processor."""

    def since(self, before: ProcessorTimes) -> ProcessorTimes:
        """What was added after `before`."""
        return ProcessorTimes(self.on_ms - before.on_ms, self.waited_ms - before.waited_ms)


def processor_times(pid: int) -> ProcessorTimes:
    """Read them.

    The clock is the one of `clock_getcpuclockid(3)`, which Python has for threads only.
    """
    on_ms = 0.0
    with contextlib.suppress(OSError, AttributeError):
        on_ms = time.clock_gettime_ns(~pid << 3 | _PROCESSOR_CLOCK) / 1e6
    return ProcessorTimes(on_ms, _waited_ms(f"/proc/{pid}/schedstat"))


def own_waited_ms() -> float:
    """How long this thread has been ready to run, and waited for a processor; 0: unknown."""
    return _waited_ms("/proc/thread-self/schedstat")


def _waited_ms(schedstat: str) -> float:
    """The second number of such a file, see the kernel's Documentation/scheduler/sched-stats."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(schedstat).read_text().split()[1]) / 1e6
    return 0.0


def become_subreaper() -> None:
    """Inherit descendants that lose their parent, instead of init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: signal.Signals) -> None:
    """Get this signal when the parent ends, however it ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def wake_on_child_exit() -> int:
    """A descriptor that becomes readable when a child has ended; reading it never blocks."""
    wakeup, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    return wakeup


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
