"""What the mask of a load or a store says: its conditions, and which of them bound an index."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.reaching_definitions import value_of
from agent.syntax import Source

EVEN, FULL = "EVEN_", "FULL_"
"""What the constants are called that say that blocks end where an array does, or hold all of it."""
UNMASKED = (EVEN, FULL)


def conditions(
    source: Source, mask: cst.BaseExpression | None, *, even: tuple[str, ...] = ()
) -> Iterator[cst.BaseExpression]:
    """The conditions that a mask joins with `&`, each traced to the expression behind its name.

    Args:
        source: the file of the mask.
        mask: the argument of the access; None where it has none.
        even: the prefixes of constants that say that a dimension needs no mask, as in
            `(k < K) | EVEN_K`; none where none does.
    """
    behind = value_of(source, mask) if mask is not None else None
    match behind:
        case None | cst.Name(value="None"):
            return
        case cst.BinaryOperation(left=left, operator=cst.BitAnd(), right=right):
            yield from conditions(source, left, even=even)
            yield from conditions(source, right, even=even)
        case cst.BinaryOperation(
            left=left, operator=cst.BitOr(), right=cst.Name(value=constant)
        ) if even and constant.startswith(even):
            yield from conditions(source, left, even=even)
        case _:
            yield behind


def upper_bound(
    condition: cst.BaseExpression,
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """Index and length of a condition `index < length`; None for any other condition."""
    match condition:
        case cst.Comparison(
            left=left, comparisons=[cst.ComparisonTarget(operator=cst.LessThan(), comparator=right)]
        ):
            return left, right
    return None


def ordered(
    condition: cst.BaseExpression,
) -> tuple[cst.BaseExpression, cst.BaseExpression, bool] | None:
    """What is to be smaller, what larger, and whether they may be equal; None for anything else."""
    match condition:
        case cst.Comparison(
            left=left, comparisons=[cst.ComparisonTarget(operator=operator, comparator=right)]
        ):
            is_equal = isinstance(operator, cst.LessThanEqual | cst.GreaterThanEqual)
            if isinstance(operator, cst.LessThan | cst.LessThanEqual):
                return left, right, is_equal
            if isinstance(operator, cst.GreaterThan | cst.GreaterThanEqual):
                return right, left, is_equal
    return None
