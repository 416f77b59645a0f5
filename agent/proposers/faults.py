"""Faults of an entry, as one more reason why it does not apply: the others go on."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.analysis.common.subject import NotApplicable

MOST_CHARACTERS = 200
"""Of what an exception says; some quote the file."""
_PACKAGE = Path(__file__).parents[1]


class EntryFault(NotApplicable):
    """An entry ended with an exception: it met code that it does not understand."""


@contextmanager
def faults_as_refusals() -> Iterator[None]:
    """Have whatever an entry raises refuse the kernel, with the place in our own code.

    Raises:
        EntryFault: in place of any exception but `NotApplicable`.
    """
    try:
        yield
    except NotApplicable:
        raise
    except Exception as fault:
        raise EntryFault(
            f"a fault of tile-agent ({_place(fault)}: {_said(fault)}); please report it, with the "
            "kernel"
        ) from fault


def _place(fault: Exception) -> str:
    """The innermost line of our own that was under way."""
    for frame in reversed(traceback.extract_tb(fault.__traceback__)):
        if Path(frame.filename).is_relative_to(_PACKAGE):
            place = Path(frame.filename).relative_to(_PACKAGE.parent)
            return f"{place.as_posix()}:{frame.lineno}"
    return "outside of it"


def _said(fault: Exception) -> str:
    text = " ".join(f"{type(fault).__name__}: {fault}".split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
