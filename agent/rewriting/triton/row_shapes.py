"""Along what the values of a kernel with several rows a program have elements.

All its tiles get one dimension more, the first, and keep those that they have, with one element
along each that they are the same along. So one broadcasts them as they stand: what the source says
of where a run of numbers lies, `rows[:, None]`, goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.program_ids import one_block
from agent.analysis.triton.reduced_axes import expanded_axis, laid_along
from agent.syntax import Source, descendants, is_commented


class RowExtent(Flag):
    """Along what a value has more than one element."""

    NONE = 0
    ROWS = auto()
    FIRST = auto()
    SECOND = auto()
    """Dimensions of the tiles of one row; a kernel whose tiles have one knows the first alone."""
    FLAT = auto()
    """It has one dimension in the source, where others have two: it is laid along one of them
    before it meets those."""


DIMENSIONS = (RowExtent.FIRST, RowExtent.SECOND)


@dataclass(frozen=True)
class RowNames:
    """What the kernel calls what is new."""

    count: str
    """The parameter that says how many rows there are in all."""
    rows: str
    """The constant: how many a program has."""
    mask: str
    """Which of them exist."""


@dataclass(frozen=True)
class TileForm:
    """The tiles of one row."""

    blocks: tuple[str, ...]
    """The constants that are their lengths, one a dimension."""
    runs: Mapping[cst.Call, int]
    """`tl.arange` -> the dimension that it counts along."""

    @property
    def whole(self) -> RowExtent:
        """What a whole tile has elements along."""
        return RowExtent.FIRST if len(self.blocks) == 1 else RowExtent.FIRST | RowExtent.SECOND

    def laid(self, dimension: int) -> str:
        """What lays a run of numbers along a dimension: `[None, :]` along the only one."""
        kinds = [":" if place == dimension else "None" for place in range(len(self.blocks))]
        return f"[None, {', '.join(kinds)}]"

    @property
    def of_rows(self) -> str:
        """What lays a run of numbers along the rows: `[:, None]`."""
        return f"[:{', None' * len(self.blocks)}]"

    def flat(self, dimension: int) -> RowExtent:
        """What a run of numbers has elements along, as it stands in the source."""
        return DIMENSIONS[dimension] | (RowExtent.FLAT if len(self.blocks) > 1 else RowExtent.NONE)


def tile_form(source: Source, kernel: Kernel) -> TileForm:
    """The tiles of a kernel.

    Raises:
        NotApplicable: they have more than two dimensions, or not the same lengths throughout, or
            a run of numbers is laid along both, or they are multiplied.
    """
    body = kernel.function.node.body
    runs = [*TRITON.find(source, body, TRITON.iotas)]
    if not any(expanded_axis(each) is not None for each in descendants(body, cst.Subscript)):
        return TileForm((one_block(source, kernel),), dict.fromkeys(runs, 0))
    if TRITON.has_dot(source, kernel):
        raise NotApplicable(
            f"{kernel.name} multiplies tiles: its blocks say how many rows each has"
        )
    lengths: dict[int, set[str]] = {0: set(), 1: set()}
    found: dict[cst.Call, int] = {}
    for call in runs:
        along = laid_along(body, lambda node, run=call: node is run)  # type: ignore[misc]
        end = TRITON.shapes["triton.language.arange"].of(call)
        if len(along) != 1 or end is None:
            how = "both dimensions of a tile" if along else "no dimension of a tile of two"
            raise NotApplicable(f"line {source.line(call)} of {kernel.name} counts along {how}")
        found[call] = along.pop()
        lengths[found[call]].add(source.code(end))
    named = [sorted(lengths[dimension]) for dimension in (0, 1)]
    if any(len(ends) != 1 or ends[0] not in kernel.constants for ends in named):
        listed = " and ".join(", ".join(ends) or "none" for ends in named)
        raise NotApplicable(f"{kernel.name} has no one block for each dimension: {listed}")
    return TileForm((named[0][0], named[1][0]), found)


def of_cast(node: cst.CSTNode) -> cst.BaseExpression | None:
    """`x` of `x.to(...)` and of `x.cast(...)`; `tl` of `tl.cast(...)`, which is a function."""
    match node:
        case cst.Call(func=cst.Attribute(value=value, attr=cst.Name(value="to" | "cast"))):
            return value
    return None


def laid(updated: cst.BaseExpression, places: str) -> cst.Subscript:
    """`tl.arange(0, BLOCK)[None, :]`."""
    sliced = cst.ensure_type(cst.parse_expression(f"x{places}"), cst.Subscript)
    return sliced.with_changes(value=updated)


def with_rows(
    shape: cst.Tuple | cst.List, rows: str, lengths: tuple[str, ...]
) -> cst.Tuple | cst.List:
    """`(ROWS, BLOCK)` of `(BLOCK,)`; a comment stays.

    Args:
        shape: the lengths of a tile of one row.
        rows: the constant.
        lengths: of the tile with all dimensions; 1 where it has none in the source.
    """
    between = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    kept = [*shape.elements]
    if not is_commented(shape):
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    elements = [cst.Element(cst.Name(rows), comma=between)]
    if len(lengths) == len(kept):
        return shape.with_changes(elements=[*elements, *kept])
    last = len(lengths) - 1
    elements += [
        cst.Element(cst.parse_expression(n), comma=between)
        if place < last
        else cst.Element(cst.parse_expression(n))
        for place, n in enumerate(lengths)
    ]
    return shape.with_changes(elements=elements)


def both(mask: cst.BaseExpression, name: str) -> cst.BaseExpression:
    """`mask & name`, the mask in parentheses where `&` would bind closer than what is in it."""
    binds_closer = (cst.Name, cst.Call, cst.Attribute, cst.Subscript)
    joined = isinstance(mask, cst.BinaryOperation) and isinstance(mask.operator, cst.BitAnd)
    if not isinstance(mask, binds_closer) and not joined and not mask.lpar:
        mask = mask.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.BinaryOperation(mask, cst.BitAnd(), cst.Name(name))
