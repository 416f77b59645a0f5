"""Work in forks of this process, side by side, for what it leaves on disk.

Compilers hold Python's lock for a part of their time, or one of their own: in threads they wait for
each other.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

from tile_agent_pytest.process_tree import (
    become_subreaper,
    children,
    end_children,
    kill_tree,
)
from tile_agent_pytest.processor_slots import ProcessorSlots
from tile_agent_pytest.watchdog import allowed_bytes, memory_of, tree

MOST_S = 60.0
"""Where no task was done for so long, those that are left are ended."""
MOST_IN_ALL_S = 300.0
"""The same since the first of them was begun."""
MOST_FORKS = 16
_PROCESSORS = os.sched_getaffinity(0)
"""Those of this process; a thread that is timed stays on one of them."""
_SLOTS = ProcessorSlots(len(_PROCESSORS))
"""The server imports this, so that all of its workers share them."""
_SHARE = 0.5
"""Of the memory that is left to workers: what a fork shares with this process counts as its own."""
_LOOK_S = 0.01
MOST_TOLD = 2**16
"""Bytes that a pipe holds."""
_gave_up: list[int] = []
"""How many forks did not come to an end: with what holds them up, others would not either."""


def forks(wanted: int) -> int:
    """How many for so many tasks: each counts with all of this process's memory.

    Other workers, which the same server has forked, may want as many.
    """
    if _gave_up:
        return 0
    server = os.getppid()
    left_bytes = allowed_bytes() - sum(map(memory_of, tree(server)))
    room = int(_SHARE * left_bytes / max(memory_of(os.getpid()), 1))
    processors = len(_processors()) // min(max(1, len(children(server))), 2)
    return max(0, min(wanted, processors, MOST_FORKS, room))


def done_in_forks(
    tasks: Sequence[Callable[[], object]], begin: Callable[[], object] = lambda: None
) -> dict[int, bool]:
    """Do tasks in forks, where there is room for two at least.

    Args:
        tasks: each touches no GPU, which a fork cannot.
        begin: called in each fork before its first task.

    Returns:
        The places of those that were done, with the truth of what they returned; none where there
        is no room.
    """
    count = forks(len(tasks))
    if count < 2:
        return {}
    told, telling = os.pipe()
    running: set[int] = set()
    text = b""
    ends = time.monotonic() + MOST_IN_ALL_S
    deadline = time.monotonic() + MOST_S
    os.set_blocking(told, False)  # who else holds the other end is nobody to wait for
    with os.fdopen(told, "rb", buffering=0) as answers:
        try:
            with os.fdopen(telling, "wb"), _quietly():
                for first in range(count):
                    share = range(first, len(tasks), count)
                    running.add(_fork(tasks, share, begin, telling))
            while running and time.monotonic() < min(deadline, ends):
                for pid in list(running):
                    if _has_ended(pid, os.WNOHANG):
                        running.discard(pid)
                if more := answers.read(MOST_TOLD):
                    text += more
                    deadline = time.monotonic() + MOST_S
                time.sleep(_LOOK_S)
        finally:
            if running:
                _gave_up.append(len(running))
            for pid in running:
                kill_tree(pid)  # with the compiler that it has started
                _has_ended(pid, 0)
        text += answers.read(MOST_TOLD) or b""
        places = (line.split() for line in text.splitlines())
        return {int(place): returned == b"1" for place, returned in places}


def _processors() -> set[int]:
    return max(_PROCESSORS, os.sched_getaffinity(0), key=len)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Python warns of forks beside threads; a project may have warnings raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _has_ended(pid: int, options: int) -> bool:
    try:
        return os.waitpid(pid, options)[0] != 0
    except ChildProcessError:  # somebody else has waited for it
        return True


def _fork(
    tasks: Sequence[Callable[[], object]],
    share: Sequence[int],
    begin: Callable[[], object],
    telling: int,
) -> int:
    """A process that does a share, and tells the place of each task that is done, with its word."""
    if pid := os.fork():
        return pid
    try:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, _processors())
        become_subreaper()
        begin()
        for place in share:
            with contextlib.suppress(Exception):
                with _SLOTS.one():
                    returned = bool(tasks[place]())
                os.write(telling, b"%d %d\n" % (place, returned))
    finally:
        # A compiler that was given up may have left one of its own behind, which would run on
        # beside what this process's parent times.
        with contextlib.suppress(Exception):
            end_children()
        os._exit(0)
