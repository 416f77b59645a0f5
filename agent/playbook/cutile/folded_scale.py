"""Apply the scale of a softmax's scores in the exponent, with the change of base.

When: a cuTile kernel that multiplies products by a scale before it takes their maximum and their
    exponentials, as an attention does: `scores = ct.mma(q, k, acc) * scale`, then
    `ct.exp(scores - largest)`. The scale has to be above zero at every launch, as
    `1 / math.sqrt(size)` is.
Do: leave the products as they are; multiply their maximum by `scale * log2(e)`, once a row; and
    take `ct.exp2(products * (scale * log2(e)) - largest)`, one fused multiplication and subtraction
    an element. A maximum that is used elsewhere, as in a log-sum-exp, is multiplied back by ln(2).
Risk: changes rounding: the maximum and the differences are rounded in base two. The greatest weight
    of a row is 1 but for what rounding the maximum took: beyond 1e8 that is a factor, which weights
    of 16 bits may not hold. A finite number that stands for minus infinity is refused therefore.
Source: TileGym's attentions are written so, "to improve performance". Measured by hand on an NVIDIA
    H200 with cuda-tile 1.7: a causal attention in tiles of 64 by 128, two blocks a multiprocessor,
    after `exp2` and approximate division, from 0.3214 to 0.3067 ms. With log2(e) in the scale and
    the scale where it was, 0.5 %.
"""

from __future__ import annotations

from collections.abc import Callable
from math import e, isclose, log, log2
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.reaching_definitions import binds
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.divisors import divided_by
from agent.analysis.cutile.maybe_float64 import MaybeFloat64, unless_float64
from agent.analysis.cutile.positive import constant_number
from agent.analysis.cutile.scaled_exponents import EXP, ScaledExponents, exponentials
from agent.analysis.cutile.spelling import tile_module
from agent.playbook.base import REORDERED, OfEachKernel
from agent.playbook.trial import F16, TileTrial
from agent.rewriting.common.insertion import free_name
from agent.rewriting.cutile.insertion import after_imports
from agent.syntax import Edits, Function, Source, descendants, positional

LOG2_E, LN_2 = log2(e), log(2)
ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Integer, cst.Float)
"""Expressions that need no parentheses to be multiplied."""
Edit = Callable[[Any], Any]


class FoldedScale(OfEachKernel):
    """`ct.exp(p * s - m)` -> `ct.exp2(p * s_log2 - m)`, `m` the maximum of `p`, times `s_log2`."""

    name = "folded-scale"
    title = "scale folded into the exponent"
    backend = "cutile"
    family = "arithmetic"
    priority: ClassVar = {
        KernelClass.COMPUTE: -30,
        KernelClass.BALANCED: -30,
        KernelClass.MEMORY: 260,
    }
    expected = "a few percent of an attention, which waits for its exponentials"
    hypothesis = "Scale and subtraction are one instruction a score, where the scores are many."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {}
    before = """\
import math

import cuda.tile as ct
import torch

TILE = 16
WIDTH = 64


@ct.kernel
def attend_kernel(x, y, scale):
    i = ct.bid(0)
    q = ct.load(x, index=(i, 0), shape=(TILE, WIDTH), padding_mode=ct.PaddingMode.ZERO)
    largest = ct.full((TILE, 1), -math.inf, dtype=ct.float32)
    total = ct.zeros((TILE, 1), dtype=ct.float32)
    acc = ct.zeros((TILE, WIDTH), dtype=ct.float32)
    for j in range(ct.num_tiles(x, axis=0, shape=(TILE, WIDTH))):
        k = ct.load(x, index=(j, 0), shape=(TILE, WIDTH), padding_mode=ct.PaddingMode.ZERO)
        scores = ct.mma(q, ct.transpose(k), ct.zeros((TILE, TILE), dtype=ct.float32)) * scale
        columns = j * TILE + ct.arange(TILE, dtype=ct.int32)[None, :]
        scores = ct.where(columns < x.shape[0], scores, -math.inf)
        new_largest = ct.maximum(largest, ct.max(scores, axis=1, keepdims=True))
        weights = ct.exp(scores - new_largest)
        correction = ct.exp(largest - new_largest)
        total = total * correction + ct.sum(weights, axis=1, keepdims=True)
        acc = ct.mma(weights.astype(x.dtype), k, acc * correction)
        largest = new_largest
    ct.store(y, index=(i, 0), tile=(acc / total).astype(y.dtype))


def attend(x):
    y = torch.empty_like(x)
    grid = (ct.cdiv(x.shape[0], TILE),)
    arguments = (x, y, 1 / math.sqrt(x.shape[1]))
    ct.launch(torch.cuda.current_stream(), grid, attend_kernel, arguments)
    return y
"""
    after = (
        before.replace("dtype=ct.float32)) * scale\n", "dtype=ct.float32))\n")
        .replace(
            "keepdims=True))\n        weights", "keepdims=True) * scale_log2)\n        weights"
        )
        .replace(
            "ct.exp(scores - new_largest)",
            "ct.exp2(scores * scale_log2 - new_largest, flush_to_zero=True)",
        )
        .replace(
            "ct.exp(largest - new_largest)",
            "ct.exp2(largest - new_largest, flush_to_zero=True)",
        )
        .replace("    for j in", "    scale_log2 = scale * LOG2_E\n    for j in")
        .replace("import torch\n", f"import torch\n\nLOG2_E = {LOG2_E}\n")
    )

    trial = TileTrial(kernel="attend_kernel", arguments=((F16, 2), (F16, 2), "float32"), columns=64)

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> Edits:
        """Leave the scale to the exponents, of the kernel and of the helpers that it calls."""
        source = subject.source
        if kernel.name in subject.elsewhere:
            raise NotApplicable(f"other files launch {kernel.name}, perhaps with another scale")
        edits: dict[Any, Edit] = {}
        reached = CUTILE.reached(source, kernel)
        found = of_each(
            [function for function in reached if any(exponentials(source, function))],
            lambda function: _Folded(source, ScaledExponents.of(source, function)),
            f"looks for ct.exp and ct.exp2, and {kernel.name} calls neither",
        )
        constants = _Constants(source)
        for folded in found:
            edits |= folded.edits(constants)
        if constants.written:
            edits[source.module] = after_imports(source, *constants.written)
        return edits


