"""What expressions of a file compute, as far as that can be read off it: numbers, conditions.

Functions of the file are followed with what they are given. What a machine decides, as which GPU
there is, is read of nothing; a condition may be sure without.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import libcst as cst
from libcst.metadata.scope_provider import ImportAssignment

from agent.analysis.triton.tables import constants_of
from agent.syntax import Function, Source, argument, descendants

CONFIG = "triton.Config"
DEFAULTS = {"num_warps": (1, 4), "num_stages": (2, 3), "num_ctas": (3, 1)}
"""Option of a config -> its place, and its value where none is given."""
MOST_CALLS = 20
"""Of functions inside of each other."""
BINARY: Mapping[type[cst.CSTNode], Callable[[Any, Any], Any]] = {
    cst.Add: operator.add, cst.Subtract: operator.sub, cst.Multiply: operator.mul,
    cst.FloorDivide: operator.floordiv, cst.Divide: operator.truediv, cst.Modulo: operator.mod,
    cst.LeftShift: operator.lshift, cst.RightShift: operator.rshift,
}  # fmt: skip
COMPARED: Mapping[type[cst.CSTNode], Callable[[Any, Any], Any]] = {
    cst.LessThan: operator.lt, cst.LessThanEqual: operator.le, cst.Equal: operator.eq,
    cst.GreaterThan: operator.gt, cst.GreaterThanEqual: operator.ge, cst.NotEqual: operator.ne,
    cst.Is: operator.is_, cst.IsNot: operator.is_not,
}  # fmt: skip
LARGEST = 2**63
"""A number beyond is none of a config."""


class UnreadConfig(Exception):
    """A list's first element cannot be read off the source; the message says of what and why."""


@dataclass(frozen=True)
class Meant:
    """An expression with what the names of the comprehensions around it stand for.

    Attributes:
        node: the expression.
        names: what is bound by comprehensions around it, and by a lambda.
        given: what the function around it is called with.
        depth: how many functions are called around it.
    """

    node: cst.BaseExpression
    names: Mapping[str, Meant] = field(default_factory=dict)
    given: Mapping[str, Meant] = field(default_factory=dict)
    depth: int = 0

    def of(self, node: cst.BaseExpression) -> Meant:
        """Another expression at the same place."""
        return replace(self, node=node)

    def within(self, node: cst.BaseExpression, names: Mapping[str, Meant]) -> Meant:
        """Another expression, with further names bound."""
        return replace(self, node=node, names={**self.names, **names})


