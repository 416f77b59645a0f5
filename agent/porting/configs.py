"""The first of the configs that `@triton.autotune` is given, where it can be read off the source.

Lists may be written out, joined by `+`, made by comprehensions over what the file spells out, or
returned by a function of the file that takes no arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import libcst as cst
from libcst.metadata.scope_provider import ImportAssignment

from agent.syntax import Source, descendants

REORDERED = ("clear", "insert", "pop", "remove", "reverse", "sort")
"""Methods of a list after which its first element is another."""
LISTS = ("list", "tuple", "builtins.list", "builtins.tuple")
BINARY: Mapping[type[cst.CSTNode], Callable[[Any, Any], Any]] = {
    cst.Add: operator.add, cst.Subtract: operator.sub, cst.Multiply: operator.mul,
    cst.FloorDivide: operator.floordiv, cst.Divide: operator.truediv, cst.Modulo: operator.mod,
    cst.LeftShift: operator.lshift, cst.RightShift: operator.rshift,
}  # fmt: skip
COMPARED: Mapping[type[cst.CSTNode], Callable[[Any, Any], Any]] = {
    cst.LessThan: operator.lt, cst.LessThanEqual: operator.le, cst.Equal: operator.eq,
    cst.GreaterThan: operator.gt, cst.GreaterThanEqual: operator.ge, cst.NotEqual: operator.ne,
}  # fmt: skip
LARGEST = 2**63
"""A number beyond is none of a config."""
MOST_LOOKED_AT = 10_000
"""Elements that a condition refuses, before one that it takes."""


class UnreadConfig(Exception):
    """A list's first element cannot be read off the source; the message says of what and why."""


@dataclass(frozen=True)
class Meant:
    """An expression with what the names of the comprehensions around it stand for."""

    node: cst.BaseExpression
    names: Mapping[str, Meant] = field(default_factory=dict)

    def of(self, node: cst.BaseExpression) -> Meant:
        """Another expression at the same place."""
        return Meant(node, self.names)


