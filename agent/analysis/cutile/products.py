"""Tiles of a cuTile kernel that are products of tiles, masked or not, and nothing else.

What is loaded may hold any number, also one that stands for minus infinity, as -1e30: such a number
outlives no other order of multiplication and subtraction, since what rounding takes from it is
itself a large number. Products are as large as the data makes them.
"""

from __future__ import annotations

from math import inf

import libcst as cst

from agent.analysis.common.possible_definitions import possible_definitions
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.positive import constant_number
from agent.syntax import Source, argument, positional

CHOOSE = f"{CT}where"
RESHAPED = tuple(f"{CT}{name}" for name in ("astype", "permute", "reshape", "transpose"))
METHODS = ("astype", "permute", "reshape", "transpose")
LARGEST = 1e6
"""A number of that size, multiplied by a scale, is rounded by less than a tenth."""


def is_penalty(source: Source, node: cst.BaseExpression) -> bool:
    """Whether something is `ct.where(mask, 0, -inf)`, also behind a name."""
    match node:
        case cst.Name():
            found = possible_definitions(source, node)
            return bool(found) and all(
                isinstance(each, cst.Assign)
                and not isinstance(each.value, cst.Name)
                and isinstance(each.targets[0].target, cst.Name)
                and is_penalty(source, each.value)
                for each in found
            )
        case cst.Call() if source.name(node.func) == CHOOSE:
            values = [filled(source, value) for value in positional(node)[1:3]]
            return len(values) == 2 and all(value in (0.0, -inf) for value in values)
    return False


def is_product(
    source: Source, node: cst.BaseExpression, seen: frozenset[cst.CSTNode] = frozenset()
) -> bool:
    """Whether something is a product of tiles, whichever assignment it comes from.

    Sums of such products and numbers that are chosen in their place are, too. Of names that a loop
    assigns from themselves, `seen` holds the statements that are looked at.
    """
    number = filled(source, node)
    if number is not None:
        return bool(seen) and (number == -inf or abs(number) <= LARGEST)
    called = source.name(node.func) or "" if isinstance(node, cst.Call) else ""
    match node:
        case cst.Name():
            found = possible_definitions(source, node)
            return bool(found) and all(
                each in seen or _assigns_product(source, each, seen | {each}) for each in found
            )
        case cst.BinaryOperation(left=left, operator=cst.Add(), right=right):
            return is_product(source, left, seen) and (
                is_penalty(source, right) or is_product(source, right, seen)
            )
        case cst.Call() if called in CUTILE.dots:
            given = argument(node, 2, "acc")
            return given is None or is_product(source, given, seen | {node})
        case cst.Call() if called == CHOOSE and len(positional(node)) == 3:
            return all(is_product(source, value, seen | {node}) for value in positional(node)[1:])
        case cst.Call() if called in RESHAPED and positional(node):
            return is_product(source, positional(node)[0], seen)
        case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value=method))) if (
            method in METHODS and not CUTILE.owns(called)
        ):
            return is_product(source, owner, seen)
    return False


def _assigns_product(source: Source, binder: cst.CSTNode, seen: frozenset[cst.CSTNode]) -> bool:
    match binder:
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name())], value=value):
            return is_product(source, value, seen)
        case cst.AugAssign(target=target, operator=cst.AddAssign(), value=value):
            added = is_penalty(source, value) or is_product(source, value, seen)
            return added and is_product(source, target, seen)
    return False


def filled(source: Source, node: cst.BaseExpression) -> float | None:
    """The number that all elements of a tile are, or that an expression is."""
    if (number := constant_number(source, node)) is not None:
        return number
    if isinstance(node, cst.Call):
        called = source.name(node.func)
        if called == f"{CT}zeros":
            return 0.0
        filled = argument(node, 1, "fill_value") if called == f"{CT}full" else None
        return None if filled is None else constant_number(source, filled)
    return None
