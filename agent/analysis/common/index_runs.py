"""Runs of element numbers in a kernel, as `block * TILE + arange(TILE)`, in either language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import libcst as cst


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
