"""Choose how many warps run a block and how deep its loads are pipelined.

When: a Triton kernel that is launched with the defaults, 4 warps and 3 stages, or with a guess. Not
    an autotuned one: Triton chooses both itself.
Do: set `num_warps=` at the launch, and for a kernel with `tl.dot` also `num_stages=`. Without a dot
    the launch's `num_stages` pipelines nothing, so only the warps are swept.
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

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.intensity import tile_extent
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.playbook.base import Optimization
from agent.rewriting.triton.launch_options import DEFAULTS, check, now, setting_options
from agent.syntax import Source

WARPS = (1, 2, 4, 8, 16, 32)
DOT_WARPS = (4, 8)
DOT_STAGES = (2, 3, 4, 5)
LANES = 32
"""Threads of a warp: a tile with fewer elements leaves some idle."""


class WarpsAndStages(Optimization):
    """`kernel[grid](...)` -> `kernel[grid](..., num_warps=8)`."""

    name = "warps-and-stages"
    title = "warps and stages"
    backend = "triton"
    family = "warps"
    priority: ClassVar = {KernelClass.MEMORY: 14, KernelClass.BALANCED: 20, KernelClass.COMPUTE: 34}
    expected = "large where a long row spills with 4 warps; a few to 20 % for a dot in a loop"
    measured = "H200, Triton 3.6: transpose +0.0 % (noise), embedding -0.1 % (noise), bmm -41.2 %"
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

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Warps alone, or for a dot warps and stages; less what every launch says already."""
        source = subject.source
        kernels, has_dot = _kernels(subject)
        launches = [launch for k in kernels for launch in k.launches]
        if has_dot:
            sweep = _of_dot(source, launches)
        else:
            smallest = min((_elements(source, k) for k in kernels), default=0)
            sweep = [{"num_warps": w} for w in WARPS if not smallest or w * LANES <= smallest]
        found = [p for p in sweep if any(now(source, x, n) != v for x in launches
                                         for n, v in p.items())]  # fmt: skip
        if not found:
            raise NotApplicable("the tile is too small for another number of warps")
        return found

    def apply(self, subject: Subject, params: Params) -> str:
        """Set them at every launch of the kernels concerned."""
        source = subject.source
        launches = [launch for kernel in _kernels(subject)[0] for launch in kernel.launches]
        edits = setting_options(source, launches, params)
        if not edits:
            raise NotApplicable("every launch says this already")
        return source.rewrite(edits)


def _of_dot(source: Source, launches: Sequence[Launch]) -> list[dict[str, int]]:
    """Warps and stages: all pairs over the defaults, each alone over what a launch says."""
    pairs = [{"num_warps": w, "num_stages": s} for w in DOT_WARPS for s in DOT_STAGES]
    told = {name: now(source, x, name) for x in launches for name in DEFAULTS if name in x.hints}
    if not told:
        return pairs
    present = DEFAULTS | told
    return [p for p in pairs if any(p[name] == present[name] for name in present)]


def _kernels(subject: Subject) -> tuple[list[Kernel], bool]:
    """The kernels to set it for, and whether they hold a dot; those with one come before others."""
    if subject.hardware.interpreted:
        raise NotApplicable("Triton's interpreter knows neither warps nor stages")
    source = subject.source
    launched = [k for k in TRITON.kernels(source) if k.launches]
    free = [k for k in launched if not TRITON.autotuned(source, k.function)]
    if not free:
        names = ", ".join(k.name for k in launched)
        raise NotApplicable(
            f"Triton tunes the warps itself: {names} is autotuned" if names else "no launch found"
        )
    dots = [k for k in free if TRITON.has_dot(source, k)]
    check(source, (launch for kernel in dots or free for launch in kernel.launches))
    return (dots or free), bool(dots)


def _elements(source: Source, kernel: Kernel) -> int:
    """The elements of the kernel's tile; 0 when the source does not tell."""
    extents = {
        source.code(end): tile_extent(source, kernel, end)
        for call in TRITON.find(source, kernel.function.node.body, TRITON.iotas)
        if (end := TRITON.shapes["triton.language.arange"].of(call)) is not None
    }
    return prod(extent or 0 for extent in extents.values()) if extents else 0
