"""Take a reciprocal square root with one instruction.

When: a Triton kernel that divides by `tl.sqrt(...)`, or by a name for it, as normalizations do.
Do: `1 / tl.sqrt(e)` -> `tl.rsqrt(e)`, and `x / tl.sqrt(e)` -> `x * tl.rsqrt(e)`. A name for the
    root goes where nothing else uses it.
Risk: the result may differ in its last bits.
Source: compiled with Triton 3.6: one `rsqrt.approx` instead of a square root and a division.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.index_ranges import holds_at
from agent.analysis.triton.pointers import spelling
from agent.playbook.base import Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.triton.edits import Edit
from agent.syntax import Source, descendants, positional

ROOTS = ("triton.language.sqrt", "triton.language.math.sqrt")


class ReciprocalSquareRoot(Optimization):
    """`1 / tl.sqrt(e)` -> `tl.rsqrt(e)`."""

    name = "reciprocal-square-root"
    title = "reciprocal square root"
    backend = "triton"
    family = "arithmetic"
    priority: ClassVar = {KernelClass.MEMORY: 60, KernelClass.BALANCED: 50, KernelClass.COMPUTE: 60}
    expected = "small; hidden entirely where the kernel waits for memory"
    hypothesis = "One instruction replaces a square root and a division."
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, y_ptr, stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0)
    mean = tl.sum(x, axis=0) / n_cols
    centered = tl.where(cols < n_cols, x - mean, 0.0)
    variance = tl.sum(centered * centered, axis=0) / n_cols
    y = centered * (1.0 / tl.sqrt(variance + eps))
    tl.store(y_ptr + row * stride + cols, y, mask=cols < n_cols)


def layer_norm(x, eps=1e-5):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    layer_norm_kernel[(n_rows,)](x, y, x.stride(0), n_cols, eps, BLOCK=block)
    return y
"""
    after = before.replace("(1.0 / tl.sqrt(variance + eps))", "tl.rsqrt(variance + eps)")

    trial = TritonTrial(
        kernel="layer_norm_kernel", types=(P, P, "i32", "i32", "fp32", 1024), function="layer_norm"
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """One."""
        self.apply(subject, {})
        return [{}]

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Rewrite every such division of the launched kernels and of the helpers they call."""
        source = subject.source
        roots = [
            root
            for kernel in TRITON.chosen(source)
            for function in TRITON.reached(source, kernel)
            for division in descendants(function.node.body, cst.BinaryOperation)
            if (root := _divisor(source, division)) is not None
        ]
        if not roots:
            raise NotApplicable("no launched kernel divides by tl.sqrt(...)")
        edits: dict[cst.CSTNode, Edit] = {x.division: _multiplying(source, x) for x in roots}
        return source.rewrite(edits)


@dataclass(frozen=True)
class Divisor:
    """A division by a square root."""

    division: cst.BinaryOperation
    root: cst.Call
    """What takes the root, perhaps at another place."""


def _divisor(source: Source, division: cst.BinaryOperation) -> Divisor | None:
    """The square root that is divided by, if one is.

    None as well where a line ends before the `/`: a comment may stand there.
    """
    if not isinstance(division.operator, cst.Divide) or not isinstance(
        division.operator.whitespace_before, cst.SimpleWhitespace
    ):
        return None
    root = value_of(source, division.right)
    if not isinstance(root, cst.Call) or source.name(root.func) not in ROOTS:
        return None
    taken = positional(root)
    if len(taken) != 1 or len(root.args) != 1:
        return None
    if root is not division.right and not holds_at(source, taken[0], division):
        return None
    return Divisor(division, root)


def _multiplying(source: Source, divisor: Divisor) -> Edit:
    module = spelling(source, divisor.root)

    def edit(division: cst.BinaryOperation) -> cst.BaseExpression:
        in_place = divisor.root is divisor.division.right
        root = cst.ensure_type(division.right if in_place else divisor.root, cst.Call)
        root = root.with_changes(func=cst.parse_expression(f"{module}.rsqrt"))
        left, slash = division.left, division.operator
        if isinstance(left, cst.Integer | cst.Float) and left.evaluated_value == 1:
            if _only_groups(division):
                return root
            return root.with_changes(lpar=division.lpar, rpar=division.rpar)
        assert isinstance(slash, cst.Divide)
        times = cst.Multiply(slash.whitespace_before, slash.whitespace_after)
        return division.with_changes(operator=times, right=root)

    return edit


def _only_groups(expression: cst.BaseExpression) -> bool:
    """Whether an expression's parentheses, if any, neither break a line nor hold a comment."""
    spaces = [p.whitespace_after for p in expression.lpar]
    spaces += [p.whitespace_before for p in expression.rpar]
    return all(isinstance(space, cst.SimpleWhitespace) for space in spaces)
