"""Choose how many warps run a block and how deep its loads are pipelined.

When: a Triton kernel that is launched with the defaults, 4 warps and 3 stages, or with a guess. Not
    an autotuned one: Triton chooses both itself.
Do: set `num_warps=` at the launch, and for a kernel with `tl.dot` also `num_stages=`. Without a dot
    the launch's `num_stages` pipelines nothing, so only the warps are swept. Where a launch is told
    them by a caller or a function, hides its arguments or stands in another file,
    `@triton.heuristics({"num_warps": ...})` right above `@triton.jit` sets them for all launches.
Risk: none to results. Too few warps spill registers, too many stages exceed the shared memory; the
    launch then fails, and the variant with it.
Source: Liger's and Unsloth's choice of 4 to 32 warps by row length; Helion's heuristics for H100.
    Compiled with Triton 3.6, a fp32 softmax row of 32768 needs 255 registers and 520 bytes of
    spills with 4 warps, 182 with 8, 103 with 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.following import following
from agent.analysis.common.intensity import tile_extent
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.tuners import check_untuned, why_tuned
from agent.launches import values_of
from agent.playbook.base import Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.triton.edits import Edit
from agent.rewriting.triton.kernel_options import KernelOptions, options_of
from agent.rewriting.triton.launch_options import DEFAULTS
from agent.rewriting.triton.unread_options import with_options

WARPS = (1, 2, 4, 8, 16, 32)
DOT_WARPS = (4, 8)
DOT_STAGES = (2, 3, 4, 5)
LANES = 32
"""Threads of a warp: a tile with fewer elements leaves some idle."""
MOST_HELD = 256
"""Elements of a tile that a thread may hold: of more, most would be spilled from 255 registers."""


class WarpsAndStages(Optimization):
    """`kernel[grid](...)` -> `kernel[grid](..., num_warps=8)`."""

    name = "warps-and-stages"
    title = "warps and stages"
    backend = "triton"
    family = "warps"
    priority: ClassVar = {KernelClass.MEMORY: 14, KernelClass.BALANCED: 20, KernelClass.COMPUTE: 34}
    expected = "large where a long row spills with 4 warps; a few to 20 % for a dot in a loop"
    hypothesis = "The right number of warps fills the registers without spilling them."
    revisit_after = frozenset({"tiles", "tma"})
    example: ClassVar[Params] = {"num_warps": 8}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=float("-inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * stride + cols, y, mask=cols < n_cols)


def softmax(x):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    softmax_kernel[(n_rows,)](
        x,
        y,
        x.stride(0),
        n_cols,
        BLOCK=triton.next_power_of_2(n_cols),  # one block holds a row
    )
    return y
"""
    after = before.replace(
        "# one block holds a row\n", "# one block holds a row\n        num_warps=8,\n"
    )

    trial = TritonTrial(
        kernel="softmax_kernel",
        types=(P, P, "i32", "i32", 1024),
        function="softmax",
        options_after={"num_warps": 8},
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Warps alone, or for a dot warps and stages; less what the source says already."""
        subject = following(TRITON, subject)
        kernels, has_dot = _kernels(subject)
        if has_dot:
            sweep = _of_dot(kernels)
        else:
            smallest = min(_elements(subject, options.kernel) for options in kernels)
            held = max(_held(subject, options.kernel) for options in kernels)
            sweep = [
                {"num_warps": w}
                for w in WARPS
                if (not smallest or w * LANES <= smallest) and held <= w * LANES * MOST_HELD
            ]
        found = [params for params in sweep if not all(o.say(params) for o in kernels)]
        if not found:
            raise NotApplicable("the tile is too small for another number of warps")
        return found

    def apply(self, subject: Subject, params: Params) -> str:
        """Set them for every launch of the kernels concerned."""
        subject = following(TRITON, subject)
        edits: dict[cst.CSTNode, Edit] = {}
        for options in _kernels(subject)[0]:
            edits |= options.setting(params)
        if not edits:
            raise NotApplicable("every launch says this already")
        return with_options(subject.source, edits)


def _of_dot(kernels: Sequence[KernelOptions]) -> list[dict[str, int]]:
    """Warps and stages: all pairs over the defaults, each alone over what the author chose."""
    pairs = [{"num_warps": w, "num_stages": s} for w in DOT_WARPS for s in DOT_STAGES]
    told = {name: v for name in DEFAULTS for options in kernels for v in options.given(name)}
    if not told:
        return pairs
    present = DEFAULTS | told
    return [p for p in pairs if any(p[name] == present[name] for name in present)]


def _kernels(subject: Subject) -> tuple[list[KernelOptions], bool]:
    """The kernels to set it for, and whether they hold a dot; those with one come before others."""
    if subject.hardware.interpreted:
        raise NotApplicable("Triton's interpreter knows neither warps nor stages")
    source = subject.source
    launched = TRITON.chosen(source)
    check_untuned(source, launched, "the warps")
    free = [k for k in launched if not why_tuned(source, k, "the warps")]
    dots = [k for k in free if TRITON.has_dot(source, k)]
    found = of_each(
        dots or free, lambda kernel: options_of(source, kernel, DEFAULTS), "no kernel here"
    )
    return found, bool(dots)


def _elements(subject: Subject, kernel: Kernel) -> int:
    """The elements of the kernel's tile; 0 when neither the source nor a launch tells."""
    extents = _extents(subject, kernel)
    return prod(extent or 0 for extent in extents) if extents else 0


def _held(subject: Subject, kernel: Kernel) -> int:
    """Those that its threads hold at least, at every launch; 0 where several tiles may be meant."""
    extents = _extents(subject, kernel)
    return extents[0] or 0 if len(extents) == 1 else 0


def _extents(subject: Subject, kernel: Kernel) -> list[int | None]:
    """Of each way in which the kernel counts elements, as far as it is told."""
    source = subject.source
    found = {
        source.code(end): _extent(subject, kernel, end)
        for call in TRITON.find(source, kernel.function.node.body, TRITON.iotas)
        if (end := TRITON.shapes["triton.language.arange"].of(call)) is not None
    }
    return list(found.values())


def _extent(subject: Subject, kernel: Kernel, end: cst.BaseExpression) -> int | None:
    """What the source says of an extent, else the smallest that it was launched with."""
    told = tile_extent(subject.source, kernel, end)
    if told is None and isinstance(end, cst.Name):
        return min(values_of(subject.launches, kernel.name, end.value), default=None)
    return told
