"""Loops that run further in later programs, as those of a causal attention do.

The GPU starts the programs of a grid, which cuTile calls blocks, by their number. Where the last
ones take longest, it runs empty while they end. Whether a loop does so decides no result: in
another order they are the same programs. So of several values that a bound may have one is enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import libcst as cst

from agent.analysis.common.alternatives import are_alternatives
from agent.analysis.common.block_numbers import CASTS
from agent.analysis.common.by_program import by_program, names_by_program
from agent.analysis.common.derived_names import all_values
from agent.analysis.common.dialect import Dialect, Kernel, given_to
from agent.analysis.common.reaching_definitions import value_of
from agent.syntax import Function, Source, descendants, positional

_SAME = CASTS | {"assume_divisible_by", "max_constancy", "max_contiguous", "multiple_of"}
"""Functions and methods that give the same number."""

_Bounds: TypeAlias = tuple[cst.For, cst.BaseExpression | None, cst.BaseExpression]
"""A loop over a range, where it begins, if it says so, and where it ends."""


@dataclass(frozen=True)
class _Given:
    """A function, and what of its parameters is other in later programs."""

    function: Function
    grow: frozenset[str] = frozenset()
    """Larger there, or it may be."""
    surely: frozenset[str] = frozenset()
    fall: frozenset[str] = frozenset()
    vary: frozenset[str] = frozenset()
    """Different in some way."""


@dataclass(frozen=True)
class GrowingLoops:
    """The loops of a kernel, and how far they run along one axis of the grid."""

    dialect: Dialect
    source: Source
    kernel: Kernel
    indices: Collection[cst.CSTNode]
    """The calls that ask for the number of the program along the axis."""

    def run_further(self) -> bool:
        """Whether a loop of the kernel, or of what it calls, does so in later programs.

        One that begins the further on as well takes as long for each: `range(i * 8, (i + 1) * 8)`.
        Where another one runs less far, which of the programs take longest is not known.
        """
        loops = [(given, bounds) for given in self._functions() for bounds in self._bounds(given)]
        return any(self._runs(given, bounds) for given, bounds in loops) and not any(
            self._runs(given, bounds, -1) for given, bounds in loops
        )

    def otherwise(self, programs: str = "programs") -> str:
        """What its loops do instead: of the first that tells programs apart.

        Args:
            programs: what the language calls them.
        """
        reason = f"no loop of {self.kernel.name} runs further in later {programs}"
        for given in self._functions():
            names = names_by_program(self.dialect, self.source, given.function, given.vary)
            for bounds in self._bounds(given):
                if self._runs(given, bounds):
                    reason = f"not all loops of {self.kernel.name} run further in later {programs}"
                elif told := self._told(given, bounds, names):
                    return reason + told
            for loop in descendants(given.function.node.body, cst.While):
                if by_program(self.dialect, self.source, loop.test, names):
                    return f"{reason}, as far as line {self.source.line(loop)} is followed"
        return reason

    def _told(self, given: _Given, bounds: _Bounds, names: frozenset[str]) -> str:
        """What a loop that does not run further does in later programs; nothing: the same."""
        loop, first, end = bounds
        at = f"line {self.source.line(loop)}"
        varies = by_program(self.dialect, self.source, end, names)
        later = first is not None and self._changes(given, first)
        if first is not None and self._changes(given, first, surely=True):
            return f": that at {at} begins further on in them{', too' if varies else ''}"
        if self._runs(given, bounds, -1):
            return f": that at {at} runs less far in them"
        if later and not varies:
            return f": that at {at} may begin further on in them"
        return f", as far as {at} is followed" if varies else ""

    def _functions(self) -> Iterator[_Given]:
        """The kernel's function and those that it calls, each as it is called."""
        todo = [_Given(self.kernel.function)]
        for given in todo:  # it grows
            yield given
            names = names_by_program(self.dialect, self.source, given.function, given.vary)
            for call in descendants(given.function.node.body, cst.Call):
                helper = self.source.function_of(call.func)
                if helper is None:
                    continue
                values = given_to(helper, call).items()
                each = _Given(
                    helper,
                    frozenset(p for p, v in values if self._changes(given, v)),
                    frozenset(p for p, v in values if self._changes(given, v, surely=True)),
                    frozenset(p for p, v in values if self._changes(given, v, -1)),
                    frozenset(
                        p for p, v in values if by_program(self.dialect, self.source, v, names)
                    ),
                )
                if each.vary and each not in todo:
                    todo.append(each)

    def _bounds(self, given: _Given) -> Iterator[_Bounds]:
        """Each loop over a range, where it begins, if it says so, and where it ends."""
        for loop in descendants(given.function.node.body, cst.For):
            ranged = isinstance(loop.iter, cst.Call) and loop.iter
            if not ranged or self.source.name(ranged.func) not in self.dialect.ranges:
                continue
            match positional(ranged):
                case [first, end, *_]:
                    yield loop, first, end
                case [end]:
                    yield loop, None, end

    def _runs(self, given: _Given, bounds: _Bounds, sign: int = 1) -> bool:
        """Whether a loop may run further in later programs, or with -1 less far."""
        _, first, end = bounds
        if first is None:
            return self._changes(given, end, sign)
        return self._differs(given, end, first, sign, surely=False, seen=frozenset())

    def _differs(
        self,
        given: _Given,
        end: cst.BaseExpression,
        first: cst.BaseExpression,
        sign: int,
        *,
        surely: bool,
        seen: frozenset[str],
    ) -> bool:
        """The same of a difference as `_changes`: what both grow by may be the same.

        Of the values that names have in branches, those of the same branch belong together.
        """

        behind = (value_of(self.source, side) for side in (end, first))
        inside = seen | {name.value for name in behind if isinstance(name, cst.Name)}

        def asked(part: cst.BaseExpression, by: int, *, certain: bool) -> bool:
            return self._changes(given, part, by, surely=certain, seen=inside)

        found = [
            (asked(late, sign, certain=surely) and not asked(early, sign, certain=not surely))
            or (asked(early, -sign, certain=True) and not asked(late, -sign, certain=False))
            for late in self._values(end, seen)
            for early in self._values(first, seen)
            if not are_alternatives(self.source, late, early)
        ]
        return bool(found) and (all if surely else any)(found)

    def _values(
        self, expression: cst.BaseExpression, seen: frozenset[str]
    ) -> list[cst.BaseExpression]:
        """An expression, or what branches give the name that it is."""
        behind = value_of(self.source, expression)
        if isinstance(behind, cst.Name) and behind.value not in seen:
            return [*all_values(self.source, behind)] or [behind]
        return [behind]

    def _changes(
        self,
        given: _Given,
        expression: cst.BaseExpression,
        sign: int = 1,
        *,
        surely: bool = False,
        seen: frozenset[str] = frozenset(),
    ) -> bool:
        """Whether a sum or product of sizes is larger in later programs; sizes are not negative.

        Args:
            given: the function that it stands in.
            expression: it.
            sign: -1 asks whether it is smaller.
            surely: each value that it may have has to be, in a branch or of `min`; else one has.
            seen: names whose values are being looked at.
        """
        source, behind = self.source, value_of(self.source, expression)

        def asked(part: cst.BaseExpression, by: int = 1) -> bool:
            return self._changes(given, part, sign * by, surely=surely, seen=seen)

        def chosen(*each: cst.BaseExpression) -> bool:
            return bool(each) and (all if surely else any)(map(asked, each))

        match behind:
            case cst.Name(value=name):
                known = given.surely if surely else given.grow
                if name in (known if sign > 0 else given.fall):
                    return True
                if name in seen:
                    return False
                seen |= {name}
                return chosen(*all_values(source, behind))
            case cst.BinaryOperation(operator=cst.Add() | cst.Multiply()):
                return asked(behind.left) or asked(behind.right)
            case cst.BinaryOperation(operator=cst.Subtract(), left=left, right=right):
                return self._differs(given, left, right, sign, surely=surely, seen=seen)
            case cst.BinaryOperation(operator=cst.FloorDivide() | cst.Modulo()):
                return asked(behind.left)  # by the rest it grows up to each next multiple
            case cst.UnaryOperation(operator=cst.Minus()):
                return asked(behind.expression, -1)
            case cst.IfExp():
                return chosen(behind.body, behind.orelse)
            case cst.Call() if behind in self.indices:
                return sign > 0
            case cst.Call() if source.name(behind.func) in self.dialect.choices:
                return chosen(*positional(behind))
            case cst.Call() if (part := self._rounded(behind)) is not None:
                return asked(part)
        return False

    def _rounded(self, call: cst.Call) -> cst.BaseExpression | None:
        """What a call gives the same number for, in another type or in blocks of a size."""
        called = self.dialect.called(self.source, call) or ""
        if called in self.dialect.cdivs or self.dialect.owns(called):
            same = called in self.dialect.cdivs or called.rpartition(".")[2] in _SAME
            return call.args[0].value if same and call.args else None
        method = call.func
        if isinstance(method, cst.Attribute) and method.attr.value in CASTS:
            return method.value
        return None
