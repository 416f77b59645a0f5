"""Divide once for each row instead of once for each element.

When: a Triton kernel that divides a tile by a number, or a column of numbers, that a reduction
    gave: `numerator / tl.sum(numerator, axis=0)`.
Do: `x / d` -> `x * (1.0 / d)`.
Risk: changes rounding: the result may differ in its last bit. Where `d` is zero or not finite, both
    are.
Source: compiled with Triton 3.6, 8 divisions become 1 division and 8 multiplications.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar

import libcst as cst

from agent.analysis.common.each_kernel import all_refuse
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import P, TritonTrial
from agent.syntax import Source, assigned, children, descendants

FLOATS = tuple(f"triton.language.{name}" for name in ("sum", "max", "sqrt", "exp", "exp2"))
"""What gives one number for many elements, or keeps such a number one."""
REDUCTIONS = FLOATS[:2]


class HoistedReciprocal(Optimization):
    """`x / d` -> `x * (1.0 / d)`."""

    name = "hoisted-reciprocal"
    title = "one reciprocal a row"
    backend = "triton"
    family = "arithmetic"
    priority: ClassVar = {KernelClass.MEMORY: 58, KernelClass.BALANCED: 48, KernelClass.COMPUTE: 62}
    expected = "small; hidden entirely where the kernel waits for memory"
    hypothesis = "A division takes some ten instructions, a multiplication one."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def share_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0)
    x = tl.exp(x)
    total = tl.sum(tl.where(cols < n_cols, x, 0.0), axis=0)
    tl.store(y_ptr + row * stride + cols, x / total, mask=cols < n_cols)


def share(x):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    share_kernel[(n_rows,)](x, y, x.stride(0), n_cols, BLOCK=block)
    return y
"""
    after = before.replace("x / total", "x * (1.0 / total)")

    trial = TritonTrial(kernel="share_kernel", types=(P, P, "i32", "i32", 1024), function="share")

    def variants(self, subject: Subject) -> Sequence[Params]:
        """One: every such division."""
        self.apply(subject, {})
        return [{}]

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Rewrite the divisions of the launched kernels and of the helpers they call."""
        source = subject.source
        edits = {
            division: _multiplied
            for kernel in TRITON.chosen(source)
            for function in TRITON.reached(source, kernel)
            for assignments in [list(assigned(function.node.body))]
            for division in descendants(function.node.body, cst.BinaryOperation)
            if _divides_by_reduction(source, division, assignments)
        }
        if not edits:
            raise all_refuse(
                list(_not_followed(source)),
                "no launched kernel divides a tile by what a reduction gave",
            )
        return source.rewrite(edits)


def _not_followed(source: Source) -> Iterator[str]:
    """Divisions of a tile by what some statement computes from a reduction, in words.

    A loop may carry the divisor, or a condition choose it: where it is not certain which assignment
    a name has its value from, all of them count here.
    """
    for kernel in TRITON.chosen(source):
        for function in TRITON.reached(source, kernel):
            behind = partial(_behind, source, list(assigned(function.node.body)))
            for division in descendants(function.node.body, cst.BinaryOperation):
                if not isinstance(division.operator, cst.Divide):
                    continue
                divisor = list(behind(division.right))
                is_reduced = any(source.name(call.func) in REDUCTIONS for call in divisor)
                is_tile = any(_makes_tile(source, call) for call in divisor)
                if not is_reduced or (is_tile and not _is_spread(source, division.right)):
                    continue
                if any(_makes_tile(source, call) for call in behind(division.left)):
                    yield (
                        f"line {source.line(division)} divides a tile by "
                        f"`{source.code(division.right)}`, and how a reduction gives that is not "
                        "followed"
                    )
                elif not isinstance(division.left, cst.Integer | cst.Float):
                    yield (
                        f"line {source.line(division)} divides `{source.code(division.left)}` by a "
                        "reduction, and whether that is a tile is not followed"
                    )


def _behind(
    source: Source,
    assignments: Sequence[tuple[cst.CSTNode, cst.BaseExpression]],
    expression: cst.BaseExpression,
) -> Iterator[cst.Call]:
    """The calls that an expression is computed from, the reductions without what they reduce."""
    nodes: list[cst.CSTNode] = [expression]
    for node in nodes:  # it grows
        if isinstance(node, cst.Call):
            yield node
            if source.name(node.func) in TRITON.reductions:
                continue
        if isinstance(node, cst.Comparison):
            continue
        found: list[cst.CSTNode] = list(children(node))
        if isinstance(node, cst.Name):
            one = value_of(source, node)
            found = (
                [one]
                if not isinstance(one, cst.Name)
                else [
                    value
                    for target, value in assignments
                    if any(name.value == one.value for name in descendants(target, cst.Name))
                ]
            )
        nodes += [each for each in found if each not in nodes]


def _is_spread(source: Source, expression: cst.BaseExpression) -> bool:
    """Whether an expression is `d[:, None]`: one number a row, however `d` was begun."""
    behind = value_of(source, expression)
    return isinstance(behind, cst.Subscript) and any(
        isinstance(element.slice, cst.Index)
        and isinstance(element.slice.value, cst.Name)
        and element.slice.value.value == "None"
        for element in behind.slice
    )


def _makes_tile(source: Source, call: cst.Call) -> bool:
    makers = (*TRITON.iotas, *TRITON.accumulators, *TRITON.dots, *TRITON.methods.values())
    return TRITON.called(source, call) in makers


def _divides_by_reduction(
    source: Source,
    division: cst.BinaryOperation,
    assignments: Sequence[tuple[cst.CSTNode, cst.BaseExpression]],
) -> bool:
    """Whether a tile is divided by a reduction, on one line.

    A name with several values in the function counts as a tile where one of them is.
    """
    operator = division.operator
    return (
        isinstance(operator, cst.Divide)
        and isinstance(operator.whitespace_before, cst.SimpleWhitespace)
        and isinstance(division.right, cst.Name | cst.Call | cst.Subscript)
        and _is_reduced(source, division.right)
        and (
            _is_tile(source, division.left)
            or any(_makes_tile(source, c) for c in _behind(source, assignments, division.left))
        )
    )


def _is_reduced(source: Source, expression: cst.BaseExpression) -> bool:
    """Whether an expression is one number a row."""
    behind = value_of(source, expression)
    if isinstance(behind, cst.Subscript):
        return _is_reduced(source, behind.value)
    if not isinstance(behind, cst.Call):
        return False
    called = source.name(behind.func)
    if called in REDUCTIONS:
        return True
    return called in FLOATS and bool(behind.args) and _is_reduced(source, behind.args[0].value)


def _is_tile(source: Source, expression: cst.BaseExpression) -> bool:
    """Whether an expression holds elements: it mentions what is loaded, and is not reduced."""
    behind = value_of(source, expression)
    if _is_reduced(source, behind):
        return False
    if isinstance(behind, cst.Call):
        called = source.name(behind.func)
        if called in REDUCTIONS:
            return False
        if called in (*TRITON.loads, *TRITON.iotas, *TRITON.accumulators, *TRITON.dots):
            return True
    if isinstance(behind, cst.Name):
        return False
    return any(
        _is_tile(source, c.value if isinstance(c, cst.Arg) else c)
        for c in children(behind)
        if isinstance(c, cst.BaseExpression | cst.Arg)
    )


def _multiplied(division: cst.BinaryOperation) -> cst.BinaryOperation:
    slash = cst.ensure_type(division.operator, cst.Divide)
    reciprocal = cst.BinaryOperation(
        cst.Float("1.0"),
        cst.Divide(),
        division.right,
        lpar=[cst.LeftParen()],
        rpar=[cst.RightParen()],
    )
    times = cst.Multiply(slash.whitespace_before, slash.whitespace_after)
    return division.with_changes(operator=times, right=reciprocal)
