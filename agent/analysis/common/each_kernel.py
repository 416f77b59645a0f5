"""What is asked of every kernel of a file, where some may refuse: all reasons, in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from agent.analysis.common.subject import NotApplicable

MOST_REASONS = 4
"""Different ones that a refusal gives."""

Asked = TypeVar("Asked")
Found = TypeVar("Found")


def of_each(asked: Iterable[Asked], look: Callable[[Asked], Found], otherwise: str) -> list[Found]:
    """What is found in each that does not refuse, and is not empty.

    Args:
        asked: the kernels, or their loops.
        look: finds it, or raises `NotApplicable`.
        otherwise: the reason where there is nothing to ask.

    Raises:
        NotApplicable: nothing is found, with the reasons of all.
    """
    found: list[Found] = []
    reasons: list[str] = []
    for one in asked:
        try:
            if part := look(one):
                found.append(part)
        except NotApplicable as reason:
            reasons.append(str(reason))
    if not found:
        raise all_refuse(reasons, otherwise)
    return found


def all_refuse(reasons: Sequence[str], otherwise: str) -> NotApplicable:
    """One for all: each different reason, as far as a line has room; or what holds otherwise."""
    different = list(dict.fromkeys(reasons))
    told = different[:MOST_REASONS]
    if len(different) > MOST_REASONS:
        told.append(f"and {len(different) - MOST_REASONS} more reasons")
    return NotApplicable("; ".join(told) or otherwise)
