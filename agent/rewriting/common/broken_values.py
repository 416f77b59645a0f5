"""A long value as people break it: in parentheses, before the operators of lowest precedence."""

from __future__ import annotations

import libcst as cst

from agent.syntax.tree import descendants

Whitespace = cst.BaseParenthesizableWhitespace

_Operation = cst.BooleanOperation | cst.BinaryOperation
_LEVELS: tuple[tuple[type[cst.CSTNode], ...], ...] = (
    (cst.Add, cst.Subtract),
    (cst.Multiply, cst.Divide, cst.FloorDivide, cst.Modulo, cst.MatrixMultiply),
    (cst.LeftShift, cst.RightShift),
)
"""Operators of one precedence; any other has one of its own."""


def value_of(statement: cst.CSTNode) -> cst.BaseExpression | None:
    """What a statement assigns, returns or asks, which may stand in parentheses."""
    match statement:
        case cst.SimpleStatementLine(
            body=[cst.Assign() | cst.AnnAssign() | cst.AugAssign() | cst.Return() as only]
        ):
            return only.value
        case cst.If() | cst.While():
            return statement.test
    return None


def in_parentheses(
    value: cst.BaseExpression, below: Whitespace, closing: Whitespace
) -> cst.BaseExpression:
    """The value on lines of its own, in the parentheses that it has or in new ones."""
    left, right = (*value.lpar, cst.LeftParen())[0], (*value.rpar, cst.RightParen())[0]
    return value.with_changes(
        lpar=[left.with_changes(whitespace_after=below)],
        rpar=[right.with_changes(whitespace_before=closing)],
    )


def before_operators(value: cst.BaseExpression, below: Whitespace, room: int) -> cst.BaseExpression:
    """The value with a line for each operand, and with several for one that has no room on one."""

    def part(side: cst.BaseExpression) -> cst.BaseExpression:
        written = len(cst.Module([]).code_for_node(side))
        whole = side.lpar or (written <= room and not _continues(value, side))
        return side if whole else before_operators(side, below, room)

    match value:
        case cst.BooleanOperation() | cst.BinaryOperation():
            operator = value.operator.with_changes(whitespace_before=below)
            left, right = part(value.left), part(value.right)
            return value.with_changes(left=left, operator=operator, right=right)
        case cst.Comparison():
            targets = [
                each.with_changes(
                    operator=each.operator.with_changes(whitespace_before=below),
                    comparator=part(each.comparator),
                )
                for each in value.comparisons
            ]
            return value.with_changes(left=part(value.left), comparisons=targets)
        case cst.IfExp():
            return value.with_changes(
                body=part(value.body),
                whitespace_before_if=below,
                test=part(value.test),
                whitespace_before_else=below,
                orelse=part(value.orelse),
            )
    return value


def operands(value: cst.BaseExpression) -> tuple[cst.BaseExpression, ...]:
    """What the operators of lowest precedence stand between; none where a value has no operator."""
    match value:
        case (
            cst.BooleanOperation(left=left, right=right)
            | cst.BinaryOperation(left=left, right=right)
        ):
            return tuple(
                operand
                for side in (left, right)
                for operand in (operands(side) if _continues(value, side) else (side,))
            )
        case cst.Comparison(left=left, comparisons=targets):
            return (left, *(each.comparator for each in targets))
        case cst.IfExp(body=body, test=test, orelse=otherwise):
            return (body, test, otherwise)
    return ()


def ends_in_its_call(value: cst.BaseExpression) -> bool:
    """Whether the last of two operands has the only call, whose arguments go below instead."""
    match operands(value):
        case (first, cst.Call(args=[_, *_], func=called)):
            return not any(True for side in (first, called) for _ in descendants(side, cst.Call))
    return False


def _continues(value: cst.BaseExpression, side: cst.BaseExpression) -> bool:
    """Whether an operand is an operation of the same precedence."""
    if not isinstance(side, _Operation) or not isinstance(value, _Operation) or side.lpar:
        return False
    kind = type(value.operator)
    return isinstance(side.operator, next((each for each in _LEVELS if kind in each), kind))
