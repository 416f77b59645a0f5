"""How many operations, loads and stores a kernel has for one element, counted textually.

Of branches of which one is run, that with the most counts, or the one that launches are seen to
choose. A helper counts where it is called.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Dialect, Kernel, given_to
from agent.syntax import Function, Source, Untraceable, assigned, children, descendants

TRIPS = 16
"""Iterations of a loop that touches no memory and whose count the source does not tell."""


@dataclass(frozen=True)
class Counts:
    """Of one element."""

    operations: int = 0
    """On loaded values."""
    accesses: int = 0
    """Loads and stores."""
    chose: bool = False
    """Whether branches are left out that do something, too."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.operations + other.operations,
            self.accesses + other.accesses,
            self.chose or other.chose,
        )


def count(dialect: Dialect, source: Source, kernel: Kernel) -> Counts:
    """What a kernel does, with the helpers of the file that it calls."""
    return _Count(dialect, source, kernel).below(kernel.function, kernel.function.node.body, ())


class _Count:
    """Counts below a node, branch by branch."""

    def __init__(self, dialect: Dialect, source: Source, kernel: Kernel) -> None:
        self.dialect = dialect
        self.source = source
        self.kernel = kernel
        self.values = _Values(dialect, source, dialect.reached(source, kernel))
        self.memory = {*dialect.loads, *dialect.stores}
        self.counted = {*dialect.arithmetic, *dialect.reductions}

    def below(self, function: Function, node: cst.CSTNode, above: tuple[Function, ...]) -> Counts:
        """What is done below a node of a function, which these others call."""
        match node:
            case cst.If(test=test, body=body, orelse=orelse):
                return self._choice(function, above, test, (body, orelse))
            case cst.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(function, above, test, (body, orelse))
        found = sum((self.below(function, child, above) for child in children(node)), Counts())
        return found + self._own(function, node) + self._helper(function, node, above)

    def _choice(
        self,
        function: Function,
        above: tuple[Function, ...],
        test: cst.BaseExpression,
        branches: tuple[cst.CSTNode, cst.CSTNode | None],
    ) -> Counts:
        holds = self._holds(function, test)
        both = [Counts() if b is None else self.below(function, b, above) for b in branches]
        run = both if holds is None else [both[not holds]]
        most = max(run, key=lambda each: each.operations + each.accesses)
        chose = all(each.operations or each.accesses for each in both)
        return self.below(function, test, above) + most + Counts(chose=chose)

    def _own(self, function: Function, node: cst.CSTNode) -> Counts:
        """The operation or access that a node is itself."""
        match node:
            case cst.Call():
                called = self.dialect.called(self.source, node)
                if called in self.memory:
                    return Counts(accesses=1)
                computes = called in self.counted
            case cst.BinaryOperation() | cst.AugAssign():
                computes = True
            case cst.UnaryOperation():
                computes = isinstance(node.operator, cst.Minus)
            case _:
                computes = False
        if not computes or not self.values.held_by(function, node):
            return Counts()
        return Counts(operations=_trips(self.dialect, self.source, node, self.memory))

    def _helper(self, function: Function, node: cst.CSTNode, above: tuple[Function, ...]) -> Counts:
        helper = self.source.function_of(node.func) if isinstance(node, cst.Call) else None
        if helper is None or helper in (*above, function):
            return Counts()
        return self.below(helper, helper.node.body, (*above, function))

    def _holds(self, function: Function, test: cst.BaseExpression) -> bool | None:
        """Whether a test holds at every launch: of `act == "relu"`; None where that is not told."""
        if function is not self.kernel.function:
            return None
        match test:
            case cst.UnaryOperation(operator=cst.Not(), expression=inner):
                holds = self._holds(function, inner)
                return None if holds is None else not holds
            case cst.Name():
                given = self._given(test.value)
                return None if given is None else given not in ("False", "0", "None", "''", '""')
            case cst.Comparison(
                left=cst.Name() as name,
                comparisons=[
                    cst.ComparisonTarget(
                        operator=cst.Equal() | cst.NotEqual() as operator, comparator=other
                    )
                ],
            ):
                given, wanted = self._given(name.value), _literal(other)
                if given is None or wanted is None:
                    return None
                return (given == wanted) == isinstance(operator, cst.Equal)
        return None

    def _given(self, name: str) -> str | None:
        """The literal that all launches give a constant, as text; None where they do not."""
        if name not in self.kernel.constants or not self.kernel.launches:
            return None
        given = {
            _literal(launch.arguments[name]) if name in launch.arguments else None
            for launch in self.kernel.launches
        }
        return given.pop() if len(given) == 1 else None


def _literal(expression: cst.BaseExpression) -> str | None:
    match expression:
        case cst.SimpleString():
            return repr(expression.evaluated_value)
        case cst.Integer():
            return str(expression.evaluated_value)
        case cst.Name(value="True" | "False" | "None" as value):
            return value
    return None


class _Values:
    """Which names hold values: what was loaded, and what came of it. Addresses are not values."""

    def __init__(self, dialect: Dialect, source: Source, functions: tuple[Function, ...]) -> None:
        self.dialect = dialect
        self.source = source
        self.loading = {*dialect.loads} | {
            f.name for f in functions[1:] if dialect.has(source, f.node.body, dialect.loads)
        }
        self.names: dict[str, set[str]] = {f.name: set() for f in functions}
        for function in functions:
            self._follow(function)
            for call in descendants(function.node.body, cst.Call):
                helper = source.function_of(call.func)
                if helper is not None and helper is not function:
                    self._hand_over(function, call, helper)

    def held_by(self, function: Function, node: cst.CSTNode) -> bool:
        """Whether a node computes with a value; the address of a load is not looked at."""
        if isinstance(node, cst.Call):
            called = self.dialect.called(self.source, node)
            if called in self.loading:
                return True
            if called in self.dialect.stores:
                return False
        if isinstance(node, cst.Name):
            return node.value in self.names[function.name]
        return any(self.held_by(function, child) for child in children(node))

    def _follow(self, function: Function) -> None:
        """Mark what is assigned from values, until nothing more is."""
        names = self.names[function.name]
        before = -1
        while before != len(names):
            before = len(names)
            for target, value in assigned(function.node.body):
                if self.held_by(function, value):
                    names.update(n.value for n in descendants(target, cst.Name))

    def _hand_over(self, caller: Function, call: cst.Call, helper: Function) -> None:
        """Mark the parameters of a helper that are given values."""
        for name, value in given_to(helper, call).items():
            if self.held_by(caller, value):
                self.names[helper.name].add(name)


def _trips(dialect: Dialect, source: Source, node: cst.CSTNode, memory: set[str]) -> int:
    """How often an operation runs for one access: the loops around it that touch no memory."""
    trips = 1
    for loop in source.ancestors(node):
        if isinstance(loop, cst.FunctionDef):
            break
        if isinstance(loop, cst.For) and not dialect.has(source, loop, memory):
            trips *= _trip_count(source, loop)
    return trips


def _trip_count(source: Source, loop: cst.For) -> int:
    if isinstance(loop.iter, cst.Call) and len(loop.iter.args) == 1:
        try:
            return source.trace(loop.iter.args[0].value).value
        except Untraceable:
            pass
    return TRIPS
