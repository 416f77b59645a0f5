"""Runs of element numbers in a kernel, as `block * TILE + arange(TILE)`, in either language."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import libcst as cst

from agent.syntax import Source


class NotRegular(Exception):
    """An index that is no run of elements; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Laid:
    """How a tile of indices with one dimension that is longer than one lies."""

    length: cst.BaseExpression | None = None
    """A compile-time constant; None for a single index, which is no tile."""
    place: int = 0
    """The dimension of the tile of indices that counts, from the right: 0 in `offsets[None, :]`."""
    rank: int = 1


Run = TypeVar("Run", bound=Laid)


@dataclass(frozen=True, kw_only=True)
class IndexRange(Laid):
    """The indices `sum(starts) + 0, 1, ... length - 1` along one axis of an array."""

    starts: tuple[cst.BaseExpression, ...]
    """What they begin at; each is a scalar."""


def indexed(source: Source, subscript: cst.Subscript, run: Run) -> Run:
    """`offsets[:, None]` and `offsets[None, :]`."""
    kinds = [element.slice for element in subscript.slice]
    news = [isinstance(k, cst.Index) and source.code(k.value) == "None" for k in kinds]
    wholes = [isinstance(k, cst.Slice) and not (k.lower or k.upper or k.step) for k in kinds]
    if run.rank != 1 or sum(wholes) != 1 or not all(map(bool.__or__, news, wholes)):
        raise NotRegular(f"`{source.code(subscript)}` does not count one by one")
    return replace(run, rank=len(kinds), place=len(kinds) - 1 - wholes.index(True))
