"""Symbolic sizes: integer expressions in a canonical form, compared as far as known statically.

Two expressions of the same size have equal `Size`s: `(n + 63) // 64` in the host code and
`ct.num_tiles(x, 0, (64,))` in the kernel, if `n` is `x.shape[0]`. What the code does not tell is a
`Size` that nothing else equals. `agent.analysis.cutile.extents` finds them.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from agent.syntax import Source


@dataclass(frozen=True, order=True)
class Size:
    """An operation on sizes, or a leaf: a number, an extent, or something of unknown value."""

    operation: str
    parts: tuple[Size, ...] = ()

    def mentions(self, text: str) -> bool:
        """Whether a leaf contains the text."""
        return text in self.operation or any(part.mentions(text) for part in self.parts)


ZERO, ONE = Size("0"), Size("1")


def cdiv(whole: Size, part: Size) -> Size:
    """How many parts cover a whole."""
    return whole if part == ONE else Size("cdiv", (whole, part))


def is_share(part: Size, whole: Size) -> bool:
    """Whether a size is the whole divided by two or more, so that as much is left of it."""
    if part.operation == "//":
        return part.parts[0] == whole and _is_plural(part.parts[1])
    return whole.operation == "*" and any(
        one == part and _is_plural(other) for one, other in (whole.parts, whole.parts[::-1])
    )


def is_multiple(whole: Size, part: Size) -> bool:
    """Whether a size is one or more times another, by their numbers or because both are one."""
    if whole == part:
        return True
    numbers = whole.operation, part.operation
    return (
        all(map(str.isdecimal, numbers))
        and int(numbers[1]) > 0
        and not int(numbers[0]) % int(numbers[1])
    )


def _is_plural(size: Size) -> bool:
    return size.operation.isdecimal() and int(size.operation) > 1


def product(left: Size, right: Size) -> Size:
    """Two sizes multiplied."""
    if ONE in (left, right):
        return right if left == ONE else left
    return commutative("*", left, right)


def commutative(operation: str, left: Size, right: Size) -> Size:
    """An operation whose operands may be swapped, in one order."""
    return Size(operation, (min(left, right), max(left, right)))


def rounded_up(
    source: Source, node: cst.BinaryOperation
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """`n` and `b` of `(n + b - 1) // b`."""
    outer = node.left
    if (
        isinstance(node.operator, cst.FloorDivide)
        and isinstance(outer, cst.BinaryOperation)
        and isinstance(outer.operator, cst.Subtract)
        and source.code(outer.right) == "1"
        and isinstance(outer.left, cst.BinaryOperation)
        and isinstance(outer.left.operator, cst.Add)
        and source.code(outer.left.right) == source.code(node.right)
    ):
        return outer.left.left, node.right
    return None


def negated_division(
    inner: cst.BaseExpression,
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """`n` and `b` of `-(-n // b)`."""
    if (
        isinstance(inner, cst.BinaryOperation)
        and isinstance(inner.operator, cst.FloorDivide)
        and isinstance(inner.left, cst.UnaryOperation)
        and isinstance(inner.left.operator, cst.Minus)
    ):
        return inner.left.expression, inner.right
    return None
