"""Numbers that a cuTile kernel is given, or computes, and that are certainly above zero.

`max(scale * x)` is `scale * max(x)` for such a scale alone. What a launch gives is followed through
names, functions that only this file calls, and the ways to write one over the root of a size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from agent.analysis.common.dialect import Kernel, given_to
from agent.analysis.common.numbers import number_of
from agent.analysis.common.possible_definitions import possible_definitions
from agent.analysis.common.reaching_definitions import Ambiguous
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.host import COUNTS, scalar_type
from agent.syntax import Function, Source, argument, positional

LEAST, MOST = 1e-12, 1e12
"""Numbers of the text: products of a few of them are neither 0 nor infinite as float32."""
ROOTS = ("math.sqrt", "numpy.sqrt", f"{CT}sqrt")
CONVERTS = ("builtins.float", "builtins.int")
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "math.log": math.log, "math.log2": math.log2, "math.sqrt": math.sqrt, "math.exp": math.exp,
    "numpy.log": math.log, "numpy.log2": math.log2, "numpy.sqrt": math.sqrt,
}  # fmt: skip
_CONSTANTS = {"math.e": math.e, "math.pi": math.pi, "numpy.e": math.e, "numpy.pi": math.pi}
_DEEP = 12


def constant_number(source: Source, node: cst.BaseExpression, deep: int = 0) -> float | None:
    """The number that an expression of constants is: `1.0 / math.log(2)`, also behind names."""
    if deep > _DEEP:
        return None
    if (number := number_of(source, node)) is not None:
        return number
    if (named := _CONSTANTS.get(source.name(node) or "")) is not None:
        return named
    match node:
        case cst.Name() if (behind := source.resolve(node)) is not node:
            return constant_number(source, behind, deep + 1)
        case cst.UnaryOperation(operator=cst.Minus(), expression=inner):
            number = constant_number(source, inner, deep + 1)
            return None if number is None else -number
        case cst.BinaryOperation(left=left, operator=operator, right=right):
            one, other = (constant_number(source, side, deep + 1) for side in (left, right))
            return None if one is None or other is None else _computed(operator, one, other)
        case cst.Call(args=[cst.Arg(value=given, keyword=None, star="")]):
            function = _FUNCTIONS.get(source.name(node.func) or "")
            number = constant_number(source, given, deep + 1)
            try:
                return None if function is None or number is None else function(number)
            except (ArithmeticError, ValueError):
                return None
    return None


def _computed(operator: cst.BaseBinaryOp, one: float, other: float) -> float | None:
    try:
        match operator:
            case cst.Add():
                return one + other
            case cst.Subtract():
                return one - other
            case cst.Multiply():
                return one * other
            case cst.Divide():
                return one / other
            case cst.Power() if one > 0:
                return float(one**other)
    except ArithmeticError:
        pass
    return None


_Predicate = Callable[[cst.BaseExpression, int], bool]


class Positive:
    """What is above zero in the functions of a file, kernels and host code alike."""

    def __init__(self, source: Source) -> None:
        """Of the file."""
        self._source = source

    def is_positive(self, node: cst.BaseExpression, deep: int = 0) -> bool:
        """Whether an expression is a number above zero, or no number at all.

        It is none where computing it raises an error, as the division by the root of no size.
        """
        if (number := constant_number(self._source, node)) is not None:
            return LEAST < number < MOST
        match node:
            case cst.Name():
                return self._follows(node, self.is_positive, deep)
            case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
                return self.is_positive(left, deep) and self.is_positive(right, deep)
            case cst.BinaryOperation(left=left, operator=cst.Divide(), right=right):
                return self.is_positive(left, deep) and self._divides(right, deep)
            case cst.IfExp(body=one, orelse=other):
                return self.is_positive(one, deep) and self.is_positive(other, deep)
            case cst.Call(args=[cst.Arg(value=given, keyword=None, star="")]) if self._source.name(
                node.func
            ) in (*ROOTS, f"{CT}rsqrt", "builtins.float"):
                return self.is_positive(given, deep)
        if (power := self._power(node)) is not None:
            base, exponent = power
            if self.is_positive(base, deep):
                return abs(exponent) <= 1
            # Of a whole number it is positive or an error; a negative one has no such power.
            return exponent in (-0.5, -0.25) and self._is_integer(base, deep)
        return False

    def _divides(self, node: cst.BaseExpression, deep: int = 0) -> bool:
        """Whether an expression is above zero, or zero, by which the host does not divide."""
        match node:
            case cst.Name() if self._follows(node, self._divides, deep):
                return True
            case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
                return self._divides(left, deep) and self._divides(right, deep)
            case cst.Call(args=[cst.Arg(value=given, keyword=None, star="")]):
                called = self._source.name(node.func) or ""
                if called in ROOTS:
                    return self._is_integer(given, deep) or self.is_positive(given, deep)
                if called == "builtins.float":
                    return self._divides(given, deep)
        if (power := self._power(node)) is not None and power[1] in (0.5, 0.25):
            return self._is_integer(power[0], deep) or self.is_positive(power[0], deep)
        return self._is_count(node) or self.is_positive(node, deep)

    def _power(self, node: cst.BaseExpression) -> tuple[cst.BaseExpression, float] | None:
        """A base, and the number that it is raised to."""
        match node:
            case cst.BinaryOperation(left=base, operator=cst.Power(), right=right):
                exponent = constant_number(self._source, right)
                return None if exponent is None else (base, exponent)
            case cst.Call() if self._source.name(node.func) in ("math.pow", "builtins.pow"):
                given = positional(node)
                if len(given) == len(node.args) == 2:
                    exponent = constant_number(self._source, given[1])
                    return None if exponent is None else (given[0], exponent)
        return None

    def _is_integer(self, node: cst.BaseExpression, deep: int = 0) -> bool:
        """Whether an expression is a whole number, of any sign."""
        match node:
            case cst.Call(args=[cst.Arg(value=given, keyword=None, star="")]) if (
                self._source.name(node.func) in CONVERTS
            ):
                return self._is_integer(given, deep)
            case cst.BinaryOperation(operator=cst.Add() | cst.Multiply()):
                return self._is_integer(node.left, deep) and self._is_integer(node.right, deep)
        if scalar_type(self._source, node) == "int32":
            return True
        return isinstance(node, cst.Name) and self._follows(node, self._is_integer, deep)

    def _is_count(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is the size of something, which is not negative."""
        match node:
            case cst.Subscript(value=cst.Attribute(attr=cst.Name(value="shape"))):
                return True
            case cst.Call(func=cst.Attribute(attr=cst.Name(value=method))):
                return method in COUNTS and method != "stride"
            case cst.Name():
                nodes = [a.node for a in self._source.assignments(node)]
                return bool(nodes) and all(self._is_unpacked(each) for each in nodes)
        return False

    def _is_unpacked(self, target: cst.CSTNode) -> bool:
        """Whether a target is one of several that are assigned a shape."""
        for around in self._source.ancestors(target):
            if isinstance(around, cst.Assign):
                value = around.value
                if isinstance(value, cst.Call) and not value.args:
                    value = value.func
                is_shape = isinstance(value, cst.Attribute) and value.attr.value in (
                    "shape",
                    "size",
                )
                return is_shape and not isinstance(around.targets[0].target, cst.Name)
        return False

    def _follows(self, name: cst.Name, holds: _Predicate, deep: int) -> bool:
        """Whether something holds of all that a name may stand for."""
        if deep > _DEEP:
            return False
        try:
            found = possible_definitions(self._source, name)
        except Ambiguous:
            return False
        if not found:
            behind = self._source.resolve(name)
            return behind is not name and holds(behind, deep + 1)
        return all(self._holds_of(name, each, holds, deep) for each in found)

    def _holds_of(self, name: cst.Name, binder: cst.CSTNode, holds: _Predicate, deep: int) -> bool:
        match binder:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name())], value=value):
                return holds(value, deep + 1)
            case cst.Param():
                function = self._source.enclosing(name)
                given = None if function is None else self._given(function, name.value)
                return bool(given) and all(holds(value, deep + 1) for value in given or ())
        return False

    def _given(self, function: Function, parameter: str) -> list[cst.BaseExpression] | None:
        """All that a parameter is given; None where that is not known."""
        for kernel in CUTILE.kernels(self._source):
            if kernel.function is function:
                return launch_values(self._source, kernel, parameter)
        if not function.name.rpartition(".")[2].startswith("_") or function.node.decorators:
            return None  # other files may call it, or whatever it is registered with
        found = []
        for mention in self._source.mentions(function):
            call = next(self._source.ancestors(mention))
            if not isinstance(call, cst.Call) or call.func is not mention:
                return None
            if any(arg.star for arg in call.args):
                return None
            default = next(p.default for p in function.parameters if p.name.value == parameter)
            value = given_to(function, call).get(parameter, default)
            if value is None:
                return None
            found.append(value)
        return found


