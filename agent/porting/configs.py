"""The first of the configs that `@triton.autotune` is given, where it can be read off the source.

Lists may be written out, joined by `+`, made by comprehensions over what the file spells out,
filtered, or returned by a function of the file, also for arguments that can be read.

A condition may ask what no text tells, as which GPU there is. What it surely takes is taken then:
the first config that is in the list on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product
from typing import TypeVar

import libcst as cst

from agent.porting.config_values import ConfigValues, Meant, UnreadConfig
from agent.syntax import descendants

Element = TypeVar("Element")

REORDERED = ("clear", "insert", "pop", "remove", "reverse", "sort")
"""Methods of a list after which its first element is another."""
FILTERS = ("filter", "builtins.filter")
LISTS = ("list", "tuple", "builtins.list", "builtins.tuple")
MOST_LOOKED_AT = 10_000
"""Elements that a condition refuses, before one that it takes."""


class ConfigReader(ConfigValues):
    """Reads lists of configs of one file."""

    def first(self, node: cst.BaseExpression) -> Meant:
        """The first element of a list.

        Raises:
            UnreadConfig: it cannot be read.
        """
        found = next(self.elements(Meant(node)), None)
        if found is None:
            raise UnreadConfig(f"`{self.code(node)}` is empty")
        found = self.behind(found)
        if isinstance(found.node, cst.Name):
            raise self.unread(found.node, self.why_unknown(found.node))
        return found

    def written(self, meant: Meant) -> cst.BaseExpression:
        """An expression as it can stand elsewhere: without the names of comprehensions.

        Raises:
            UnreadConfig: what it computes of them cannot be read.
        """
        bound = meant.names.keys() | meant.given.keys()
        names = descendants(meant.node, cst.Name)
        if not any(each.value in bound or self._is_local(each) for each in names):
            return meant.node
        value = self.value(meant)
        if isinstance(value, float) and abs(value) == float("inf"):
            raise self.unread(meant.node, "is not finite")
        return cst.parse_expression(repr(value))

    def _is_local(self, name: cst.Name) -> bool:
        """Whether a name is one of a function's."""
        assigned = self._source.assignments(name)
        return bool(assigned) and all(self._source.enclosing(each.node) for each in assigned)

    # --- elements --------------------------------------------------------------------------------

    def elements(self, meant: Meant) -> Iterator[Meant]:
        """The elements of a list, a tuple or what else is iterated over."""
        node = meant.node
        match node:
            case cst.Name():
                bound = self.bound_to(meant)
                yield from self.elements(bound) if bound else self._elements_of_name(meant, node)
            case cst.List() | cst.Tuple():
                for element in node.elements:
                    if isinstance(element, cst.StarredElement):
                        yield from self.elements(meant.of(element.value))
                    else:
                        yield meant.of(element.value)
            case cst.BinaryOperation(operator=cst.Add()):
                yield from self.elements(meant.of(node.left))
                yield from self.elements(meant.of(node.right))
            case cst.ListComp() | cst.GeneratorExp():
                for round_ in self._rounds(node.for_in, meant):
                    yield round_.of(node.elt)
            case cst.Call():
                yield from self._elements_of_call(meant, node)
            case _:
                raise self.unread(node, "is no list that the file spells out")

    def _elements_of_name(self, meant: Meant, node: cst.Name) -> Iterator[Meant]:
        for call in self._source.calls:
            match call.func:
                case cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value=method)):
                    if name == node.value and method in REORDERED:
                        raise self.unread(node, f"is changed by `.{method}()`")
        behind = self.resolved(meant)
        if behind is None:
            raise self.unread(node, self.why_unknown(node))
        is_empty = True
        for element in self.elements(behind):
            yield element
            is_empty = False
        if is_empty:
            yield from self._appended(node, behind)

    def _appended(self, node: cst.Name, empty: Meant) -> Iterator[Meant]:
        """What the statements below an empty list append to it, in a function."""
        around = list(self._source.ancestors(self._source.assignments(node)[0].node))
        place = next(n for n, a in enumerate(around) if isinstance(a, cst.SimpleStatementLine))
        block = around[place + 1]
        if isinstance(block, cst.IndentedBlock):
            below = block.body[block.body.index(around[place]) + 1 :]
            for statement in below:
                yield from self._appends(statement, node.value, empty)

    def _appends(self, statement: cst.CSTNode, name: str, place: Meant) -> Iterator[Meant]:
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
                yield place.of(appended)
            case cst.For(orelse=None) if mentions and not leaves:
                for element in self.elements(place.of(statement.iter)):
                    inner = place.within(place.node, self._bound(statement.target, element))
                    for each in statement.body.body:
                        yield from self._appends(each, name, inner)
            case cst.If(orelse=None) if mentions and not leaves:
                if self.is_true(place.of(statement.test)):
                    for each in statement.body.body:
                        yield from self._appends(each, name, place)
            case _ if mentions or leaves:
                line = self._source.line(statement)
                raise UnreadConfig(f"`{name}` is filled in a way that is not read, in line {line}")

    def _elements_of_call(self, meant: Meant, node: cst.Call) -> Iterator[Meant]:
        named = self._source.name(node.func)
        given = [each.value for each in node.args if each.keyword is None and not each.star]
        plain = len(given) == len(node.args)
        if plain and named in LISTS and len(given) == 1:
            yield from self.elements(meant.of(given[0]))
        elif plain and named in ("range", "builtins.range") and 1 <= len(given) <= 3:
            ends = [self.value(meant.of(each)) for each in given]
            if not all(isinstance(end, int) for end in ends) or not all(ends[2:]):
                raise self.unread(node, "is no range")
            yield from (Meant(cst.parse_expression(repr(each))) for each in range(*ends))
        elif plain and named == "itertools.product" and given:
            lists = ([self.value(e) for e in self.elements(meant.of(each))] for each in given)
            yield from (Meant(cst.parse_expression(repr(each))) for each in product(*lists))
        elif plain and named in FILTERS and len(given) == 2:
            elements = self.elements(meant.of(given[1]))
            takes = partial(self._takes, meant.of(given[0]))
            yield from self._surely((partial(takes, each), each) for each in elements)
        else:
            yield from self.elements(self.returned(meant, node))

    def _takes(self, condition: Meant, element: Meant) -> bool:
        """Whether a function lets an element through."""
        node = condition.node
        if isinstance(node, cst.Lambda) and len(node.params.params) == 1:
            bound = {node.params.params[0].name.value: element}
            return self.is_true(condition.within(node.body, bound))
        call = cst.Call(node, [cst.Arg(cst.Name("element"))])
        place = Meant(call, {"element": element}, {}, condition.depth)
        return self.is_true(self.returned(place, call))

    def _surely(self, each: Iterable[tuple[Callable[[], bool], Element]]) -> Iterator[Element]:
        """What its condition takes; what nobody can tell that of is passed over.

        Raises:
            UnreadConfig: it is all of them.
        """
        unread: UnreadConfig | None = None
        taken = passed_over = 0
        for condition, element in each:
            try:
                is_taken = condition()
            except UnreadConfig as problem:
                unread, is_taken = unread or problem, False
            if is_taken:
                yield element
                taken += 1
            elif (passed_over := passed_over + 1) > MOST_LOOKED_AT:
                raise UnreadConfig("a list of configs is too long")
        if unread is not None and not taken:
            raise unread

    def _rounds(self, loop: cst.CompFor, meant: Meant) -> Iterator[Meant]:
        """The place inside of a comprehension, round by round."""

        def is_taken(inner: Meant) -> bool:
            return all(self.is_true(inner.of(each.test)) for each in loop.ifs)

        elements = self.elements(meant.of(loop.iter))
        places = (meant.within(loop.iter, self._bound(loop.target, each)) for each in elements)
        for inner in self._surely((partial(is_taken, place), place) for place in places):
            if loop.inner_for_in is not None:
                yield from self._rounds(loop.inner_for_in, inner)
            else:
                yield inner

    def _bound(self, target: cst.BaseExpression, element: Meant) -> dict[str, Meant]:
        if isinstance(target, cst.Name):
            return {target.value: element}
        if isinstance(target, cst.Tuple | cst.List):
            items = list(self.elements(element))
            if len(items) == len(target.elements):
                pairs = zip(target.elements, items, strict=True)
                return {
                    k: v for part, item in pairs for k, v in self._bound(part.value, item).items()
                }
        raise self.unread(target, "is bound to something else than names")