class _Constants:
    """Numbers of the module: those that the file has already, and those that it lacks."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.written: list[str] = []

    def name_of(self, wanted: str, number: float, function: Function) -> str:
        """The name that a function reads a number by."""
        own = {parameter.name.value for parameter in function.parameters}
        for statement in self._source.module.body:
            for assign in descendants(statement, cst.Assign):
                match assign.targets:
                    case [cst.AssignTarget(target=cst.Name(value=name) as target)] if (
                        isinstance(statement, cst.SimpleStatementLine)
                        and len(self._source.assignments(target)) == 1
                        and name not in own
                        and not binds(function.node.body, name)
                        and isclose(
                            constant_number(self._source, assign.value) or 0.0, number, rel_tol=1e-9
                        )
                    ):
                        return name
        name = free_name(self._source, wanted)
        line = f"{name} = {number}\n"
        if line not in self.written:
            self.written.append(line)
        return name


class _Folded:
    """The edits of one function."""

    def __init__(self, source: Source, found: ScaledExponents) -> None:
        self.source = source
        self.found = found
        if found.base == 1.0 and isinstance(found.scale, cst.Name):
            self.scale, self.place = found.scale.value, None
        else:
            named = found.scale.value if isinstance(found.scale, cst.Name) else "scale"
            self.scale = free_name(source, f"{named}_log2")
            self.place = self._statement()

    def edits(self, constants: _Constants) -> dict[Any, Edit]:
        """All of them."""
        found, source = self.found, self.source
        edits: dict[Any, Edit] = {}
        for product in found.scales:
            edits |= self._without_scale(product)
        for call in found.maxima:
            edits[call] = self._scaling(call)
        for difference in found.differences:
            edits[difference] = self._difference
        for factor, inner in found.factors.items():
            edits[factor] = self._without_factor(factor, inner is factor.left)
        for call in found.exponentials:
            if source.name(call.func) == EXP:
                edits[call] = self._in_base_two(call)
        if found.outside and found.is_natural:
            ln_2 = cst.Name(constants.name_of("LN_2", LN_2, found.function))
            for name in found.outside:
                edits[name] = self._multiplying(name, ln_2)
        if self.place is not None:
            factor_text = ""
            if found.factor is not None:
                factor_text = self._factor(found.factor)
            elif found.is_natural:
                factor_text = constants.name_of("LOG2_E", LOG2_E, found.function)
            text = source.code(found.scale)
            if factor_text:
                text = f"{self._factor(found.scale)} * {factor_text}"
            edits[self.place] = _preceded(f"{self.scale} = {text}", edits.get(self.place))
        return edits

    def _statement(self) -> cst.CSTNode:
        """The outermost statement before which the scale can be multiplied for all its uses."""
        found, source = self.found, self.source
        known = found.defined_at(found.scale)
        uses = [*found.maxima, *found.differences]
        blocks = [a for a in source.ancestors(uses[0]) if isinstance(a, cst.IndentedBlock)]
        within = blocks[: blocks.index(_body(found)) + 1]
        for block in reversed(within):
            holding = [s for s in block.body if any(s in source.ancestors(u) for u in uses)]
            whole = all(block in source.ancestors(use) for use in uses)
            if whole and found.defined_at(holding[0]) == known:
                return holding[0]
        raise found.refusal(found.scale, "computes behind what it is needed for")

    def _without_scale(self, product: cst.BinaryOperation | cst.AugAssign) -> dict[Any, Edit]:
        """The edits that leave scores unscaled; `scores *= scale` goes as a whole."""
        source = self.source
        around = next(source.ancestors(product))
        if isinstance(product, cst.AugAssign):
            return {around: self._removed(around, product)}
        is_left = product.right is self.found.scales[product]
        other = product.left if is_left else product.right
        if isinstance(around, cst.Assign) and isinstance(other, cst.Name):
            line = next(source.ancestors(around))
            targets = [target.target for target in around.targets]
            if all(isinstance(t, cst.Name) and t.value == other.value for t in targets):
                return {line: self._removed(line, around)}
        return {product: lambda node: self._operand(product, node.left if is_left else node.right)}

    def _removed(self, line: cst.CSTNode, statement: cst.CSTNode) -> Edit:
        """The edit that takes a statement out of the lines around it."""
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) > 1:
            raise self.found.refusal(statement, "has several statements beside")
        block = next(self.source.ancestors(line))
        if isinstance(block, cst.IndentedBlock) and len(block.body) == 1:
            raise self.found.refusal(statement, "has in a block of its own")
        return lambda _: cst.RemoveFromParent()

    def _scaled(self, node: cst.BaseExpression) -> cst.BinaryOperation:
        is_product = isinstance(node, cst.BinaryOperation) and isinstance(
            node.operator, cst.Multiply
        )
        if not isinstance(node, ATOMS) and not is_product and not node.lpar:
            node = _in_parentheses(node)
        return cst.BinaryOperation(node, cst.Multiply(), cst.Name(self.scale))

    def _scaling(self, call: cst.Call) -> Edit:
        return lambda node: self._operand(call, self._scaled(node))

    def _multiplying(self, name: cst.Name, number: cst.Name) -> Edit:
        return lambda node: self._operand(name, cst.BinaryOperation(node, cst.Multiply(), number))

    def _difference(self, node: cst.BinaryOperation | cst.AugAssign) -> cst.CSTNode:
        if isinstance(node, cst.BinaryOperation):
            return node.with_changes(left=self._scaled(node.left))
        target = cst.ensure_type(node.target, cst.Name)
        less = node.value
        if isinstance(less, cst.BinaryOperation) and not less.lpar:
            less = _in_parentheses(less)
        value = cst.BinaryOperation(self._scaled(target), cst.Subtract(), less)
        return cst.Assign([cst.AssignTarget(target)], value, semicolon=node.semicolon)

    def _without_factor(self, factor: cst.BinaryOperation, is_left: bool) -> Edit:
        is_argument = isinstance(next(self.source.ancestors(factor)), cst.Arg)

        def edit(node: cst.BinaryOperation) -> cst.BaseExpression:
            inner = node.left if is_left else node.right
            if is_argument and inner.lpar:
                inner = inner.with_changes(lpar=inner.lpar[1:], rpar=inner.rpar[:-1])
            return self._operand(factor, inner)

        return edit

    def _in_base_two(self, call: cst.Call) -> Edit:
        """`ct.exp` as `ct.exp2`, which takes no rounding mode and may flush to zero."""
        source, function = self.source, self.found.function
        names = MaybeFloat64(source, function).names(positional(call)[0])
        flushes = names is not None and not divided_by(source, function, call)
        tile = tile_module(source)
        keywords = f"flush_to_zero={unless_float64(tile, names or ())}" if flushes else ""
        written = cst.ensure_type(cst.parse_expression(f"{tile}.exp2(x, {keywords})"), cst.Call)

        def edit(node: cst.Call) -> cst.Call:
            first, *others = written.args
            first = first.with_changes(value=node.args[0].value)
            if not others:
                first = first.with_changes(comma=cst.MaybeSentinel.DEFAULT)
            return written.with_changes(args=[first, *others], lpar=node.lpar, rpar=node.rpar)

        return edit

    def _operand(self, place: cst.BaseExpression, node: cst.BaseExpression) -> cst.BaseExpression:
        """An expression in parentheses where what is around it binds more closely."""
        around = next(self.source.ancestors(place))
        free = cst.Arg | cst.Assign | cst.AugAssign | cst.Index | cst.Return | cst.Element
        if isinstance(around, free) or isinstance(node, ATOMS) or node.lpar:
            return node
        is_product = isinstance(node, cst.BinaryOperation) and isinstance(
            node.operator, cst.Multiply
        )
        is_sum = isinstance(around, cst.BinaryOperation) and isinstance(
            around.operator, cst.Add | cst.Subtract
        )
        return node if is_product and is_sum else _in_parentheses(node)

    def _factor(self, node: cst.BaseExpression) -> str:
        """The text of an expression as a factor of a product."""
        text = self.source.code(node)
        return text if isinstance(node, ATOMS) or node.lpar else f"({text})"


def _body(found: ScaledExponents) -> cst.IndentedBlock:
    body = found.function.node.body
    if not isinstance(body, cst.IndentedBlock):
        raise NotApplicable(f"{found.function.name} is written on one line")
    return body


def _in_parentheses(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _preceded(text: str, before: Edit | None) -> Edit:
    """The edit that writes a statement above another; an empty line goes above both."""
    written = cst.parse_statement(text)

    def edit(node: Any) -> Any:
        node = before(node) if before is not None else node
        lines = [*node.leading_lines]
        empty = next((i for i, line in enumerate(lines) if line.comment), len(lines))
        added = written.with_changes(leading_lines=lines[:empty])
        return cst.FlattenSentinel([added, node.with_changes(leading_lines=lines[empty:])])

    return edit