def launch_values(
    source: Source, kernel: Kernel, parameter: str
) -> list[cst.BaseExpression] | None:
    """What launches of the file give a parameter; None where one of them does not show it.

    A launch of what is not known to be another kernel may be one of this kernel, as one that a
    search has chosen hints for. What a search itself runs is thrown away, and is not asked for.
    """
    if any(_escapes(source, mention) for mention in source.mentions(kernel.function)):
        return None
    parameters = kernel.function.parameters
    place = [p.name.value for p in parameters].index(parameter)
    has_defaults = any(p.default is not None for p in parameters)
    found: list[cst.BaseExpression] = []
    for call in source.calls:
        if source.name(call.func) != f"{CT}launch":
            continue
        launches = CUTILE.launches(source, call)
        if launches and all(launch.kernel is not kernel.function for launch in launches):
            continue
        given = argument(call, 3, "kernel_args")
        values = source.resolve(given) if given is not None else None
        is_fixed = isinstance(values, cst.Tuple) or (
            isinstance(values, cst.List) and values is given
        )
        if not is_fixed or any(isinstance(e, cst.StarredElement) for e in _elements(values)):
            return None
        if len(_elements(values)) == len(parameters):
            found.append(_elements(values)[place].value)
        elif launches or has_defaults:
            return None
    return found


def _elements(values: cst.BaseExpression | None) -> Sequence[cst.BaseElement]:
    return values.elements if isinstance(values, cst.Tuple | cst.List) else ()


def _escapes(source: Source, mention: cst.Name) -> bool:
    """Whether a kernel is handed to what may launch it out of sight."""
    for around in _calls_with(source, mention):
        called = source.name(around.func) or ""
        method = around.func.attr.value if isinstance(around.func, cst.Attribute) else called
        known = called == f"{CT}launch" or called.startswith(f"{CT}tune.") or called in _COMPARES
        if not (known or "replace_hints" in method or source.function_of(around.func)):
            return True
    return False


_COMPARES = ("builtins.id", "builtins.print", "builtins.isinstance")


def _calls_with(source: Source, mention: cst.Name) -> Iterator[cst.Call]:
    """The call that takes a mention as an argument, itself or in a tuple."""
    child: cst.CSTNode = mention
    for around in source.ancestors(mention):
        if isinstance(around, cst.Attribute | cst.BaseStatement | cst.Subscript):
            return
        if isinstance(around, cst.Call):
            if child is not around.func:
                yield around
            return
        child = around
