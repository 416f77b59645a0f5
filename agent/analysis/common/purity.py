"""Whether an expression of host code has no side effects, so that it may be evaluated again."""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from agent.syntax import Source

QUERIES = ("bit_length", "dim", "element_size", "numel", "size", "stride")
"""Methods of a tensor, and of an integer, that have no side effects."""


def is_pure(source: Source, expression: cst.BaseExpression, calls: Collection[str] = ()) -> bool:
    """Whether evaluating an expression has no side effects.

    Args:
        source: the file of the expression.
        expression: names, literals, operators, comparisons, subscripts, and queries of a tensor
            are pure.
        calls: qualified names of functions that are pure as well.
    """

    def pure(operand: cst.BaseExpression) -> bool:
        return is_pure(source, operand, calls)

    match expression:
        case cst.Name() | cst.Integer() | cst.Float() | cst.SimpleString():
            return True
        case cst.Attribute():
            return pure(expression.value)
        case cst.UnaryOperation():
            return pure(expression.expression)
        case cst.BinaryOperation() | cst.BooleanOperation():
            return pure(expression.left) and pure(expression.right)
        case cst.Comparison():
            compared = (each.comparator for each in expression.comparisons)
            return all(map(pure, (expression.left, *compared)))
        case cst.Subscript(value=value, slice=[cst.SubscriptElement(slice=cst.Index(value=index))]):
            return pure(value) and pure(index)
        case cst.Call() if source.name(expression.func) in calls:
            return all(pure(argument.value) for argument in expression.args)
        case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value=method))):
            arguments = all(pure(argument.value) for argument in expression.args)
            return method in QUERIES and pure(owner) and arguments
    return False
