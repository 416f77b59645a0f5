"""Values of a Triton kernel that are exponents, and where they are scaled.

An exponent is what `tl.exp` is taken of, and what that is computed from: `qk` and `m` of
`tl.exp(qk - m)`. Where all of them are scaled by log2(e), `tl.exp2` gives what `tl.exp` gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import e, isinf, log2

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.numbers import number_of
from agent.analysis.common.reaching_definitions import binds
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.exponent_numbers import negligible, of_module
from agent.analysis.triton.index_ranges import is_scalar
from agent.syntax import Source, argument, assigned, descendants, keyword, positional

TL = "triton.language."
EXP = (f"{TL}exp", f"{TL}math.exp")
CHOOSE = f"{TL}where"
VALUES: Mapping[str, tuple[tuple[int, str], ...]] = {
    f"{TL}maximum": ((0, "x"), (1, "y")),
    f"{TL}max": ((0, "input"),),
    CHOOSE: ((1, "x"), (2, "y")),
}
"""Functions that give one of some arguments: where those are, and their names."""
WIDE = (f"{TL}float32", f"{TL}float64")
HALVES = (f"{TL}float16", f"{TL}bfloat16")
"""Types that an exponent is rounded to."""
LOOKED_FOR = "looks for exponents with a scale, as in tl.exp(x * scale - m)"
"""What a refusal begins with."""
LARGEST = 3.4e38
"""What float32 holds."""


@dataclass
class Exponents:
    """What scaling the exponents of a kernel by a constant takes."""

    source: Source
    kernel: Kernel
    calls: list[cst.Call] = field(default_factory=list)
    """The exponentials."""
    scales: dict[cst.BaseExpression, None] = field(default_factory=dict)
    """The scalar factors that the exponents are multiplied by: `sm_scale` of `dot * sm_scale`."""
    outside: list[cst.Name] = field(default_factory=list)
    """Where an exponent is used for anything else; its scale has to be taken back there."""
    stand_ins: dict[cst.BaseExpression, None] = field(default_factory=dict)
    """Finite numbers that stand for minus infinity, to be scaled if exponents are used outside."""
    _scaled: list[cst.BaseExpression] = field(default_factory=list)
    """What the scales are factors of."""
    _promoted: bool = False
    """A cast makes 32 bits of what is scaled, which `tl.exp` takes; without one it has them."""
    _in_place: list[cst.BaseExpression] = field(default_factory=list)
    """What is multiplied by its scale where it is, as `qk` of `qk *= sm_scale`."""
    _seen: set[cst.CSTNode] = field(default_factory=set)
    _names: set[str] = field(default_factory=set)
    _given: set[str] = field(default_factory=set)
    """Names of exponents that the module gives, whose numbers stay as they are."""
    _open: set[cst.CSTNode] = field(default_factory=set)

    @classmethod
    def of(cls, source: Source, kernel: Kernel) -> Exponents:
        """Trace the exponents of a kernel back to their scales.

        Raises:
            NotApplicable: one of them has no scale to fold a constant into, or is computed in a
                way that a scale does not pass through.
        """
        found = cls(source, kernel)
        body = kernel.function.node.body
        found.calls = [c for c in descendants(body, cst.Call) if source.name(c.func) in EXP]
        if not found.calls:
            for helper in TRITON.reached(source, kernel):
                calls = descendants(helper.node.body, cst.Call)
                if any(source.name(call.func) in EXP for call in calls):
                    raise NotApplicable(
                        f"{kernel.name} calls tl.exp in {helper.name}, and what a helper is given "
                        "is not followed"
                    )
            raise NotApplicable(f"looks for tl.exp, and {kernel.name} calls none")
        for call in found.calls:
            given = argument(call, 0, "x")
            if given is None:
                raise NotApplicable(f"line {source.line(call)} takes tl.exp of what is not shown")
            found._trace(given)
        if not found.scales:
            raise NotApplicable(f"{LOOKED_FOR}, and those of {kernel.name} have none")
        found._check_scaled()
        found._check_bits()
        found._look_around(body)
        found._check_outside()
        return found

    def _trace(self, node: cst.BaseExpression) -> None:
        """Mark an expression as an exponent, with what it is computed from."""
        source = self.source
        if (number := negligible(source, node)) is not None:
            self._stands_in(number)
            return
        if number_of(source, node) == 0:  # in any base; `tl.where(nothing, 0.0, largest)`
            return
        match node:
            case cst.Name():
                self._trace_name(node)
            case cst.BinaryOperation(operator=cst.Subtract()):
                self._trace(node.left)
                self._trace(node.right)
            case cst.BinaryOperation(operator=cst.Add()) if self._is_penalty(node.right):
                self._trace(node.left)
            case cst.BinaryOperation(operator=cst.Multiply()):
                self._scale(node, node.left, node.right)
            case cst.Subscript():
                self._trace(node.value)
            case cst.Call() if (called := source.name(node.func) or "") in VALUES:
                for place, name in VALUES[called]:
                    value = argument(node, place, name)
                    if value is None:
                        raise self._refusal(node)
                    self._trace(value)
            case cst.Call(
                func=cst.Attribute(value=value, attr=cst.Name(value="to")), args=[cst.Arg(value=to)]
            ) if source.name(to) not in HALVES:  # these would be rounded in another base
                self._promoted = True
                self._trace(value)
            case _:
                raise self._refusal(node)

    def _trace_name(self, name: cst.Name) -> None:
        self._seen.add(name)
        self._names.add(name.value)
        definitions = [*self._definitions(name)]
        if not definitions and not isinf(of_module(self.source, name) or 0.0):
            self._given.add(name.value)
        for definition in definitions:
            if definition in self._open:
                continue
            self._open.add(definition)
            match definition:
                case cst.Assign():
                    self._trace(definition.value)
                case cst.AugAssign(operator=cst.MultiplyAssign(), target=target, value=scale) if (
                    is_scalar(self.source, scale)
                ):
                    self.scales[scale] = None
                    self._scaled.append(target)
                    self._in_place.append(target)
                case cst.AugAssign(operator=cst.SubtractAssign()):
                    self._trace_name(cst.ensure_type(definition.target, cst.Name))
                    self._trace(definition.value)
                case cst.AugAssign(operator=cst.AddAssign(), value=value) if self._is_penalty(
                    value
                ):
                    self._trace_name(cst.ensure_type(definition.target, cst.Name))
                case _:
                    raise self._refusal(definition)

    def _scale(
        self, node: cst.CSTNode, left: cst.BaseExpression, right: cst.BaseExpression
    ) -> None:
        for scale, other in ((right, left), (left, right)):
            if is_scalar(self.source, scale) and not isinstance(other, cst.Float | cst.Integer):
                self.scales[scale] = None
                self._scaled.append(other)
                return
        raise self._refusal(node)

    def _definitions(self, name: cst.Name) -> Iterator[cst.CSTNode]:
        """The statements that a name's value may come from at its place: the one before it in its
        block, if that certainly runs, and those of an `if` in between; else all that assign the
        name."""
        child: cst.CSTNode = name
        for parent in self.source.ancestors(name):
            if isinstance(parent, cst.IndentedBlock):
                index = next(i for i, s in enumerate(parent.body) if s is child)
                for statement in reversed(parent.body[:index]):
                    here = list(_assigning(statement, name.value))
                    if here and isinstance(statement, cst.SimpleStatementLine):
                        yield here[-1]
                        return
                    if isinstance(statement, cst.If) and len(here) == _bindings(
                        statement, name.value
                    ):
                        yield from here
                    elif binds(statement, name.value):
                        break
                else:
                    child = parent
                    continue
                break
            loops = cst.For | cst.While | cst.FunctionDef
            if isinstance(parent, loops) and binds(parent, name.value):
                break
            child = parent
        body = self.kernel.function.node.body
        if any(p.name.value == name.value for p in self.kernel.function.parameters):
            what = f"`{name.value}` of {self.kernel.name} is handed over as it is"
            raise NotApplicable(f"{LOOKED_FOR}, and {what}")
        plain = list(_assigning(body, name.value))
        if len(plain) != _bindings(body, name.value):
            raise self._refusal(name)
        yield from plain

    def _stands_in(self, number: cst.BaseExpression) -> None:
        if not isinf(number_of(self.source, number) or 0.0):
            self.stand_ins[number] = None

    def _is_penalty(self, node: cst.BaseExpression) -> bool:
        """`tl.where(mask, 0, -1e6)`: nothing, or minus infinity."""
        if not isinstance(node, cst.Call) or self.source.name(node.func) != CHOOSE:
            return False
        values = positional(node)[1:3]
        numbers = [v for v in values if number_of(self.source, v) != 0]
        found = [negligible(self.source, number) for number in numbers]
        if len(values) != 2 or None in found:
            return False
        for number in found:
            if number is not None:
                self._stands_in(number)
        return True

    def _check_scaled(self) -> None:
        """Refuse where a scale, or what is scaled in place, may be an exponent itself."""
        for node in (*self.scales, *self._in_place):
            for name in descendants(node, cst.Name):
                if name.value in self._names and not self._open.isdisjoint(self._definitions(name)):
                    raise self._refusal(next(self.source.ancestors(node)))

    def _check_bits(self) -> None:
        """Refuse where a product may have 16 bits: it is larger by half, and overflows earlier."""
        for node in self._scaled if self._promoted else ():
            if self._may_be_half(node, frozenset()):
                line, code = self.source.line(node), self.source.code(node)
                raise NotApplicable(
                    f"line {line} of {self.kernel.name} scales `{code}`, which may have 16 bits"
                )

    def _may_be_half(self, node: cst.BaseExpression, seen: frozenset[cst.CSTNode]) -> bool:
        """Whether a tile may have 16 bits; a number does not decide what a tile with it has."""

        def all_may(*parts: cst.BaseExpression) -> bool:
            tiles = [part for part in parts if not is_scalar(self.source, part)]
            return all(self._may_be_half(part, seen) for part in tiles)

        match node:
            case cst.Name():
                try:
                    found = [each for each in self._definitions(node) if each not in seen]
                except NotApplicable:
                    return True
                seen |= {*found}
                return any(
                    all_may(each.target, each.value)
                    if isinstance(each, cst.AugAssign)
                    else self._may_be_half(cst.ensure_type(each, cst.Assign).value, seen)
                    for each in found
                )
            case cst.BinaryOperation(left=left, right=right):
                return all_may(left, right)
            case cst.UnaryOperation(expression=operand) | cst.Subscript(value=operand):
                return self._may_be_half(operand, seen)
            case cst.Call(func=cst.Attribute(attr=cst.Name(value="to")), args=[cst.Arg(value=to)]):
                return self.source.name(to) not in WIDE
            case cst.Call():
                called = TRITON.called(self.source, node) or ""
                said = keyword(node, "out_dtype" if called in TRITON.dots else "dtype")
                if called in TRITON.dots:
                    return said is not None and self.source.name(said) not in WIDE
                if called in TRITON.accumulators:
                    return said is None or self.source.name(said) not in WIDE
                if called in (*VALUES, *TRITON.arithmetic, f"{TL}sum", f"{TL}trans"):
                    return all_may(*(arg.value for arg in node.args))
        return True

    def _look_around(self, body: cst.CSTNode) -> None:
        """Find the uses of exponents that are no part of an exponent."""
        for name in descendants(body, cst.Name):
            if name.value not in self._names or name in self._seen or self._is_target(name):
                continue
            around = next(self.source.ancestors(name))
            if isinstance(around, cst.Attribute) and around.value is not name:
                continue
            if isinstance(around, cst.Arg) and around.keyword is name:
                continue
            definitions = list(self._definitions(name))
            if all(definition in self._open for definition in definitions):
                self.outside.append(name)
            elif not self._open.isdisjoint(definitions):  # nobody can tell what it is here
                line, kernel = self.source.line(name), self.kernel.name
                what = f"`{name.value}` in line {line} of {kernel} may be one or not"
                raise NotApplicable(f"{LOOKED_FOR}, and {what}")

    def _check_outside(self) -> None:
        """Refuse where an exponent is used outside, and a number among them cannot be scaled."""
        if not self.outside:
            return
        for name in self.outside:
            if (number := self._compared(name)) is not None:
                raise NotApplicable(
                    f"{LOOKED_FOR}, and line {self.source.line(name)} of {self.kernel.name} asks "
                    f"whether one is `{self.source.code(number)}`"
                )
        for given in sorted(self._given):
            raise NotApplicable(f"{LOOKED_FOR}, and `{given}` of the module is a number of its own")
        for number in self.stand_ins:
            if abs(number_of(self.source, number) or 0.0) * log2(e) > LARGEST:
                raise NotApplicable(
                    f"{LOOKED_FOR}, and `{self.source.code(number)}` in line "
                    f"{self.source.line(number)} of {self.kernel.name} leaves float32 when scaled"
                )

    def _compared(self, name: cst.Name) -> cst.BaseExpression | None:
        """The finite number for minus infinity that an exponent is compared with, if it is.

        Scaled and scaled back it may be its neighbour in float32.
        """
        around = next(
            (a for a in self.source.ancestors(name) if isinstance(a, cst.Comparison)), None
        )
        if around is None:
            return None
        for side in (around.left, *(each.comparator for each in around.comparisons)):
            number = negligible(self.source, side)
            if number is not None and not isinf(number_of(self.source, number) or 0.0):
                return number
        return None

    def _is_target(self, name: cst.Name) -> bool:
        return isinstance(
            next(self.source.ancestors(name)), cst.AssignTarget | cst.AugAssign
        ) and not any(
            isinstance(a, cst.AugAssign) and a.value is name for a in self.source.ancestors(name)
        )

    def _refusal(self, node: cst.CSTNode) -> NotApplicable:
        line, code = self.source.line(node), self.source.code(node)
        where = f"line {line} of {self.kernel.name}"
        return NotApplicable(
            f"{LOOKED_FOR}, and {where} gives `{code}`: an exponent is computed of it, and no "
            "scale can be followed into it"
        )


def _assigning(node: cst.CSTNode, name: str) -> Iterator[cst.CSTNode]:
    """The plain and augmented assignments to a name at or below a node."""
    for assign in descendants(node, cst.Assign):
        match assign.targets:
            case [cst.AssignTarget(target=cst.Name(value=target))] if target == name:
                yield assign
    for augmented in descendants(node, cst.AugAssign):
        if _binds(augmented.target, name):
            yield augmented


def _bindings(node: cst.CSTNode, name: str) -> int:
    """How many assignments to a name there are at or below a node, of whatever kind."""
    return sum(_binds(target, name) for target, _ in assigned(node))


def _binds(target: cst.CSTNode, name: str) -> bool:
    match target:
        case cst.Name():
            return target.value == name
        case cst.Tuple() | cst.List():
            return any(_binds(e.value, name) for e in target.elements)
    return False