class ConfigReader:
    """Reads lists of configs of one file."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._inside: set[cst.CSTNode] = set()  # names and functions that are being read

    def first(self, node: cst.BaseExpression) -> Meant:
        """The first element of a list.

        Raises:
            UnreadConfig: it cannot be read.
        """
        found = next(self._elements(Meant(node)), None)
        if found is None:
            raise UnreadConfig(f"`{self._code(node)}` is empty")
        found = self.behind(found)
        if isinstance(found.node, cst.Name):
            raise self._unread(found.node, self._why_unknown(found.node))
        return found

    def behind(self, meant: Meant) -> Meant:
        """What a name stands for, or any other expression itself."""
        while isinstance(meant.node, cst.Name) and meant.node.value in meant.names:
            meant = meant.names[meant.node.value]
        resolved = self._source.resolve(meant.node)
        return meant if resolved is meant.node else Meant(resolved)

    def written(self, meant: Meant) -> cst.BaseExpression:
        """An expression as it can stand elsewhere: without the names of comprehensions.

        Raises:
            UnreadConfig: what it computes of them cannot be read.
        """
        names = (each.value for each in descendants(meant.node, cst.Name))
        if meant.names.keys().isdisjoint(names):
            return meant.node
        value = self.value(meant)
        if isinstance(value, float) and abs(value) == float("inf"):
            raise self._unread(meant.node, "is not finite")
        return cst.parse_expression(repr(value))

    # --- elements --------------------------------------------------------------------------------

    def _elements(self, meant: Meant) -> Iterator[Meant]:
        """The elements of a list, a tuple or what else is iterated over."""
        node = meant.node
        match node:
            case cst.Name() if node.value in meant.names:
                yield from self._elements(meant.names[node.value])
            case cst.Name():
                yield from self._elements_of_name(node)
            case cst.List() | cst.Tuple():
                for element in node.elements:
                    if isinstance(element, cst.StarredElement):
                        yield from self._elements(meant.of(element.value))
                    else:
                        yield meant.of(element.value)
            case cst.BinaryOperation(operator=cst.Add()):
                yield from self._elements(meant.of(node.left))
                yield from self._elements(meant.of(node.right))
            case cst.ListComp() | cst.GeneratorExp():
                for names in self._rounds(node.for_in, meant):
                    yield Meant(node.elt, names)
            case cst.Call():
                yield from self._elements_of_call(meant, node)
            case _:
                raise self._unread(node, "is no list that the file spells out")

    def _elements_of_name(self, node: cst.Name) -> Iterator[Meant]:
        for call in self._source.calls:
            match call.func:
                case cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value=method)):
                    if name == node.value and method in REORDERED:
                        raise self._unread(node, f"is changed by `.{method}()`")
        behind = self._source.resolve(node)
        if behind is node:
            raise self._unread(node, self._why_unknown(node))
        is_empty = True
        for element in self._elements(Meant(behind)):
            yield element
            is_empty = False
        if is_empty:
            yield from self._appended(node)

    def _why_unknown(self, node: cst.Name) -> str:
        """What keeps a name from standing for one expression."""
        assigned = self._source.assignments(node)
        if any(isinstance(each, ImportAssignment) for each in assigned):
            return "is of another file"
        if len(assigned) > 1:
            return f"is assigned {len(assigned)} times"
        return "is nothing that the file spells out"

    def _appended(self, node: cst.Name) -> Iterator[Meant]:
        """What the statements below an empty list append to it, in a function."""
        around = list(self._source.ancestors(self._source.assignments(node)[0].node))
        place = next(n for n, a in enumerate(around) if isinstance(a, cst.SimpleStatementLine))
        block = around[place + 1]
        if isinstance(block, cst.IndentedBlock):
            below = block.body[block.body.index(around[place]) + 1 :]
            for statement in below:
                yield from self._appends(statement, node.value, {})

    def _appends(
        self, statement: cst.CSTNode, name: str, names: Mapping[str, Meant]
    ) -> Iterator[Meant]:
        """What one statement appends, in loops and below conditions too."""
        mentions = any(each.value == name for each in descendants(statement, cst.Name))
        leaves = any(
            next(descendants(statement, kind), None) is not None
            for kind in (cst.Continue, cst.Break, cst.Raise)
        )
        match statement:
            case cst.SimpleStatementLine(body=[cst.Return()]):
                return
            case cst.SimpleStatementLine(
                body=[
                    cst.Expr(
                        value=cst.Call(
                            func=cst.Attribute(
                                value=cst.Name(value=owner), attr=cst.Name(value="append")
                            ),
                            args=[cst.Arg(value=appended, keyword=None, star="")],
                        )
                    )
                ]
            ) if owner == name:
                yield Meant(appended, names)
            case cst.For(orelse=None) if mentions and not leaves:
                for element in self._elements(Meant(statement.iter, names)):
                    inner = {**names, **self._bound(statement.target, element)}
                    for each in statement.body.body:
                        yield from self._appends(each, name, inner)
            case cst.If(orelse=None) if mentions and not leaves:
                if self.value(Meant(statement.test, names)):
                    for each in statement.body.body:
                        yield from self._appends(each, name, names)
            case _ if mentions or leaves:
                line = self._source.line(statement)
                raise UnreadConfig(f"`{name}` is filled in a way that is not read, in line {line}")

    def _elements_of_call(self, meant: Meant, node: cst.Call) -> Iterator[Meant]:
        named = self._source.name(node.func)
        given = [each.value for each in node.args if each.keyword is None and not each.star]
        plain = len(given) == len(node.args)
        if plain and named in LISTS and len(given) == 1:
            yield from self._elements(meant.of(given[0]))
        elif plain and named in ("range", "builtins.range") and 1 <= len(given) <= 3:
            ends = [self.value(meant.of(each)) for each in given]
            if not all(isinstance(end, int) for end in ends) or not all(ends[2:]):
                raise self._unread(node, "is no range")
            yield from (Meant(cst.parse_expression(repr(each))) for each in range(*ends))
        elif plain and named == "itertools.product" and given:
            lists = ([self.value(e) for e in self._elements(meant.of(each))] for each in given)
            yield from (Meant(cst.parse_expression(repr(each))) for each in product(*lists))
        else:
            yield from self._elements_of_function(node)

    def _elements_of_function(self, node: cst.Call) -> Iterator[Meant]:
        function = self._source.function_of(node.func)
        if function is None:
            raise self._unread(node, "calls what is not in the file")
        if node.args:
            raise self._unread(node, "is given arguments")
        returns = [
            each
            for each in descendants(function.node.body, cst.Return)
            if self._source.enclosing(each) is function
        ]
        value = returns[0].value if len(returns) == 1 else None
        if value is None or function.node.decorators or function.node.asynchronous:
            raise self._unread(node, "has not one `return` that gives the list")
        if function.node in self._inside:
            raise self._unread(node, "calls itself")
        self._inside.add(function.node)
        yield from self._elements(Meant(value))
        self._inside.discard(function.node)

    def _rounds(self, loop: cst.CompFor, meant: Meant) -> Iterator[Mapping[str, Meant]]:
        """What the names of a comprehension stand for, round by round."""
        passed_over = 0
        for element in self._elements(meant.of(loop.iter)):
            names = {**meant.names, **self._bound(loop.target, element)}
            if not all(self.value(Meant(each.test, names)) for each in loop.ifs):
                passed_over += 1
                if passed_over > MOST_LOOKED_AT:
                    raise self._unread(loop.iter, "is too long")
            elif loop.inner_for_in is not None:
                yield from self._rounds(loop.inner_for_in, Meant(loop.iter, names))
            else:
                yield names

    def _bound(self, target: cst.BaseExpression, element: Meant) -> dict[str, Meant]:
        if isinstance(target, cst.Name):
            return {target.value: element}
        if isinstance(target, cst.Tuple | cst.List):
            items = list(self._elements(element))
            if len(items) == len(target.elements):
                pairs = zip(target.elements, items, strict=True)
                return {
                    k: v for part, item in pairs for k, v in self._bound(part.value, item).items()
                }
        raise self._unread(target, "is bound to something else than names")

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
            raise self._unread(node, f"fails ({problem})") from None
        if isinstance(found, int) and abs(found) >= LARGEST:
            raise self._unread(node, "is too large")
        return found

    def _value(self, meant: Meant, node: cst.BaseExpression) -> Any:
        match node:
            case cst.Integer() | cst.Float() | cst.SimpleString():
                return node.evaluated_value
            case cst.Name(value="True" | "False" | "None"):
                return {"True": True, "False": False}.get(node.value)
            case cst.Name() if node.value in meant.names:
                return self.value(meant.names[node.value])
            case cst.Name():
                behind = self._source.resolve(node)
                if behind is not node:
                    return self.value(Meant(behind))
                raise self._unread(node, self._why_unknown(node))
            case cst.Tuple() | cst.List():
                return tuple(self.value(each) for each in self._elements(meant))
            case cst.UnaryOperation(operator=cst.Minus()):
                return -self.value(meant.of(node.expression))
            case cst.UnaryOperation(operator=cst.Not()):
                return not self.value(meant.of(node.expression))
            case cst.BinaryOperation(operator=cst.Power()):
                base, power = self.value(meant.of(node.left)), self.value(meant.of(node.right))
                if not isinstance(power, int) or not 0 <= power < 64:
                    raise self._unread(node, "is no small power")
                return base**power
            case cst.BinaryOperation() if type(node.operator) in BINARY:
                sides = self.value(meant.of(node.left)), self.value(meant.of(node.right))
                if not all(isinstance(side, int | float) for side in sides):
                    raise self._unread(node, "computes with something else than numbers")
                if isinstance(node.operator, cst.LeftShift) and sides[1] >= 64:
                    raise self._unread(node, "is too large")
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
        raise self._unread(node, "is not a value that the file spells out")

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

    def _unread(self, node: cst.CSTNode, why: str) -> UnreadConfig:
        return UnreadConfig(f"`{self._code(node)}` {why}")

    def _code(self, node: cst.CSTNode) -> str:
        code = self._source.code(node)
        return code if len(code) <= 60 else f"{code[:57]}..."
