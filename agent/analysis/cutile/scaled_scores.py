"""Scores of a softmax that are multiplied by a scale, and the maxima of their rows.

Traced back from where they are used, which `scaled_exponents` does. Scores come from their scale
through names, masks of minus infinity and sums with such masks; before their scale they are
products of tiles, in float32. Maxima are reductions of scores, the greater of two maxima, and what
they begin with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

import libcst as cst

from agent.analysis.common.possible_definitions import possible_definitions
from agent.analysis.common.subject import NotApplicable
from agent.analysis.cutile.dialect import CT
from agent.analysis.cutile.element_types import ElementTypes
from agent.analysis.cutile.positive import Positive
from agent.analysis.cutile.products import filled, is_penalty, is_product
from agent.syntax import Function, Source, descendants, positional

CHOOSE = f"{CT}where"
GREATER = (f"{CT}maximum", "builtins.max")
LARGEST = f"{CT}max"
RESHAPED = tuple(f"{CT}{name}" for name in ("broadcast_to", "expand_dims", "reshape", "transpose"))
LOOKED_FOR = "looks for scores with a scale, as in ct.exp(products * scale - m)"
"""What a refusal begins with."""
UNSCALED = (0.0, -inf)
"""Numbers that no scale above zero changes."""
Scaled: TypeAlias = cst.BinaryOperation | cst.AugAssign


@dataclass
class ScaledScores:
    """What is found of the scores and maxima of a function."""

    source: Source
    function: Function
    scales: dict[Scaled, cst.BaseExpression] = field(default_factory=dict)
    """Products of scores and their scale -> the scale."""
    maxima: dict[cst.Call, None] = field(default_factory=dict)
    """Reductions of scores."""
    scores: dict[cst.CSTNode, None] = field(default_factory=dict)
    """Statements that assign scores."""
    rows: dict[cst.CSTNode, None] = field(default_factory=dict)
    """Statements that assign maxima."""
    seen: set[cst.CSTNode] = field(default_factory=set)
    """Names that are read as one or the other."""

    def score(self, node: cst.BaseExpression) -> None:
        """Mark scores, with what they are computed from.

        Raises:
            NotApplicable: a scale does not pass through that, or there is none.
        """
        if filled(self.source, node) in UNSCALED:
            return
        match node:
            case cst.Name():
                self.seen.add(node)
                for binder in self.defined(node):
                    self._assigned_score(binder)
            case cst.BinaryOperation(operator=cst.Multiply(), left=left, right=right):
                is_right = is_product(self.source, left) or not is_product(self.source, right)
                if not self.is_positive(right if is_right else left):
                    is_right ^= self.is_positive(left if is_right else right)
                self._scaled(node, *((right, left) if is_right else (left, right)))
            case cst.BinaryOperation(left=left, operator=cst.Add(), right=right) if is_penalty(
                self.source, right
            ):
                self.score(left)
            case cst.Call() if self.source.name(node.func) == CHOOSE:
                if len(positional(node)) != 3:
                    raise self.refusal(node)
                for value in positional(node)[1:]:
                    self.score(value)
            case _:
                raise self.refusal(node)

    def _assigned_score(self, binder: cst.CSTNode) -> None:
        if binder in self.scores:
            return
        self.scores[binder] = None
        match binder:
            case cst.Assign(value=value):
                self.score(value)
            case cst.AugAssign(target=target, operator=cst.MultiplyAssign(), value=value):
                self._scaled(binder, value, target)
            case cst.AugAssign(target=target, operator=cst.AddAssign(), value=value) if is_penalty(
                self.source, value
            ):
                self.score(target)
            case _:
                raise self.refusal(binder)

    def _scaled(
        self, product: Scaled, scale: cst.BaseExpression, other: cst.BaseExpression
    ) -> None:
        if not is_product(self.source, other):
            raise self.refusal(product, "scales what may be no product of tiles in")
        if not self.is_positive(scale):
            line, code = self.source.line(scale), self.source.code(scale)
            raise NotApplicable(
                f"`{code}` in line {line} of {self.function.name} may be zero or less: launches "
                "would have to give it as a number above zero, or as 1 / math.sqrt(size)"
            )
        if not ElementTypes(self.source, self.function).is_float32(other):
            raise self.refusal(other, "scales what may not be float32,")
        self.scales[product] = scale

    def row(self, node: cst.BaseExpression) -> None:
        """Mark maxima, with what they are computed from.

        Raises:
            NotApplicable: that is no maximum of scores.
        """
        called = self.source.name(node.func) if isinstance(node, cst.Call) else ""
        match node:
            case cst.Name():
                self.seen.add(node)
                for binder in self.defined(node):
                    if binder in self.rows:
                        continue
                    self.rows[binder] = None
                    if not isinstance(binder, cst.Assign):
                        raise self.refusal(binder)
                    self.row(binder.value)
            case cst.Subscript(value=value):
                self.row(value)
            case cst.BinaryOperation(operator=cst.Multiply()):
                raise self.refusal(node, "scales a maximum by itself already:")
            case cst.Call() if called == LARGEST and positional(node):
                self.score(positional(node)[0])
                self.maxima[node] = None
            case cst.Call() if called in GREATER and len(positional(node)) == 2:
                for value in positional(node):
                    self.row(value)
            case cst.Call() if called == CHOOSE and len(positional(node)) == 3:
                for value in positional(node)[1:]:
                    self.row(value)
            case cst.Call() if called in RESHAPED and positional(node):
                self.row(positional(node)[0])
            case _ if not self._is_unscaled(node):
                raise self.refusal(node)

    def name_rows(self) -> None:
        """Mark what else has a maximum by another name, as the one of the round before."""
        assigned: dict[str, list[cst.Assign]] = {}
        for assign in descendants(self.function.node.body, cst.Assign):
            for target in assign.targets:
                for name in descendants(target, cst.Name):
                    assigned.setdefault(name.value, []).append(assign)
        known = -1
        while known < len(self.rows):
            known = len(self.rows)
            for binders in assigned.values():
                added = [binder for binder in binders if binder not in self.rows]
                if all(map(self._names_row, added)):
                    self.rows |= dict.fromkeys(added)
                    self.seen |= {binder.value for binder in added}

    def _names_row(self, binder: cst.Assign) -> bool:
        match binder:
            case cst.Assign(
                targets=[cst.AssignTarget(target=cst.Name())], value=cst.Name() as value
            ):
                return self.is_row(value)
        return False

    def _is_unscaled(self, node: cst.BaseExpression) -> bool:
        """Whether something is a number that no scale changes, or a float32 tile of it."""
        if filled(self.source, node) not in UNSCALED:
            return False
        types = ElementTypes(self.source, self.function)
        return not isinstance(node, cst.Call) or types.is_float32(node)

    def is_row(self, node: cst.BaseExpression) -> bool:
        """Whether something is known to be a maximum, itself or in another shape."""
        match node:
            case cst.Name():
                found = self.definitions(node)
                return bool(found) and all(each in self.rows for each in found)
            case cst.Subscript(value=value):
                return self.is_row(value)
            case cst.Call() if self.source.name(node.func) in RESHAPED and positional(node):
                return self.is_row(positional(node)[0])
        return False

    def is_positive(self, scale: cst.BaseExpression) -> bool:
        """Whether something is a number above zero at every launch."""
        return Positive(self.source).is_positive(scale)

    def definitions(self, name: cst.Name) -> tuple[cst.CSTNode, ...]:
        """What may have assigned a name."""
        return possible_definitions(self.source, name)

    def defined(self, name: cst.Name) -> tuple[cst.CSTNode, ...]:
        """What may have assigned a name, if these are statements that assign nothing else."""
        found = self.definitions(name)
        for binder in found:
            match binder:
                case cst.Assign(targets=[cst.AssignTarget(target=cst.Name())]):
                    continue
                case cst.AugAssign(target=cst.Name()):
                    continue
            raise self.refusal(name, "is given")
        if not found:
            raise self.refusal(name, "is given")
        return found

    def refusal(self, node: cst.CSTNode, how: str = "gives") -> NotApplicable:
        """Why the scale stays where it is: what one line does."""
        line, code = self.source.line(node), self.source.code(node)
        return NotApplicable(
            f"{LOOKED_FOR}, and line {line} of {self.function.name} {how} `{code}`"
        )
