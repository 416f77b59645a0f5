"""Compute exponentials to the base two, with the change of base folded into a scale.

When: a Triton kernel whose exponents are scaled already, as the scores of an attention are:
    `tl.exp(qk - m)` with `qk = tl.dot(q, k) * scale`. Not a bare `tl.exp(x)`: a constant for each
    element is what `tl.exp` multiplies by already.
Do: multiply the scale by log2(e), once, and take `tl.exp2` for `tl.exp`, in all of the kernel. An
    exponent that leaves the kernel, as in a log-sum-exp, is multiplied back by ln(2).
Risk: changes rounding: the maximum and the differences are rounded in base two.
Source: compiled with Triton 3.6, 8 multiplications fall to 2 for 8 elements: `tl.exp` is a
    multiplication and `ex2.approx`. Triton's attention tutorial and FlashAttention do the same.
    NVIDIA asks for it on the Tile IR backend of CUDA 13.1, which does not fuse the two by itself.
"""

from __future__ import annotations

from math import e, log, log2
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.exponents import Exponents
from agent.playbook.base import REORDERED, OfEachKernel
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.triton.edits import Edit, parenthesized, writing
from agent.syntax import Source

LOG2_E, LN_2 = repr(log2(e)), repr(log(2))


class FoldedExp2(OfEachKernel):
    """`tl.exp(s * scale - m)` -> `tl.exp2(s * (scale * log2(e)) - m)`."""

    name = "folded-exp2"
    title = "exponentials to the base two"
    backend = "triton"
    family = "arithmetic"
    priority: ClassVar = {KernelClass.COMPUTE: 10, KernelClass.BALANCED: 12, KernelClass.MEMORY: 62}
    expected = "a few percent of an attention, which waits for its exponentials"
    hypothesis = "One multiplication for each score less, where the scores are the bottleneck."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scaled_softmax_kernel(x_ptr, y_ptr, lse_ptr, scale, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=float("-inf"))
    score = x * scale
    largest = tl.max(score, axis=0)
    numerator = tl.exp(score - largest)
    total = tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * n_cols + cols, numerator / total, mask=cols < n_cols)
    tl.store(lse_ptr + row, largest + tl.log(total))


def scaled_softmax(x, scale=0.125):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    lse = torch.empty(n_rows, device=x.device, dtype=torch.float32)
    block = triton.next_power_of_2(n_cols)
    scaled_softmax_kernel[(n_rows,)](x, y, lse, scale, n_cols, BLOCK=block)
    return torch.cat([y, lse[:, None]], dim=1)
"""
    after = (
        before.replace("x * scale\n", f"x * (scale * {LOG2_E})\n")
        .replace("tl.exp(", "tl.exp2(")
        .replace("largest + tl.log", f"(largest * {LN_2}) + tl.log")
    )

    trial = TritonTrial(
        kernel="scaled_softmax_kernel",
        types=(P, P, P, "fp32", "i32", 1024),
        function="scaled_softmax",
    )

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> dict[cst.CSTNode, Edit]:
        """Change the base of exponents that have a scale."""
        return _in_base_two(subject.source, kernel)


def _in_base_two(source: Source, kernel: Kernel) -> dict[cst.CSTNode, Edit]:
    exponents = Exponents.of(source, kernel)
    edits: dict[cst.CSTNode, Edit] = dict.fromkeys(exponents.calls, _exp2)
    for scale in exponents.scales:
        text = f"{_factor(source, scale)} * {LOG2_E}"
        in_product = isinstance(next(source.ancestors(scale)), cst.BinaryOperation)
        edits[scale] = writing(f"({text})" if in_product else text)
    for number in exponents.stand_ins if exponents.outside else ():
        edits[number] = writing(f"{source.code(number)} * {LOG2_E}")
    for name in exponents.outside:
        edits[name] = writing(parenthesized(source, name, f"{name.value} * {LN_2}"))
    return edits


def _factor(source: Source, scale: cst.BaseExpression) -> str:
    """A scale as a part of a product: `x *= scale + bias` has none of the parentheses for it."""
    is_product = isinstance(scale, cst.BinaryOperation) and isinstance(scale.operator, cst.Multiply)
    atoms = (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Integer, cst.Float)
    text = source.code(scale)
    return text if scale.lpar or is_product or isinstance(scale, atoms) else f"({text})"


def _exp2(call: cst.Call) -> cst.Call:
    func = call.func
    if isinstance(func, cst.Attribute):
        return call.with_changes(func=func.with_changes(attr=cst.Name("exp2")))
    raise NotApplicable("tl.exp is imported by its own name")
