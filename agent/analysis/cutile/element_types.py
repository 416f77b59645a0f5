"""Element types of a cuTile kernel's tiles, as far as known statically: float32, or small.

Rounding modes and flushing to zero exist for float32 alone: on a tile of another type cuda-tile
refuses to compile. What a kernel loads has the type of the caller's array, so that only a cast, an
accumulator, or what is computed from one of them is certain. Through helpers of the file it is
followed both ways: what they return, and, where their name says that no other file calls them,
what they are handed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import libcst as cst

from agent.analysis.common.reaching_definitions import definition
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.syntax import Function, Source, argument, assigned, descendants, positional

FLOAT32 = f"{CT}float32"
MADE = {f"{CT}full": 2, f"{CT}zeros": 1, f"{CT}ones": 1}
"""What makes a tile -> the position of its element type."""
KEEPING = frozenset(
    f"{CT}{name}"
    for name in (
        "abs", "broadcast_to", "ceil", "cos", "cosh", "cumprod", "cumsum", "exp", "exp2",
        "expand_dims", "extract", "floor", "log", "log2", "max", "min", "negative", "permute",
        "prod", "reshape", "rsqrt", "sin", "sinh", "sqrt", "sum", "tan", "tanh", "transpose",
    )
)  # fmt: skip
"""Functions whose result has the element type of their first argument."""
PROMOTING = {
    f"{CT}{name}": 0
    for name in ("add", "atan2", "maximum", "minimum", "mul", "pow", "sub", "truediv")
} | {f"{CT}where": 1}
"""Functions that promote two arguments to one type -> the position of the first of them."""
REDUCTIONS = tuple(f"{CT}{name}" for name in ("max", "min", "prod", "sum"))
METHODS = ("permute", "reshape", "transpose")
"""Methods of a tile that keep its element type."""
ARITHMETIC = (cst.Add, cst.Divide, cst.Multiply, cst.Power, cst.Subtract)


class TypesOfFunction(ABC):
    """Something that holds, or does not, of the types of the tiles of one function.

    It is followed to the helpers of the file that the function calls, and to what calls it.
    """

    in_circles: ClassVar[bool]
    """What is answered where the answer hangs on itself."""

    def __init__(
        self, source: Source, function: Function, waiting: frozenset[str] = frozenset()
    ) -> None:
        """Of a kernel, or of a helper that a kernel calls.

        Args:
            source: of the file.
            function: which one.
            waiting: parameters and results of helpers that are being asked about.
        """
        self._source = source
        self._function = function
        self._waiting = waiting
        self._is_kernel = source.decorator(function, CUTILE.decorator) is not None

    @abstractmethod
    def holds(self, expression: cst.BaseExpression) -> bool:
        """Whether it holds of an expression of the function."""

    def _in(self, function: Function, expression: cst.BaseExpression, key: str) -> bool:
        """Whether it holds of an expression of another function, on which `key` hangs."""
        if key in self._waiting:
            return self.in_circles
        return type(self)(self._source, function, self._waiting | {key}).holds(expression)

    def _handed(self, parameter: str) -> list[bool | None] | None:
        """Whether it holds of what each call gives for a parameter, None where that is not shown.

        None as a whole where the function is mentioned otherwise than to be called.
        """
        names = [p.name.value for p in self._function.parameters]
        found: list[bool | None] = []
        for mention in self._source.mentions(self._function):
            call = next(self._source.ancestors(mention), None)
            caller = self._source.enclosing(mention)
            if not isinstance(call, cst.Call) or call.func is not mention or caller is None:
                return None
            given = argument(call, names.index(parameter), parameter)
            key = f"{self._function.name}({parameter})"
            found.append(None if given is None else self._in(caller, given, key))
        return found


class ElementTypes(TypesOfFunction):
    """What the text of one function tells of its local tiles."""

    in_circles = False

    def holds(self, expression: cst.BaseExpression) -> bool:
        """Whether an expression is a float32 tile for certain."""
        return self.is_float32(expression)

    def is_float32(self, expression: cst.BaseExpression) -> bool:
        """Whether an expression is a float32 tile whatever the kernel is launched with.

        One float32 operand makes an operation float32: cuda-tile promotes every smaller type to
        it. A float64 operand would not be caught; the result then fails to compile.
        """
        return self._is_float32(expression, frozenset())

    def is_reduced(self, expression: cst.BaseExpression) -> bool:
        """Whether an expression is computed from scalars, and sums and the like of tiles, alone."""
        match expression:
            case cst.Integer() | cst.Float() | cst.Attribute() | cst.Subscript():
                return True
            case cst.Name():
                found = definition(self._source, expression.value, expression)
                if found is None or found.index is not None:
                    return False
                if isinstance(found.node, cst.Param):
                    return self._is_kernel  # a helper may be handed a tile
                if isinstance(found.node, cst.For):
                    return True
                return found.value is not None and self.is_reduced(found.value)
            case cst.UnaryOperation():
                return self.is_reduced(expression.expression)
            case cst.BinaryOperation():
                return self.is_reduced(expression.left) and self.is_reduced(expression.right)
            case cst.Call():
                called = CUTILE.called(self._source, expression) or ""
                if called in (*CUTILE.loads, *CUTILE.accumulators, *CUTILE.iotas):
                    return False
                return called in REDUCTIONS or (
                    CUTILE.owns(called) and all(self.is_reduced(v) for v in positional(expression))
                )
        return False

    @cached_property
    def _values(self) -> Mapping[str, tuple[cst.BaseExpression | None, ...]]:
        """Local name -> all it is assigned; None stands for what is not a plain value."""
        found: dict[str, list[cst.BaseExpression | None]] = {}
        for target, value in assigned(self._function.node.body):
            plain = isinstance(target, cst.Name)
            for name in descendants(target, cst.Name):
                found.setdefault(name.value, []).append(value if plain else None)
        for loop in descendants(self._function.node.body, cst.For):
            for name in descendants(loop.target, cst.Name):
                found[name.value] = [None]
        return {name: tuple(values) for name, values in found.items()}

    def _is_float32(self, node: cst.BaseExpression, assumed: frozenset[str]) -> bool:
        match node:
            case cst.Name():
                return self._name(node, assumed)
            case cst.UnaryOperation(operator=cst.Minus()):
                return self._is_float32(node.expression, assumed)
            case cst.BinaryOperation(operator=operator) if isinstance(operator, ARITHMETIC):
                return any(self._is_float32(side, assumed) for side in (node.left, node.right))
            case cst.IfExp():
                return all(self._is_float32(side, assumed) for side in (node.body, node.orelse))
            case cst.Call():
                return self._call(node, assumed)
        return False

    def _name(self, name: cst.Name, assumed: frozenset[str]) -> bool:
        """The assignment that reaches the place is float32, or else every one in the function.

        An accumulator may be computed from itself: it is what it was to begin with.
        """
        if name.value in assumed:
            return True
        reaching = definition(self._source, name.value, name)
        if reaching is not None and isinstance(reaching.node, cst.Param):
            return self._is_handed_float32(name.value)
        if reaching is not None:
            plain = reaching.index is None and not isinstance(reaching.node, cst.For)
            value = reaching.value if plain else None
            return value is not None and self._is_float32(value, assumed)
        values = self._values.get(name.value, ())
        return bool(values) and all(
            value is not None and self._is_float32(value, assumed | {name.value})
            for value in values
        )

    def _call(self, call: cst.Call, assumed: frozenset[str]) -> bool:
        called = self._source.name(call.func) or ""
        if called == f"{CT}astype":
            return self._names_float32(argument(call, 1, "dtype"))
        if called in MADE:
            return self._names_float32(argument(call, MADE[called], "dtype"))
        if called in KEEPING:
            first = argument(call, 0, "x")
            return first is not None and self._is_float32(first, assumed)
        if called in PROMOTING:
            place = PROMOTING[called]
            sides = (argument(call, place, "x"), argument(call, place + 1, "y"))
            return any(side is not None and self._is_float32(side, assumed) for side in sides)
        if called == f"{CT}mma":
            accumulator = argument(call, 2, "acc")
            return accumulator is not None and self._is_float32(accumulator, assumed)
        if (helper := self._source.function_of(call.func)) is not None:
            return self._returns_float32(helper)
        if isinstance(call.func, cst.Attribute) and not CUTILE.owns(called):
            method = call.func.attr.value
            if method == "astype":
                return self._names_float32(argument(call, 0, "dtype"))
            return method in METHODS and self._is_float32(call.func.value, assumed)
        return False

    def _is_handed_float32(self, parameter: str) -> bool:
        """Whether it is a parameter of a helper that only this file calls, float32 each time."""
        if self._is_kernel or not self._function.name.startswith("_"):
            return False
        handed = self._handed(parameter)
        return bool(handed) and all(handed or ())

    def _returns_float32(self, function: Function) -> bool:
        """Whether a helper gives a float32 tile wherever it returns."""
        returned = [
            node.value
            for node in descendants(function.node.body, cst.Return)
            if self._source.enclosing(node) is function
        ]
        return bool(returned) and all(
            value is not None and self._in(function, value, function.name) for value in returned
        )

    def _names_float32(self, dtype: cst.BaseExpression | None) -> bool:
        return dtype is not None and self._source.name(dtype) == FLOAT32
