"""Locks that git left on refs because it was killed: each keeps every later git from that ref.

Git takes its locks away whatever ends it, but for SIGKILL and a machine that stops.
"""

from __future__ import annotations

import time
from pathlib import Path

_ALIVE_S = 3.0
"""Longer than a git that is alive holds the lock on a ref."""
_POLL_S = 0.05


def drop_below(folder: Path) -> None:
    """Remove the locks on all refs of a folder, whose only writer is the caller."""
    for lock in folder.rglob("*.lock"):
        if lock.is_file():
            lock.unlink(missing_ok=True)


def drop_from(ref: Path) -> None:
    """Remove the lock on a ref that others write, too: one that stays for a while is nobody's."""
    lock = ref.with_name(f"{ref.name}.lock")
    end = time.monotonic() + _ALIVE_S
    while lock.is_file():
        if time.monotonic() > end:
            lock.unlink(missing_ok=True)
        time.sleep(_POLL_S)
