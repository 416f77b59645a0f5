"""What is asked of every kernel of a file, where some may refuse: all reasons, in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from agent.analysis.common.subject import NotApplicable

MOST_REASONS = 4
"""Different ones that a refusal gives."""
LACKING = "looks for "
"""What a reason begins with that names what is not there at all."""

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


def edits_of_each(
    asked: Iterable[Asked], look: Callable[[Asked], Mapping[Any, Any]], otherwise: str
) -> dict[Any, Any]:
    """The edits of each that does not refuse, as `of_each` finds them."""
    edits: dict[Any, Any] = {}
    for found in of_each(asked, look, otherwise):
        edits |= found
    return edits


def all_refuse(reasons: Sequence[str], otherwise: str) -> NotApplicable:
    """One for all: each different reason, as far as a line has room; or what holds otherwise.

    Those of kernels that lack what an entry looks for come behind those of kernels that have it.
    """
    different = sorted(dict.fromkeys(reasons), key=lambda reason: reason.startswith(LACKING))
    told = different[:MOST_REASONS]
    if len(different) > MOST_REASONS:
        more = len(different) - MOST_REASONS
        told.append(f"and {more} more reason{'s' * (more > 1)}")
    return NotApplicable("; ".join(told) or otherwise)


def of_constants(kernel: str, refused: Mapping[str, str]) -> list[str]:
    """Why constants of a kernel stay, each different reason once: two by name, the rest counted.

    Args:
        kernel: its name.
        refused: constant -> the reason.
    """
    told = []
    for reason in dict.fromkeys(refused.values()):
        first, *others = (name for name, given in refused.items() if given == reason)
        more = [*others[:1], *([f"{len(others) - 1} more"] if len(others) > 1 else [])]
        listed = ", ".join([first, *more[:-1]]) + (f" and {more[-1]}" if more else "")
        told.append(f"{listed} of {kernel}: {reason}")
    return told
