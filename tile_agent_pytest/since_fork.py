"""What a worker has imported itself: the last few of some thousand modules.

The fork server imports nothing of the user's. Who looks for the kernel's module, or for a helper of
the tests, need not look at what was there before the fork; to look at a module is to copy the page
that counts its references.
"""

from __future__ import annotations

import itertools
import sys

_last: list[str] = []
"""The name of the module that was there last; none: nothing was marked."""


def mark() -> None:
    """What is imported now is the fork server's."""
    _last[:] = [next(reversed(sys.modules))]


def names() -> list[str]:
    """What has been imported since, in that order; everything where nothing was marked, or where
    the module that was last has been taken out."""
    found = itertools.takewhile(lambda name: name not in _last, reversed(sys.modules))
    return [*found][::-1]
