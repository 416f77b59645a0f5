"""Where the tiles come from that a cuTile kernel multiplies."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.syntax import Source, argument, positional

GATHERS = (f"{CT}gather", f"{CT}load_advanced_indexing")
"""Loads that TMA makes none of."""
SCALED = f"{CT}mma_scaled"
"""Its second operand stands behind the scales of the first."""
SAME = ("astype", "permute", "reshape", "transpose")
"""Functions and methods of a tile that give the same elements."""
_DEEP = 30


def multiplies(source: Source, kernel: Kernel) -> str | None:
    """That a kernel multiplies tiles, and how it loads them; None where it multiplies none."""
    if not CUTILE.has_dot(source, kernel):
        return None
    loads = [_load(source, operand) for operand in _operands(source, kernel)]
    gathered = [load in GATHERS for load in loads]
    how = "which TMA loads"
    if gathered and all(gathered):
        how = "which it gathers"
    elif any(gathered):
        how = "of which it gathers some and TMA loads others"
    return f"{kernel.name} multiplies tiles, {how}"


def _operands(source: Source, kernel: Kernel) -> Iterator[cst.BaseExpression]:
    for function in CUTILE.reached(source, kernel):
        for product in CUTILE.products(source, function):
            if isinstance(product, cst.BinaryOperation):
                yield from (product.left, product.right)
            else:
                scaled = source.name(product.func) == SCALED
                both = (argument(product, 0, "x"), argument(product, 2 if scaled else 1, "y"))
                yield from (each for each in both if each is not None)


def _load(source: Source, tile: cst.BaseExpression) -> str | None:
    """The function that loads a tile; None where something else makes it."""
    for _ in range(_DEEP):
        tile = value_of(source, tile)
        if not isinstance(tile, cst.Call):
            return None
        called = source.name(tile.func) or ""
        if called in CUTILE.loads:
            return called
        given = positional(tile)
        if called.startswith(CT) and called.removeprefix(CT) in SAME and given:
            tile = given[0]
        elif isinstance(tile.func, cst.Attribute) and tile.func.attr.value in SAME:
            tile = tile.func.value
        else:
            return None
    return None
