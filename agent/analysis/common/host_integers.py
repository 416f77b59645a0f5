"""Host expressions that certainly are integers, whatever a caller gives."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.derived_names import all_values
from agent.analysis.common.reaching_definitions import Definition, definition
from agent.syntax import Source

QUERIES = frozenset({"dim", "element_size", "nelement", "numel", "ndimension"})
"""Methods of a tensor that return an integer."""
BY_DIMENSION = frozenset({"size", "stride"})
"""Methods that return one of a dimension, and a tuple of all."""
COUNTING = frozenset({
    "builtins.int", "builtins.len", "triton.cdiv", "triton.next_power_of_2", "math.ceil",
    "math.floor",
})  # fmt: skip
OF_INTEGERS = frozenset({"builtins.max", "builtins.min", "builtins.abs", "builtins.round"})
"""What returns an integer of integers."""
KEEPING = (cst.Add, cst.Subtract, cst.Multiply, cst.FloorDivide, cst.Modulo)


def is_integer(
    source: Source, expression: cst.BaseExpression, seen: frozenset[str] = frozenset()
) -> bool:
    """Whether an expression is an integer: a number, an extent or a stride of a tensor, a
    parameter that says so, and what is computed of these.

    Args:
        source: the file.
        expression: in a function of the host.
        seen: names whose values are being looked at.
    """

    def integer(part: cst.BaseExpression) -> bool:
        return is_integer(source, part, seen)

    match expression:
        case cst.Integer():
            return True
        case cst.UnaryOperation(operator=cst.Minus(), expression=inner):
            return integer(inner)
        case cst.BinaryOperation(left=left, operator=operator, right=right):
            return isinstance(operator, KEEPING) and integer(left) and integer(right)
        case cst.IfExp(body=body, orelse=orelse):
            return integer(body) and integer(orelse)
        case cst.Subscript(value=value, slice=[cst.SubscriptElement(slice=cst.Index())]):
            return _is_extents(source, value)
        case cst.Attribute(attr=cst.Name(value="ndim")):
            return True
        case cst.Call(func=cst.Attribute(attr=cst.Name(value=method)), args=given) if (
            method in QUERIES or (method in BY_DIMENSION and len(given) == 1)
        ):
            return True
        case cst.Call():
            called = source.name(expression.func)
            computed = called in OF_INTEGERS and all(integer(a.value) for a in expression.args)
            return called in COUNTING or computed
        case cst.Name(value=name):
            if name in seen:
                return True
            found = definition(source, name, expression)
            if found is not None:
                return _is_defined_as_one(source, found, seen | {name})
            values = [*all_values(source, expression)]
            return bool(values) and all(is_integer(source, v, seen | {name}) for v in values)
    return False


def _is_defined_as_one(source: Source, found: Definition, seen: frozenset[str]) -> bool:
    if isinstance(found.node, cst.Param):
        said = found.node.annotation
        if said is not None:
            return source.code(said.annotation).strip("\"'") == "int"
        return isinstance(found.node.default, cst.Integer)
    if found.value is None or isinstance(found.node, cst.For):
        return False
    if found.index is not None:
        return _is_extents(source, found.value)
    return is_integer(source, found.value, seen)


def _is_extents(source: Source, expression: cst.BaseExpression) -> bool:
    """Whether it is all extents or strides of a tensor: `x.shape`, `x.size()`, a part of them."""
    match expression:
        case cst.Attribute(attr=cst.Name(value="shape")):
            return True
        case cst.Call(func=cst.Attribute(attr=cst.Name(value=method)), args=[]):
            return method in BY_DIMENSION
        case cst.Subscript(value=value, slice=[cst.SubscriptElement(slice=cst.Slice())]):
            return _is_extents(source, value)
        case cst.Name(value=name):
            found = definition(source, name, expression)
            plain = found is not None and found.index is None and isinstance(found.node, cst.Assign)
            if found is None or found.value is None or not plain:
                return False
            return not isinstance(found.value, cst.Name) and _is_extents(source, found.value)
    return False
