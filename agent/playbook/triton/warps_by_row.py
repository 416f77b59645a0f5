"""Choose the number of warps by the length of the row that a block holds.

When: a Triton kernel without `tl.dot` whose block is computed for the length, as
    `next_power_of_2(n_cols)` is. Not an autotuned one.
Do: `num_warps=min(max(BLOCK // E, 1), 32)` at the launch, or in the line that computes them for it;
    sweep the elements a warp gets, E, with at least one warp, or with at least four. Where a launch
    is told block or warps by a caller or a function, `@triton.heuristics` right above `@triton.jit`
    computes the warps from the block.
Risk: none to results. Each power of two of the row length is compiled with warps of its own, as it
    is with a block of its own already.
Source: Liger's and Unsloth's ramp: 4 warps, 8 from 2048 elements, 16 from 8192, 32 from 32768.
    Helion's for reductions: 4 up to 1024, 8 up to 4096, 16 up to 16384, else 32. Compiled with
    Triton 3.6, a fp32 softmax row of 32768 needs 255 registers and 520 bytes of spills with 4
    warps, 182 with 8, 103 with 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.purity import is_pure
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import HostView, launches_in_sight
from agent.analysis.triton.program_ids import one_block
from agent.analysis.triton.tile_axes import spans_both
from agent.analysis.triton.tuners import check_untuned
from agent.playbook.base import Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.triton.edits import Edit
from agent.rewriting.triton.kernel_options import (
    OnKernel,
    check_not_planned,
    on_kernel,
    setting_own,
)
from agent.rewriting.triton.launch_options import (
    check_shown,
    is_plain_or_ramp,
    ramp,
)
from agent.rewriting.triton.overriding import computes_own, overriding
from agent.rewriting.triton.unread_options import with_options
from agent.syntax import Source, Untraceable

SWEEP: tuple[Params, ...] = (
    *({"elements_per_warp": elements} for elements in (128, 256, 512, 1024, 2048, 4096)),
    *({"elements_per_warp": elements, "least_warps": 4} for elements in (512, 2048)),
)
"""Four are the warps that Triton gives. On an H200 a square of 384 rows of fp16 took 3.5 % longer
with one."""
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

    trial = TritonTrial(
        kernel="log_softmax_kernel",
        types=(P, P, "i32", "i32", 1024),
        function="log_softmax",
        options_after={"num_warps": 2},
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The sweep, less what every launch says already."""
        found: list[Params] = []
        for params in SWEEP:
            with suppress(NotApplicable):
                _edits(subject, **params)
                found.append(params)
        if not found:
            _edits(subject, **SWEEP[0])
        return found

    def apply(self, subject: Subject, params: Params) -> str:
        """Set them at every launch of the kernels whose blocks hold rows."""
        return with_options(
            subject.source, _edits(subject, **{name: int(n) for name, n in params.items()})
        )


@dataclass(frozen=True)
class RowLaunches:
    """The launches of a kernel, with what each gives for the block, as the host writes it."""

    source: Source
    rows: tuple[tuple[Launch, str], ...]

    def setting(self, *numbers: int) -> dict[cst.CSTNode, Edit]:
        """The edits for what `ramp` takes; none for what is there already."""
        texts = [(launch, {OPTION: ramp(row, *numbers)}) for launch, row in self.rows]
        return overriding(self.source, texts)


@dataclass(frozen=True)
class BlockRamp:
    """A kernel that computes the warps itself, from the block that a launch gives it."""

    kernel: OnKernel
    block: str

    def setting(self, *numbers: int) -> dict[cst.CSTNode, Edit]:
        """The edits for what `ramp` takes; none for what is there already."""
        return self.kernel.computing({OPTION: ramp(f'args["{self.block}"]', *numbers)})


def _edits(
    subject: Subject, elements_per_warp: int, least_warps: int = 1
) -> dict[cst.CSTNode, Edit]:
    """Those for so many elements a warp. Raises `NotApplicable` where there are none."""
    edits: dict[cst.CSTNode, Edit] = {}
    for place in _places(subject):
        edits |= place.setting(elements_per_warp, least_warps)
    if not edits:
        raise NotApplicable(f"{OPTION} of every launch is this already")
    return edits


def _places(subject: Subject) -> list[RowLaunches | BlockRamp]:
    """Where to set the warps of the kernels whose block is a row."""
    if subject.hardware.interpreted:
        raise NotApplicable("Triton's interpreter knows no warps")
    source = subject.source
    return of_each(
        TRITON.chosen(source),
        lambda kernel: _place(source, kernel),
        "no Triton kernel is launched here",
    )


def _place(source: Source, kernel: Kernel) -> RowLaunches | BlockRamp:
    check_untuned(source, [kernel], "the warps")
    if TRITON.has_dot(source, kernel):
        raise NotApplicable(f"{kernel.name} multiplies tiles, which are no rows")
    check_not_planned(source, kernel, (OPTION,))
    block = one_block(source, kernel)
    if spans_both(kernel):
        raise NotApplicable(f"the tiles of {kernel.name} are {block} by {block} elements, no rows")
    given = [HostView(source, launch).given(block) for launch in kernel.launches]
    if given and all(value is not None and _is_fixed(source, value) for value in given):
        raise NotApplicable(f"{block} of {kernel.name} is one number: see warps-and-stages")
    defaults = {p.name.value for p in kernel.function.parameters if p.default is not None}
    if block in defaults and any(block not in launch.arguments for launch in kernel.launches):
        raise NotApplicable(
            f"a launch may leave {block} to its default, which no heuristic is told"
        )
    try:
        return RowLaunches(source, tuple(_rows_of(source, kernel, block)))
    except NotApplicable as reason:
        check_builtins(source, kernel.function.node, "max", "min")
        return BlockRamp(on_kernel(source, kernel, (OPTION,), reason), block)


def _rows_of(source: Source, kernel: Kernel, block: str) -> Iterator[tuple[Launch, str]]:
    """The launches, where each gives a row for the block."""
    if setting_own(source, kernel, OPTION):
        raise NotApplicable(f"{kernel.name} computes {OPTION} itself")
    for launch in launches_in_sight(source, kernel):
        line = source.line(launch.node)
        given = HostView(source, launch).given(block)
        behind = source.resolve(given) if given is not None else None
        own = computes_own(source, launch, OPTION)
        if given is None or not (_is_row(source, behind) or (own and is_pure(source, given))):
            raise NotApplicable(f"{block} of the launch at line {line} is no next_power_of_2")
        plain = own or is_plain_or_ramp(source, launch.hints.get(OPTION))
        if OPTION in launch.arguments or not plain:
            raise NotApplicable(f"the launch at line {line} computes {OPTION} itself")
        check_shown(source, launch, OPTION)
        check_builtins(source, launch.node, "max", "min")
        simple = isinstance(given, cst.Name | cst.Attribute | cst.Call | cst.Subscript)
        yield launch, source.code(given) if simple or given.lpar else f"({source.code(given)})"


def _is_fixed(source: Source, expression: cst.BaseExpression) -> bool:
    """Whether an expression is one integer of the file."""
    try:
        return not source.trace(expression).is_default
    except Untraceable:
        return False


def _is_row(source: Source, expression: cst.BaseExpression | None) -> bool:
    """Whether an expression is `next_power_of_2(n)`, perhaps within bounds."""
    if not isinstance(expression, cst.Call):
        return False
    if source.name(expression.func) in ("builtins.min", "builtins.max"):
        return any(_is_row(source, argument.value) for argument in expression.args)
    return source.name(expression.func) == NEXT_POWER
