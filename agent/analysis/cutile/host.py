"""Values and types that the host code around a cuTile launch passes, where known statically."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import libcst as cst

from agent.analysis.cutile.tables import entry_of
from agent.syntax import Source, argument, integer_of, keyword

Value: TypeAlias = int | float | bool

DTYPES = {
    name: name
    for name in (
        "bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "int8",
        "int16", "int32", "int64", "uint8",
    )
}  # fmt: skip
"""Name in torch -> name in cuda.tile."""
DTYPES |= {"bool": "bool_", "half": "float16", "float": "float32", "int": "int32", "long": "int64"}
CASTS = {name: DTYPES[name] for name in ("bfloat16", "bool", "float", "half", "int", "long")}
"""Methods of a tensor that change its element type."""
KEEPS = ("contiguous", "view", "reshape", "clone", "detach", "t", "transpose", "permute", "cuda",
         "flatten", "squeeze", "unsqueeze", "expand", "requires_grad_")  # fmt: skip
"""Methods of a tensor that keep it."""
MAKES_FLOATS = ("torch.empty", "torch.zeros", "torch.ones", "torch.rand", "torch.randn")
SCALARS = {"builtins.float": "float32", "builtins.int": "int32", "builtins.bool": "bool_",
           "float": "float32", "int": "int32", "bool": "bool_"}  # fmt: skip
"""Annotation, or function that converts -> type of the scalar in a kernel."""
COUNTS = ("numel", "size", "stride", "bit_length", "dim", "element_size")
"""Methods whose result is an integer."""
INTEGERS = ("len", "builtins.len", "math.ceil", "math.floor", "math.gcd", "math.prod")
_DEEP = 20
"""Expressions inside expressions are followed so far: two functions may be named in a circle."""

Operation: TypeAlias = Callable[[Value, Value], Value]
_OPERATIONS: Mapping[type[cst.BaseBinaryOp], Operation] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.Divide: operator.truediv,
    cst.FloorDivide: operator.floordiv,
    cst.Modulo: operator.mod,
}


@dataclass(frozen=True)
class Known:
    """A constant that the source tells."""

    value: Value
    is_default: bool
    """It is the default of a parameter, so that a caller may pass another."""


def constant(source: Source, expression: cst.BaseExpression, deep: int = 0) -> Known | None:
    """The number or truth value an expression always is, if the file says it."""
    if deep > _DEEP:
        return None
    match expression:
        case cst.Integer() | cst.Float():
            return Known(expression.evaluated_value, False)
        case cst.Name(value="True" | "False"):
            return Known(expression.value == "True", False)
        case cst.UnaryOperation(operator=cst.Minus()):
            inner = constant(source, expression.expression, deep + 1)
            return Known(-inner.value, inner.is_default) if inner else None
        case cst.BinaryOperation() if (number := integer_of(expression)) is not None:
            return Known(number, False)
        case cst.BinaryOperation():
            operation = _OPERATIONS.get(type(expression.operator))
            left = constant(source, expression.left, deep + 1)
            right = constant(source, expression.right, deep + 1)
            if operation is None or left is None or right is None:
                return None
            try:
                value = operation(left.value, right.value)
            except ArithmeticError:
                return None
            return Known(value, left.is_default or right.is_default)
        case cst.IfExp(test=test, body=body, orelse=otherwise):
            decided = constant(source, test, deep + 1)
            if decided is None or decided.is_default:
                return None
            return constant(source, body if decided.value else otherwise, deep + 1)
        case cst.Subscript(
            value=table,
            slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString() as key))],
        ):
            written = _table(source, table, deep + 1)
            entry = written and entry_of(source, written, str(key.evaluated_value))
            return constant(source, entry, deep + 1) if entry else None
        case cst.Name():
            behind = source.resolve(expression)
            is_name = isinstance(behind, cst.Name) and behind.value not in ("True", "False")
            if behind is not expression and not is_name:
                return constant(source, behind, deep + 1)
            given = parameter(source, behind)
            default = given.default if given is not None else None
            inner = constant(source, default, deep + 1) if default is not None else None
            return Known(inner.value, True) if inner else None
    return None


def computed(
    source: Source, expression: cst.BaseExpression, values: Mapping[str, Value]
) -> Value | None:
    """The number that an expression is where names have the values given for them."""
    if isinstance(expression, cst.Name) and expression.value in values:
        return values[expression.value]
    operation = (
        _OPERATIONS.get(type(expression.operator))
        if isinstance(expression, cst.BinaryOperation)
        else None
    )
    if operation is None or not isinstance(expression, cst.BinaryOperation):
        known = constant(source, expression)
        return known.value if known is not None else None
    left = computed(source, expression.left, values)
    right = computed(source, expression.right, values)
    try:
        return operation(left, right) if left is not None and right is not None else None
    except ArithmeticError:
        return None


def _table(source: Source, expression: cst.BaseExpression, deep: int) -> cst.Dict | None:
    """The dictionary that an expression always is, if the file writes it out."""
    behind = source.resolve(expression)
    if isinstance(behind, cst.IfExp) and deep <= _DEEP:
        decided = constant(source, behind.test, deep + 1)
        if decided is None or decided.is_default:
            return None
        return _table(source, behind.body if decided.value else behind.orelse, deep + 1)
    return behind if isinstance(behind, cst.Dict) else None


def parameter(source: Source, name: cst.BaseExpression) -> cst.Param | None:
    """The parameter of a function that a name is, if it is never assigned anything else."""
    if not isinstance(name, cst.Name):
        return None
    assignments = source.assignments(name)
    node = assignments[0].node if len(assignments) == 1 else None
    return node if isinstance(node, cst.Param) else None


def element_type(source: Source, expression: cst.BaseExpression, deep: int = 0) -> str | None:
    """The element type of a tensor that the file makes, by its name in cuda.tile."""
    made = source.resolve(expression)
    if deep > _DEEP:
        return None
    if isinstance(made, cst.IfExp):
        return element_type(source, made.body, deep + 1) or element_type(
            source, made.orelse, deep + 1
        )
    if not isinstance(made, cst.Call):
        return None
    given = keyword(made, "dtype")
    if given is not None:
        return _dtype(source, given)
    called = source.name(made.func) or ""
    if called in MAKES_FLOATS:
        return "float32"
    if isinstance(made.func, cst.Attribute) and not called.startswith("torch."):
        method = made.func.attr.value
        first = argument(made, 0, "dtype")
        if method in CASTS and not made.args:
            return CASTS[method]
        cast = _dtype(source, first) if first is not None else None
        if cast is not None:
            return cast
        if method in KEEPS:
            return element_type(source, made.func.value, deep + 1)
    return None


def _dtype(source: Source, expression: cst.BaseExpression) -> str | None:
    named = source.name(expression) or ""
    module, _, name = named.rpartition(".")
    return DTYPES.get(name) if module == "torch" else None


def scalar_type(source: Source, expression: cst.BaseExpression, deep: int = 0) -> str | None:
    """The type a kernel sees for a Python number, if the file says which kind it is."""
    if deep > _DEEP:
        return None
    match expression:
        case cst.Integer():
            return "int32"
        case cst.Float():
            return "float32"
        case cst.Name(value="True" | "False") | cst.Comparison():
            return "bool_"
        case cst.UnaryOperation(operator=cst.Minus() | cst.Plus()):
            return scalar_type(source, expression.expression, deep + 1)
        case cst.IfExp(body=body, orelse=orelse):
            return scalar_type(source, body, deep + 1) or scalar_type(source, orelse, deep + 1)
        case cst.BinaryOperation():
            return _of_operation(source, expression, deep)
        case cst.Subscript(value=cst.Attribute(attr=cst.Name(value="shape"))):
            return "int32"
        case cst.Call():
            return _of_call(source, expression)
        case cst.Name():
            return _of_name(source, expression, deep)
    return None


def _of_call(source: Source, call: cst.Call) -> str | None:
    called = source.name(call.func) or ""
    if called in SCALARS:
        return SCALARS[called]
    if isinstance(call.func, cst.Attribute) and call.func.attr.value in COUNTS:
        return "int32"
    if called.endswith(("cdiv", "next_power_of_2")) or called in INTEGERS:
        return "int32"
    return "float32" if called.startswith("math.") else None


def _of_operation(source: Source, node: cst.BinaryOperation, deep: int) -> str | None:
    if isinstance(node.operator, cst.Divide):
        return "float32"
    if isinstance(node.operator, cst.FloorDivide | cst.LeftShift | cst.RightShift):
        return "int32"
    both = {scalar_type(source, side, deep + 1) for side in (node.left, node.right)}
    return "float32" if "float32" in both else "int32" if both == {"int32"} else None


def _of_name(source: Source, name: cst.Name, deep: int) -> str | None:
    """A name by what it is assigned, by the shape it is unpacked from, or as a parameter."""
    behind = source.resolve(name)
    if behind is not name and not isinstance(behind, cst.Name):
        return scalar_type(source, behind, deep + 1)
    given = parameter(source, behind)
    if given is not None:
        annotated = source.name(given.annotation.annotation) if given.annotation else None
        if annotated in SCALARS:
            return SCALARS[annotated]
        return scalar_type(source, given.default, deep + 1) if given.default else None
    nodes = [a.node for a in source.assignments(name)]
    if nodes and all(_unpacked_from_shape(source, node) for node in nodes):
        return "int32"
    return None


def _unpacked_from_shape(source: Source, node: cst.CSTNode) -> bool:
    """Whether a name is one of `m, n = x.shape`, or `m, n = x.size()`."""
    statement = next((a for a in source.ancestors(node) if isinstance(a, cst.Assign)), None)
    value = statement.value if statement is not None else None
    if isinstance(value, cst.Call):
        value = value.func
    return isinstance(value, cst.Attribute) and value.attr.value in ("shape", "size")
