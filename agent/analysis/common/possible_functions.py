"""Which functions of the file an expression may stand for, where that is not one by its name.

A launch may name a parameter that callers hand a kernel to, an entry of a table of kernels, or what
a condition chose. What is found is all that it may be: a name that is assigned in a way that is not
followed, a table that changes when the program runs, and a function that others may call with
something else give nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

import libcst as cst
from libcst.metadata.scope_provider import ImportAssignment

from agent.syntax import Function, Source, descendants

MOST_STEPS = 200
"""Names and calls that are followed for one launch."""
READS = frozenset({"get", "items", "keys", "values"})
"""Methods of a table that leave it as it is."""
LOOKS = frozenset({f"builtins.{n}" for n in ("len", "list", "set", "sorted", "tuple")})
"""Functions that leave a table as it is, and hand none of its kernels on but in a copy."""
AROUND = (cst.Element, cst.StarredElement, cst.Tuple, cst.List)
"""What may be between a target and the statement that assigns to it."""


class _NotKnown(Exception):
    """It may be something that the file does not show."""


@lru_cache(maxsize=2**10)
def possible_functions(source: Source, expression: cst.BaseExpression) -> tuple[Function, ...]:
    """All functions that an expression may be, in the order of the file; none: it is not known."""
    try:
        found = {function.node for function in _Possible(source).values(expression)}
    except _NotKnown:
        return ()
    return tuple(function for function in source.functions if function.node in found)


class _Possible:
    """One search."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._functions = {function.node: function for function in source.functions}
        self._open: set[cst.CSTNode] = set()
        """What assigns the names that are being followed: of a function that calls itself, too."""
        self._steps = 0

    def values(self, expression: cst.BaseExpression) -> Iterator[Function]:
        """The functions that an expression may be. Raises `_NotKnown`."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise _NotKnown
        match expression:
            case cst.Name(value="None"):
                return  # nothing that could be launched
            case cst.Name():
                yield from self._named(expression)
            case cst.IfExp(body=one, orelse=other):
                yield from self.values(one)
                yield from self.values(other)
            case cst.NamedExpr(value=value):
                yield from self.values(value)
            case cst.Subscript(value=table, slice=[cst.SubscriptElement(slice=cst.Index())]):
                yield from self._all(self._elements(table))
            case cst.Call(
                func=cst.Attribute(value=table, attr=cst.Name(value="get")), args=[_, *others]
            ) if len(others) < 2 and not any(a.star for a in expression.args):
                yield from self._all([*self._elements(table), *(a.value for a in others)])
            case _:
                raise _NotKnown

    def _all(self, expressions: Sequence[cst.BaseExpression]) -> Iterator[Function]:
        for expression in expressions:
            yield from self.values(expression)

    def _named(self, name: cst.Name) -> Iterator[Function]:
        """By every assignment of the name, wherever the program may come from."""
        assignments = self._source.assignments(name)
        if not assignments or name.value in self._captured:
            raise _NotKnown
        for assignment in assignments:
            node = assignment.node
            if isinstance(assignment, ImportAssignment) or node is None:
                raise _NotKnown
            if isinstance(node, cst.FunctionDef):
                yield self._functions[node]
            elif node not in self._open:
                self._open.add(node)
                yield from self._assigned(node)
                self._open.discard(node)

    def _assigned(self, node: cst.CSTNode) -> Iterator[Function]:
        """What a parameter, or the target of a statement, may be given."""
        if isinstance(node, cst.Param):
            yield from self._all(list(self._handed(node)))
        elif (value := self._source.assigned_to(node)) is not None:
            yield from self.values(value)
        else:
            around = next(self._source.ancestors(node))
            if isinstance(around, cst.NamedExpr) and around.target is node:
                yield from self.values(around.value)
            else:
                yield from self._all(self._rounds(node))

    def _rounds(self, target: cst.CSTNode) -> list[cst.BaseExpression]:
        """What a loop's variable is, round by round: `for f in (a, b)`, `for n, f in t.items()`."""
        place: int | None = None
        around, *others = self._source.ancestors(target)
        if isinstance(around, cst.Element) and isinstance(others[0], cst.Tuple | cst.List):
            if any(isinstance(each, cst.StarredElement) for each in others[0].elements):
                raise _NotKnown
            place = [*others[0].elements].index(around)
            target, around = others[0], others[1]
        if not isinstance(around, cst.For | cst.CompFor) or around.target is not target:
            raise _NotKnown
        match around.iter:
            case cst.Call(func=cst.Attribute(value=table, attr=cst.Name(value=method)), args=[]):
                if (method, place) not in (("values", None), ("items", 1)):
                    raise _NotKnown
                return self._elements(table, mapping=True)
        rows = self._elements(around.iter, mapping=False)
        if place is None:
            return rows
        found: list[cst.BaseExpression] = []
        for row in rows:
            parts = _listed(row)
            if isinstance(row, cst.Set) or parts is None or place >= len(parts):
                raise _NotKnown
            found.append(parts[place])
        return found

    # --- tables -----------------------------------------------------------------------------------

    def _elements(
        self, table: cst.BaseExpression, *, mapping: bool | None = None
    ) -> list[cst.BaseExpression]:
        """The values of a table that nothing changes.

        Args:
            table: it, or its name.
            mapping: whether it has to be a dict, or must be none.
        """
        written = table
        if isinstance(table, cst.Name):
            assignments = self._source.assignments(table)
            if len(assignments) != 1 or table.value in self._captured:
                raise _NotKnown
            node = assignments[0].node
            value = self._source.assigned_to(node) if node is not None else None
            uses = self._source.uses(assignments[0])
            if value is None or not all(map(self._is_read, uses)):
                raise _NotKnown
            written = value
        found = self._values(written)
        is_mapping = not isinstance(written, cst.List | cst.Tuple | cst.Set)
        if found is None or mapping not in (None, is_mapping):
            raise _NotKnown
        return found

    def _values(self, table: cst.BaseExpression) -> list[cst.BaseExpression] | None:
        """The values of a table where it is written."""
        if isinstance(table, cst.Dict):
            pairs = [each for each in table.elements if isinstance(each, cst.DictElement)]
            return [e.value for e in pairs] if len(pairs) == len(table.elements) else None
        if isinstance(table, cst.Call) and self._source.name(table.func) == "builtins.dict":
            by_name = all(argument.keyword is not None for argument in table.args)
            return [argument.value for argument in table.args] if by_name else None
        return _listed(table)

    def _is_read(self, use: cst.Name) -> bool:
        """Whether a use of a table's name leaves the table as it is."""
        around, above, *_ = self._source.ancestors(use)
        match around:
            case cst.Subscript(value=value) if value is use:
                return not self._is_target(around)
            case cst.Attribute(value=value, attr=cst.Name(value=method)) if value is use:
                return method in READS and isinstance(above, cst.Call) and above.func is around
            case cst.ComparisonTarget(operator=cst.In() | cst.NotIn()):
                return True
            case cst.For(iter=value) | cst.CompFor(iter=value) if value is use:
                return True
            case cst.Arg():
                return isinstance(above, cst.Call) and self._source.name(above.func) in LOOKS
        return False

    def _is_target(self, node: cst.CSTNode) -> bool:
        """Whether a statement assigns to a node, or deletes it."""
        for around in self._source.ancestors(node):
            match around:
                case cst.AssignTarget() | cst.Del() | cst.AsName():
                    return True
                case (
                    cst.AugAssign(target=target)
                    | cst.AnnAssign(target=target)
                    | cst.For(target=target)
                    | cst.CompFor(target=target)
                ):
                    return target is node
            if not isinstance(around, AROUND):
                return False
            node = around
        return False

    # --- parameters -------------------------------------------------------------------------------

    def _handed(self, parameter: cst.Param) -> Iterator[cst.BaseExpression]:
        """What the calls of a function hand to a parameter, where the file shows all of them."""
        listed, node, *_ = self._source.ancestors(parameter)
        if not isinstance(node, cst.FunctionDef) or not isinstance(listed, cst.Parameters):
            raise _NotKnown
        by_place = [*listed.posonly_params, *listed.params]
        if parameter not in (*by_place, *listed.kwonly_params):
            raise _NotKnown  # `*kernels`
        for call in self._calls(node):
            if any(argument.star for argument in call.args):
                raise _NotKnown
            yield _given(call, parameter, by_place)

    def _calls(self, function: cst.FunctionDef) -> list[cst.Call]:
        """All calls of a function that nothing but this file calls."""
        source, name = self._source, function.name.value
        if function.decorators or not self._is_private(function) or name in self._captured:
            raise _NotKnown
        if any(text.raw_value == name for text in descendants(source.module, cst.SimpleString)):
            raise _NotKnown  # in `__all__`, or to be found by it
        found: list[cst.Call] = []
        for use in descendants(source.module, cst.Name):
            if use.value != name or use is function.name:
                continue
            assigned = {assignment.node for assignment in source.assignments(use)}
            if function not in assigned:
                continue
            call = next(source.ancestors(use))
            if len(assigned) > 1 or not isinstance(call, cst.Call) or call.func is not use:
                raise _NotKnown
            found.append(call)
        return found

    def _is_private(self, function: cst.FunctionDef) -> bool:
        """Whether other files have no business with a function, as its name or its place says."""
        above = [*self._source.ancestors(function)]
        for around in above:
            if isinstance(around, cst.ClassDef | cst.FunctionDef):
                return isinstance(around, cst.FunctionDef)
        name = function.name.value
        return len(above) == 1 and name.startswith("_") and not name.startswith("__")

    @cached_property
    def _captured(self) -> frozenset[str]:
        """The names that a pattern binds, or a `:=` in a comprehension: no scope tells of these."""
        module, ancestors = self._source.module, self._source.ancestors
        bound = [
            *(each.name for each in descendants(module, cst.MatchAs)),
            *(each.name for each in descendants(module, cst.MatchStar)),
            *(each.rest for each in descendants(module, cst.MatchMapping)),
            *(
                each.target
                for each in descendants(module, cst.NamedExpr)
                if any(isinstance(around, cst.BaseComp) for around in ancestors(each))
            ),
        ]
        return frozenset(each.value for each in bound if isinstance(each, cst.Name))


def _listed(table: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    """The elements of a list, a tuple or a set where it is written."""
    if not isinstance(table, cst.List | cst.Tuple | cst.Set):
        return None
    starred = any(isinstance(element, cst.StarredElement) for element in table.elements)
    return None if starred else [element.value for element in table.elements]


def _given(
    call: cst.Call, parameter: cst.Param, by_place: Sequence[cst.Param]
) -> cst.BaseExpression:
    """What a call hands to a parameter, or its default."""
    name = parameter.name.value
    for argument in call.args:
        if argument.keyword is not None and argument.keyword.value == name:
            return argument.value
    places = [argument.value for argument in call.args if argument.keyword is None]
    place = next((n for n, each in enumerate(by_place) if each is parameter), len(places))
    if place < len(places):
        return places[place]
    if parameter.default is None:
        raise _NotKnown
    return parameter.default
