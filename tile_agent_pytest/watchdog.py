"""Ends a worker that takes too much: memory before the machine swaps, processes before it stands.

The fork server looks at all that its workers have started a few times a second. No limit of the
kernel does this for root, for all processes of a tree together, or beside CUDA, which reserves
addresses by the terabyte.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from tile_agent_pytest.process_tree import children

PERIOD_S = 0.25
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SHARE = 0.75
"""Of the machine's memory, or of what its container may take, that all workers may take."""


def overrun(pids: Iterable[int], memory_bytes: int, processes: int) -> tuple[int, str] | None:
    """The worker to end, and why; None while all is well.

    Args:
        pids: the workers.
        memory_bytes: the most that they may take together; the largest is to end.
        processes: the most that one may have started.
    """
    taken: dict[int, int] = {}
    for pid in pids:
        members = tree(pid)
        if len(members) > processes:
            return pid, f"it had started {len(members)} processes; {processes} are allowed"
        taken[pid] = sum(map(memory_of, members))
    if taken and sum(taken.values()) > memory_bytes:
        largest = max(taken, key=lambda pid: taken[pid])
        return largest, (
            f"it had taken {_mib(taken[largest])} of memory; all workers together may take "
            f"{_mib(memory_bytes)}"
        )
    return None


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found, known = [pid], {pid}
    for member in found:
        for child in children(member):
            if child not in known:
                known.add(child)
                found.append(child)
    return found


def memory_of(pid: int) -> int:
    """Bytes of its own that a process has in memory; 0 when it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(resident) - int(shared)) * _PAGE_BYTES
    return 0


def allowed_bytes() -> int:
    """What workers may take where nobody says."""
    most = [os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES]
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # 'max', where there is no limit
            most.append(int(Path(name).read_text()))
    return int(min(most) * _SHARE)


def _mib(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"
