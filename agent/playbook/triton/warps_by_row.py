"""Choose the number of warps by the length of the row that a block holds.

When: a Triton kernel without `tl.dot` whose block holds a whole row, `next_power_of_2(n_cols)`, and
    which is launched with the default of 4 warps or with one number for every length. Not an
    autotuned one.
Do: `num_warps=min(max(BLOCK // E, 1), 32)` at the launch; sweep the elements a warp gets, E.
Risk: none to results. Each power of two of the row length is compiled with warps of its own, as it
    is with a block of its own already.
Source: Liger's and Unsloth's ramp: 4 warps, 8 from 2048 elements, 16 from 8192, 32 from 32768.
    Helion's for reductions: 4 up to 1024, 8 up to 4096, 16 up to 16384, else 32. Compiled with
    Triton 3.6, a fp32 softmax row of 32768 needs 255 registers and 520 bytes of spills with 4
    warps, 182 with 8, 103 with 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import HostView, launches_in_sight
from agent.analysis.triton.program_ids import one_block
from agent.playbook.base import Optimization
from agent.rewriting.triton.edits import Edit, giving
from agent.rewriting.triton.launch_options import check_builtins, is_plain_or_ramp, ramp
from agent.syntax import Source

SWEEP = (128, 256, 512, 1024, 2048, 4096)
NEXT_POWER = "triton.next_power_of_2"
OPTION = "num_warps"


class WarpsByRow(Optimization):
    """`kernel[grid](...)` -> `kernel[grid](..., num_warps=min(max(BLOCK // 512, 1), 32))`."""

    name = "warps-by-row"
    title = "warps by row length"
    backend = "triton"
    family = "warps"
    priority: ClassVar = {KernelClass.MEMORY: 6, KernelClass.BALANCED: 10, KernelClass.COMPUTE: 70}
    expected = "large for rows over 4096, which spill with 4 warps; some for rows below 512"
    measured = (
        "H200, Triton 3.6: softmax +25.1 %, rms norm +12.1 %, qk norm +0.6 %, "
        "group quant +0.3 %, layer norm -30.1 %"
    )
    hypothesis = "Each row length gets the warps whose registers just hold it."
    revisit_after = frozenset({"reuse"})
    example: ClassVar[Params] = {"elements_per_warp": 512}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def log_softmax_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=float("-inf"))
    x -= tl.max(x, axis=0)
    y = x - tl.log(tl.sum(tl.exp(x), axis=0))
    tl.store(y_ptr + row * stride + cols, y, mask=cols < n_cols)


def log_softmax(x):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    BLOCK = triton.next_power_of_2(n_cols)
    log_softmax_kernel[(n_rows,)](x, y, x.stride(0), n_cols, BLOCK)
    return y
"""
    after = before.replace(
        "(x, y, x.stride(0), n_cols, BLOCK)\n",
        """\
(
        x, y, x.stride(0), n_cols, BLOCK, num_warps=min(max(BLOCK // 512, 1), 32)
    )
""",
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The sweep, less what every launch says already."""
        found: list[Params] = []
        for elements in SWEEP:
            try:
                self.apply(subject, {"elements_per_warp": elements})
            except NotApplicable:
                continue
            found.append({"elements_per_warp": elements})
        if not found:
            self.apply(subject, {"elements_per_warp": SWEEP[0]})
        return found

    def apply(self, subject: Subject, params: Params) -> str:
        """Set them at every launch of the kernels whose blocks hold rows."""
        source = subject.source
        edits: dict[cst.CSTNode, Edit] = {}
        for launch, row in _rows(subject):
            text = ramp(row, int(params["elements_per_warp"]))
            given = launch.hints.get(OPTION)
            if given is None or source.code(given) != text:
                edits[launch.node] = giving(source, launch.node, {OPTION: text})
        if not edits:
            raise NotApplicable(f"{OPTION} of every launch is this already")
        return source.rewrite(edits)


def _rows(subject: Subject) -> list[tuple[Launch, str]]:
    """The launches whose block is a row, and what the block is, as the host writes it."""
    if subject.hardware.interpreted:
        raise NotApplicable("Triton's interpreter knows no warps")
    source = subject.source
    found: list[tuple[Launch, str]] = []
    reasons: list[str] = []
    for kernel in TRITON.launched(source):
        try:
            found += _rows_of(source, kernel)
        except NotApplicable as reason:
            reasons.append(str(reason))
    if not found:
        raise NotApplicable("; ".join(reasons[:2]) or "no Triton kernel is launched here")
    return found


def _rows_of(source: Source, kernel: Kernel) -> Iterator[tuple[Launch, str]]:
    if TRITON.autotuned(source, kernel.function):
        raise NotApplicable(f"Triton tunes the warps itself: {kernel.name} is autotuned")
    if TRITON.has_dot(source, kernel):
        raise NotApplicable(f"{kernel.name} multiplies tiles, which are no rows")
    block = one_block(source, kernel)
    for launch in launches_in_sight(source, kernel):
        line = source.line(launch.node)
        given = HostView(source, launch).given(block)
        behind = source.resolve(given) if given is not None else None
        if given is None or not _is_row(source, behind):
            raise NotApplicable(f"{block} of the launch at line {line} is no next_power_of_2")
        if OPTION in launch.arguments or not is_plain_or_ramp(source, launch.hints.get(OPTION)):
            raise NotApplicable(f"the launch at line {line} computes {OPTION} itself")
        check_builtins(source, launch)
        yield launch, source.code(given)


def _is_row(source: Source, expression: cst.BaseExpression | None) -> bool:
    """Whether an expression is `next_power_of_2(n)`, perhaps within bounds."""
    if not isinstance(expression, cst.Call):
        return False
    if source.name(expression.func) in ("builtins.min", "builtins.max"):
        return any(_is_row(source, argument.value) for argument in expression.args)
    return source.name(expression.func) == NEXT_POWER
