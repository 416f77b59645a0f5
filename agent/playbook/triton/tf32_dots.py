"""Multiply fp32 tiles on the tensor cores, with fewer bits of the operands.

When: a Triton kernel whose `tl.dot` asks for `input_precision="ieee"`, or `allow_tf32=False`, on
    sm_80 or later. The author has asked for the opposite, so that a run tries it only where it is
    told to, `--only tf32-dots`; whether fewer bits do, the tests say.
Do: ask for "tf32x3", which keeps nearly all bits in three products, or for "tf32", 10 bits.
Risk: changes rounding: by about 1e-3 of the result with "tf32", 1e-6 with "tf32x3". Fp16 and bf16
    operands are multiplied as before.
Source: compiled with Triton 3.6 for sm_90: 8 `wgmma` with "tf32", 24 with "tf32x3", and with "ieee"
    2048 FFMA and no tensor core at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.playbook.base import TF32_ROUNDING, Optimization
from agent.playbook.trial import P, TritonTrial
from agent.syntax import Source, keyword, with_keyword

PRECISIONS = ("tf32x3", "tf32")
FIRST_TF32 = 80
UNKNOWN = "unknown"
"""A precision that the kernel is given."""


class Tf32Dots(Optimization):
    """`tl.dot(a, b, input_precision="ieee")` -> `input_precision="tf32x3"`."""

    name = "tf32-dots"
    title = "TF32 products"
    backend = "triton"
    family = "precision"
    priority: ClassVar = {KernelClass.COMPUTE: 90, KernelClass.BALANCED: 90, KernelClass.MEMORY: 90}
    expected = "3 to 8 times for products of fp32, as vendors state for tensor cores"
    hypothesis = "The tensor cores multiply what the plain cores do now."
    changes_rounding = TF32_ROUNDING
    example: ClassVar[Params] = {"input_precision": "tf32x3"}
    opt_in = "it gives up digits that the author asked for"
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def gram_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    \"\"\"One program multiplies all of a matrix by its transpose.\"\"\"
    rows = tl.arange(0, BLOCK)
    mask = (rows[:, None] < n) & (rows[None, :] < n)
    x = tl.load(x_ptr + rows[:, None] * n + rows[None, :], mask=mask, other=0.0)
    y = tl.dot(x, x.T, input_precision="ieee")
    tl.store(y_ptr + rows[:, None] * n + rows[None, :], y, mask=mask)


def gram(x):
    y = torch.empty_like(x)
    gram_kernel[(1,)](x, y, x.shape[0], BLOCK=max(triton.next_power_of_2(x.shape[0]), 16))
    return y
"""
    after = before.replace('"ieee"', '"tf32x3"')

    trial = TritonTrial(
        kernel="gram_kernel",
        types=(P, P, "i32", 32),
        function="gram",
        calls=(((16, 16),), ((37, 37),), ((1, 1),)),
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The careful one, and the fast one."""
        dots = _dots(subject)
        present = {_precision(subject.source, dot) for dot in dots}
        return [{"input_precision": p} for p in PRECISIONS if present != {p}]

    def apply(self, subject: Subject, params: Params) -> str:
        """Ask for it in every dot that asked for more."""
        wanted = str(params["input_precision"])
        edits = {dot: _asking(wanted) for dot in _dots(subject)}
        return subject.source.rewrite(edits)


def _dots(subject: Subject) -> list[cst.Call]:
    """The dots that ask for fp32 products. Raises `NotApplicable` when there is none."""
    if 0 < subject.hardware.sm < FIRST_TF32:
        raise NotApplicable(f"sm_{subject.hardware.sm} has no TF32")
    source = subject.source
    every = [
        dot
        for kernel in TRITON.chosen(source)
        for function in TRITON.reached(source, kernel)
        for dot in TRITON.find(source, function.node.body, ("triton.language.dot",))
    ]
    found = [dot for dot in every if _precision(source, dot) == "ieee"]
    handed = [dot for dot in every if _precision(source, dot) == UNKNOWN]
    if handed and not found:
        given = keyword(handed[0], "input_precision")
        code = source.code(given) if given is not None else ""
        line = source.line(handed[0])
        raise NotApplicable(f"the precision of the tl.dot at line {line} is handed in: `{code}`")
    if not found:
        raise NotApplicable("no tl.dot asks for fp32 products; TF32 is what Triton uses unasked")
    return found


def _precision(source: Source, dot: cst.Call) -> str:
    given = keyword(dot, "input_precision")
    if given is not None:
        behind = source.resolve(given)
        return str(behind.evaluated_value) if isinstance(behind, cst.SimpleString) else UNKNOWN
    allowed = keyword(dot, "allow_tf32")
    return "ieee" if allowed is not None and source.code(allowed) == "False" else "tf32"


def _asking(precision: str) -> Callable[[cst.Call], cst.Call]:
    def edit(dot: cst.Call) -> cst.Call:
        kept = [a for a in dot.args if a.keyword is None or a.keyword.value != "allow_tf32"]
        if len(kept) < len(dot.args):
            kept[-1] = kept[-1].with_changes(comma=dot.args[-1].comma)
        return with_keyword(dot.with_changes(args=kept), "input_precision", f'"{precision}"')

    return edit
