"""Divide once for each row instead of once for each element.

When: a Triton kernel that divides a tile by a number, or a column of numbers, that a reduction
    gave: `numerator / tl.sum(numerator, axis=0)`.
Do: `x / d` -> `x * (1.0 / d)`.
Risk: changes rounding: the result may differ in its last bit. Where `d` is zero or not finite, both
    are.
Source: compiled with Triton 3.6, 8 divisions become 1 division and 8 multiplications.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import P, TritonTrial
from agent.syntax import Source, children, descendants

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
            for division in descendants(function.node.body, cst.BinaryOperation)
            if _divides_by_reduction(source, division)
        }
        if not edits:
            raise NotApplicable("no launched kernel divides a tile by what a reduction gave")
        return source.rewrite(edits)


def _divides_by_reduction(source: Source, division: cst.BinaryOperation) -> bool:
    """Whether a tile is divided by a reduction, on one line."""
    operator = division.operator
    return (
        isinstance(operator, cst.Divide)
        and isinstance(operator.whitespace_before, cst.SimpleWhitespace)
        and isinstance(division.right, cst.Name | cst.Call | cst.Subscript)
        and _is_reduced(source, division.right)
        and _is_tile(source, division.left)
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
