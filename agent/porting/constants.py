"""What is known of constants: globals of the file, and parameters fixed when a kernel compiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import libcst as cst

from agent.analysis.common.dialect import Launch
from agent.porting import dtypes
from agent.porting.arithmetic import OPERATORS
from agent.porting.context import TL, Context
from agent.porting.folding import folded, negated
from agent.porting.values import Number, Other, Value, joined, literal, weak
from agent.syntax import Function, Source, argument, descendants

CONSTEXPR = f"{TL}constexpr"
INTEGER_CALLS = ("triton.cdiv", "triton.next_power_of_2", "len")
SIZES = ("numel", "size", "dim", "element_size")
"""Methods of a tensor that give no negative number."""
ANY = ("int32", "float32", dtypes.BOOL)
SHAPED = {"arange": (0, 1), "zeros": (0,), "full": (0,), "reshape": (1,), "broadcast_to": (1,)}
"""Functions of Triton that take a shape -> where."""


def global_constant(context: Context, node: cst.Name) -> Value:
    """What a name of the module holds.

    Raises:
        NotPortable: it is not there, or no constant.
    """
    source = context.source
    behind = unwrapped(source, source.resolve(node))
    found = kind_of(source, behind)
    if found is not None:
        return found
    if source.name(node) in ("float", "int", "print", "super"):
        raise context.refuse(node, f"`{node.value}`", "write it without")
    if behind is node and not source.assignments(node) and source.scope(node) is not None:
        imported = source.name(node)
        if imported is None:
            raise context.refuse(node, "a name that the file does not define", "define it here",
                                 node.value)  # fmt: skip
        raise context.refuse(
            node, "an imported function or constant used in a kernel",
            "put it into this file", imported,
        )  # fmt: skip
    if isinstance(behind, cst.SimpleString):
        return Other("a string")
    raise context.refuse(
        node, "a global whose value the file does not show", "assign it a number once", node.value
    )


def unwrapped(source: Source, node: cst.BaseExpression) -> cst.BaseExpression:
    """`3` of `tl.constexpr(3)`."""
    if isinstance(node, cst.Call) and source.name(node.func) == CONSTEXPR and len(node.args) == 1:
        return node.args[0].value
    return node


def kind_of(source: Source, node: cst.BaseExpression) -> Number | None:
    """The constant that an expression of host code certainly is, as a kernel sees it."""
    match node:
        case cst.Integer() | cst.Float():
            return literal(node.evaluated_value)
        case cst.UnaryOperation(operator=cst.Minus()):
            inner = kind_of(source, node.expression)
            return negated(inner, "-") if inner is not None else None
        case cst.Name(value="True" | "False"):
            return weak(dtypes.BOOL)
        case cst.Call() if source.name(node.func) in ("float", "builtins.float"):
            return weak("float32")
        case cst.Call() if (source.name(node.func) or "").removeprefix("builtins.") in (
            INTEGER_CALLS
        ):
            return weak("int32", natural=_never_negative(source, node))
        case cst.Call() if source.name(node.func) in ("int", "builtins.int"):
            return weak("int32", "int64")
        case cst.Attribute() if source.name(node) in ("math.pi", "math.e", "math.inf"):
            return weak("float32")
        case cst.BinaryOperation():
            sides = kind_of(source, node.left), kind_of(source, node.right)
            if sides[0] is None or sides[1] is None:
                return None
            symbol, _ = OPERATORS.get(type(node.operator), ("", 0))
            return folded(symbol, sides[0], sides[1]) if symbol else None
    return None


def _never_negative(source: Source, node: cst.BaseExpression) -> bool:
    """Whether an integer of the host's is certainly not below zero."""
    match node:
        case cst.Integer():
            return True
        case cst.Call() if source.name(node.func) == "triton.cdiv":
            return all(_never_negative(source, each.value) for each in node.args)
        case cst.Call() if (source.name(node.func) or "").removeprefix("builtins.") in (
            INTEGER_CALLS
        ):
            return True
        case cst.Call(func=cst.Attribute(attr=cst.Name(value=method))):
            return method in SIZES
        case cst.Subscript(value=cst.Attribute(attr=cst.Name(value="shape"))):
            return True
        case cst.Name():
            behind = source.resolve(node)
            return behind is not node and _never_negative(source, behind)
    return False


def parameter_kind(
    source: Source, function: Function, parameter: cst.Param, launches: Iterable[Launch]
) -> Number:
    """What a parameter that is fixed at compile time may be."""
    name = parameter.name.value
    given = [launch.arguments[name] for launch in launches if name in launch.arguments]
    if parameter.default is not None:
        given.append(parameter.default)
    kinds = [kind_of(source, source.resolve(each)) for each in given]
    natural = is_size(source, function, name)
    if natural:
        return weak("int32", natural=True)
    known = [kind for kind in kinds if kind is not None]
    if known and len(known) == len(kinds):
        return reduce(_either, known)
    return weak(*ANY)


def _either(one: Number, other: Number) -> Number:
    """What is known of one of two constants."""
    found = joined(one, other)
    assert isinstance(found, Number)
    return found


def is_size(source: Source, function: Function, name: str) -> bool:
    """Whether a parameter is an extent of a tile, and so a positive integer."""
    for call in descendants(function.node.body, cst.Call):
        called = (source.name(call.func) or "").removeprefix(TL)
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        places: Sequence[int] = SHAPED.get(called, ())
        if not places and method in ("reshape", "broadcast_to"):
            places = (0,)
        for place in places:
            shape = argument(call, place, "shape" if called != "arange" else "end")
            elements = shape.elements if isinstance(shape, cst.Tuple | cst.List) else ()
            listed = [shape, *(each.value for each in elements)]
            if any(isinstance(each, cst.Name) and each.value == name for each in listed):
                return True
    return False


def default_annotation(kind: Number, tile: str) -> str:
    """How the port annotates such a parameter: `ct.Constant[int]`."""
    integers, floats = dtypes.INTEGERS, dtypes.WIDE_FLOATS
    for types, python in ((integers, "int"), ((dtypes.BOOL,), "bool"), (floats, "float")):
        if kind.known(types):
            return f"{tile}.Constant[{python}]"
    return f"{tile}.Constant"