class ConfigValues(ABC):
    """Reads values of one file."""

    def __init__(self, source: Source) -> None:
        """Of that file."""
        self._source = source

    @abstractmethod
    def elements(self, meant: Meant) -> Iterator[Meant]:
        """The elements of a list, a tuple or what else is iterated over."""

    def behind(self, meant: Meant) -> Meant:
        """What a name stands for, or any other expression itself."""
        while (further := self.bound_to(meant) or self.resolved(meant)) is not None:
            meant = further
        return meant

    def bound_to(self, meant: Meant) -> Meant | None:
        """What a comprehension, or a call, has a name stand for."""
        if not isinstance(meant.node, cst.Name):
            return None
        if (found := meant.names.get(meant.node.value)) is not None:
            return found
        found = meant.given.get(meant.node.value)
        return found if found and len(self._source.assignments(meant.node)) <= 1 else None

    def resolved(self, meant: Meant) -> Meant | None:
        """What a name is assigned, which a function computes of what it is given."""
        behind = self._source.resolve(meant.node)
        if behind is meant.node:
            return None
        around = self._source.enclosing(behind)
        is_here = around is not None and around is self._source.enclosing(meant.node)
        return Meant(behind, {}, meant.given if is_here else {}, meant.depth)

    def returned(self, meant: Meant, node: cst.Call) -> Meant:
        """What a function of the file returns for the arguments of a call.

        Raises:
            UnreadConfig: it cannot be read.
        """
        function = self._source.function_of(node.func)
        if function is None:
            raise self.unread(node, "calls what is not in the file")
        if function.node.decorators or function.node.asynchronous:
            raise self.unread(node, "calls a function that is decorated")
        if meant.depth > MOST_CALLS:
            raise self.unread(node, "calls itself")
        given = self._given(meant, node, function)
        place = Meant(node, {}, given, meant.depth + 1)
        found = self._return_of(function.node.body, place)
        if found is None:
            raise self.unread(node, "has not one `return` that gives the list")
        return found

    def _given(self, meant: Meant, node: cst.Call, function: Function) -> dict[str, Meant]:
        """What the parameters of a function stand for in a call."""
        params = function.node.params
        if not isinstance(params.star_arg, cst.MaybeSentinel | cst.ParamStar) or params.star_kwarg:
            raise self.unread(node, "calls a function of any arguments")
        placed = [*params.posonly_params, *params.params]
        found = {
            each.name.value: Meant(each.default)
            for each in (*placed, *params.kwonly_params)
            if each.default is not None
        }
        names = iter([each.name.value for each in placed])
        for arg in node.args:
            name = arg.keyword.value if arg.keyword is not None else next(names, None)
            if arg.star or name is None:
                raise self.unread(node, "is given arguments that are not told apart")
            found[name] = meant.of(arg.value)
        for each in (*placed, *params.kwonly_params):
            if each.name.value not in found:
                raise self.unread(node, f"does not give `{each.name.value}`")
        return found

    def _return_of(self, block: cst.BaseSuite, place: Meant) -> Meant | None:
        """What a body returns; None where it comes to its end."""
        for statement in block.body:
            match statement:
                case cst.Return(value=cst.BaseExpression() as value):
                    return place.of(value)
                case cst.SimpleStatementLine(
                    body=[*_, cst.Return(value=cst.BaseExpression() as value)]
                ):
                    return place.of(value)
                case cst.If() if next(descendants(statement, cst.Return), None) is not None:
                    branch: Any = statement
                    while isinstance(branch, cst.If):
                        is_true = self.is_true(place.of(branch.test))
                        branch = branch.body if is_true else branch.orelse
                    suite = branch.body if isinstance(branch, cst.Else) else branch
                    found = self._return_of(suite, place) if suite is not None else None
                    if found is not None:
                        return found
                case _ if next(descendants(statement, cst.Return), None) is not None:
                    line = self._source.line(statement)
                    raise UnreadConfig(f"a `return` is not read, in line {line}")
        return None

    def why_unknown(self, node: cst.Name) -> str:
        """What keeps a name from standing for one expression."""
        assigned = self._source.assignments(node)
        if any(isinstance(each, ImportAssignment) for each in assigned):
            return "is of another file"
        if len(assigned) > 1:
            return f"is assigned {len(assigned)} times"
        return "is nothing that the file spells out"

    # --- values ----------------------------------------------------------------------------------

    def value(self, meant: Meant) -> Any:
        """What an expression computes: a number, a string, a truth value, or a tuple of them.

        Raises:
            UnreadConfig: it cannot be read.
        """
        node = meant.node
        try:
            found = self._value(meant, node)
        except (ArithmeticError, TypeError, ValueError) as problem:
            raise self.unread(node, f"fails ({problem})") from None
        if isinstance(found, int) and abs(found) >= LARGEST:
            raise self.unread(node, "is too large")
        return found

    def _value(self, meant: Meant, node: cst.BaseExpression) -> Any:
        match node:
            case cst.Integer() | cst.Float() | cst.SimpleString():
                return node.evaluated_value
            case cst.Name(value="True" | "False" | "None"):
                return {"True": True, "False": False}.get(node.value)
            case cst.Name():
                if (behind := self.bound_to(meant) or self.resolved(meant)) is not None:
                    return self.value(behind)
                raise self.unread(node, self.why_unknown(node))
            case cst.Attribute() | cst.Subscript() if (of := self._of_config(meant)) is not None:
                return self.value(of)
            case cst.Call() if self._source.function_of(node.func) is not None:
                return self.value(self.returned(meant, node))
            case cst.Tuple() | cst.List():
                return tuple(self.value(each) for each in self.elements(meant))
            case cst.UnaryOperation(operator=cst.Minus()):
                return -self.value(meant.of(node.expression))
            case cst.UnaryOperation(operator=cst.Not()):
                return not self.value(meant.of(node.expression))
            case cst.BinaryOperation(operator=cst.Power()):
                base, power = self.value(meant.of(node.left)), self.value(meant.of(node.right))
                if not isinstance(power, int) or not 0 <= power < 64:
                    raise self.unread(node, "is no small power")
                return base**power
            case cst.BinaryOperation() if type(node.operator) in BINARY:
                sides = self.value(meant.of(node.left)), self.value(meant.of(node.right))
                if not all(isinstance(side, int | float) for side in sides):
                    raise self.unread(node, "computes with something else than numbers")
                if isinstance(node.operator, cst.LeftShift) and sides[1] >= 64:
                    raise self.unread(node, "is too large")
                return BINARY[type(node.operator)](*sides)
            case cst.BooleanOperation():
                left = self.value(meant.of(node.left))
                is_and = isinstance(node.operator, cst.And)
                return self.value(meant.of(node.right)) if bool(left) is is_and else left
            case cst.Comparison() if all(type(c.operator) in COMPARED for c in node.comparisons):
                return self._compared(meant, node.left, node.comparisons)
            case cst.IfExp():
                test = self.value(meant.of(node.test))
                return self.value(meant.of(node.body if test else node.orelse))
        raise self.unread(node, "is not a value that the file spells out")

    def _compared(
        self, meant: Meant, first: cst.BaseExpression, others: Sequence[cst.ComparisonTarget]
    ) -> bool:
        left = self.value(meant.of(first))
        for each in others:
            right = self.value(meant.of(each.comparator))
            if not COMPARED[type(each.operator)](left, right):
                return False
            left = right
        return True

    def unread(self, node: cst.CSTNode, why: str) -> UnreadConfig:
        return UnreadConfig(f"`{self.code(node)}` {why}")

    def code(self, node: cst.CSTNode) -> str:
        code = self._source.code(node)
        return code if len(code) <= 60 else f"{code[:57]}..."

    def is_true(self, meant: Meant) -> bool:
        """Whether a condition holds; of `a and b` one that is false suffices, whatever the other.

        Raises:
            UnreadConfig: it cannot be read.
        """
        node = meant.node
        match node:
            case cst.UnaryOperation(operator=cst.Not()):
                return not self.is_true(meant.of(node.expression))
            case cst.BooleanOperation():
                is_or = isinstance(node.operator, cst.Or)
                try:
                    left = self.is_true(meant.of(node.left))
                except UnreadConfig:
                    if self.is_true(meant.of(node.right)) is is_or:
                        return is_or
                    raise
                return left if left is is_or else self.is_true(meant.of(node.right))
            case cst.Call() if self._source.function_of(node.func) is not None:
                return self.is_true(self.returned(meant, node))
            case cst.Name() if (behind := self.bound_to(meant) or self.resolved(meant)) is not None:
                return self.is_true(behind)
        return bool(self.value(meant))

    def _of_config(self, meant: Meant) -> Meant | None:
        """What `config.num_warps` or `config.kwargs["BLOCK"]` is; None for anything else."""
        match meant.node:
            case cst.Attribute(value=of, attr=cst.Name(value=name)) if name in DEFAULTS:
                place, default = DEFAULTS[name]
                if (config := self._config(meant.of(of))) is None:
                    return None
                assert isinstance(config.node, cst.Call)
                given = argument(config.node, place, name)
                return config.of(given) if given is not None else Meant(cst.Integer(str(default)))
            case cst.Subscript(
                value=cst.Attribute(value=of, attr=cst.Name(value="kwargs")),
                slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString() as key))],
            ):
                if (config := self._config(meant.of(of))) is None:
                    return None
                assert isinstance(config.node, cst.Call)
                table = argument(config.node, 0, "kwargs")
                known = self.behind(config.of(table)) if table is not None else None
                constants = constants_of(self._source, known.node) if known else None
                found = (constants or {}).get(str(key.raw_value))
                return known.of(found) if known and found is not None else None
        return None

    def _config(self, meant: Meant) -> Meant | None:
        """The config that an expression stands for."""
        found = self.behind(meant)
        is_one = isinstance(found.node, cst.Call) and self._source.name(found.node.func) == CONFIG
        return found if is_one else None
