"""As many processes at work as there are processors, of all the workers of a server together.

Workers that tune compile their configs in forks, and know nothing of each other: eight of them on
sixteen processors had each compiler run at a fourth of its speed, and past the time that cuTile's
search allows it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

_LOOK_S = 0.01


class ProcessorSlots:
    """Slots that a process and its forks share. Who ends, in whatever way, has left its own.

    Args:
        count: of slots.
    """

    def __init__(self, count: int) -> None:
        self._count = max(1, count)
        self._file = os.memfd_create("processor-slots")

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Wait for a slot, and have it while the block lasts; in forks only. Where the system locks
        nothing, nobody waits."""
        try:
            place = self._taken()
        except OSError:
            yield
            return
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)

    def _taken(self) -> int:
        while True:
            for number in range(self._count):
                place = (os.getpid() + number) % self._count
                with contextlib.suppress(BlockingIOError):
                    fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                    return place
            time.sleep(_LOOK_S)
