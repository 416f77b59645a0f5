"""When an interruption is raised: at once, or as soon as what must not be cut in two is over.

Signal handlers run in the main thread alone, so that only what that one is at can be cut in two.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from agent.errors import Interrupted

_whole = 0
"""How many blocks that are to be done whole the main thread is in."""
_waiting = 0
"""The signal that came meanwhile; 0 where none did."""


def interrupt(number: int, _frame: FrameType | None) -> None:
    """End the process cleanly, to be resumed: the handler of SIGINT, SIGTERM and SIGHUP.

    A second signal waits for nothing.

    Raises:
        Interrupted: unless the main thread is in a block that is done whole.
    """
    global _waiting
    if _whole and not _waiting:
        _waiting = number
        return
    _waiting = 0
    raise Interrupted(by=number)


@contextmanager
def done_whole() -> Iterator[None]:
    """A block that an interruption does not cut in two: a command that nobody would wait for.

    Raises:
        Interrupted: one came meanwhile (at the block's end).
    """
    global _whole, _waiting
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _whole += 1
    try:
        yield
    finally:
        _whole -= 1
        if _waiting and not _whole:
            number, _waiting = _waiting, 0
            raise Interrupted(by=number)
