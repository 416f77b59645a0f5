"""Launch no programs that store nothing.

When: a Triton kernel that was launched with more programs than its masks leave anything to store
    for: a grid with one program for each row where each program takes 64 of them.
Do: bound that extent of the grid by what the masks say, `min(n, triton.cdiv(n, 64))` where every
    store is under `pid * 64 + tl.arange(0, 64) < n`. Where that needs a stride to be positive, the
    launch asks for it.
Risk: none to results: every store of a program that is left out is under a condition that is false
    in it, as long as no element's number needs more bits than it has. Kernels that do more than to
    compute and store, or whose programs wait for one another or ask how many they are, are refused,
    and so are launches that may give what is no integer.
Source: EquiTriton's spherical harmonics launch a program for each point, and each takes 64 points:
    by hand 0.38 to 0.03 ms for 2^19 points on an NVIDIA H200.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import edits_of_each
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.idle_programs import Need, needs_of
from agent.launches import ObservedLaunch
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.triton.edits import Edit
from agent.rewriting.triton.smaller_grid import with_fewer_programs

WORTHWHILE = 1.1
"""Times as many programs as are needed."""


def _seen(n: int) -> ObservedLaunch:
    given = {"n": n, "BLOCK": 64}
    return ObservedLaunch("cube_kernel", "test_cube.py::test_perf", (n,), given, {}, {})


class NeededPrograms(OfEachKernel):
    """`kernel[(n,)]` -> `kernel[(min(n, triton.cdiv(n, BLOCK)),)]`."""

    name = "needed-programs"
    title = "needed programs only"
    backend = "triton"
    family = "grid"
    priority: ClassVar = {KernelClass.MEMORY: 3, KernelClass.BALANCED: 3, KernelClass.COMPUTE: 3}
    expected = "as many times faster as programs are idle, where those take the time"
    hypothesis = "A program that stores nothing takes the time of its loads and of its start."
    example: ClassVar[Params] = {}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def cube_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * x * x, mask=offsets < n)


def cube(x):
    y = torch.empty_like(x)
    n = x.numel()
    cube_kernel[(n,)](x, y, n, BLOCK=64)
    return y
"""
    after = before.replace("[(n,)]", "[(min(n, triton.cdiv(n, 64)),)]")
    observed: ClassVar[tuple[ObservedLaunch, ...]] = (_seen(4096), _seen(1 << 16))

    trial = TritonTrial(
        kernel="cube_kernel",
        types=(P, P, "i32", 64),
        function="cube",
        calls=(((3, 1024),), ((5, 77),), ((1, 1),), ((4, 2500),)),
    )

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> dict[cst.CSTNode, Edit]:
        """Bound the grid of every launch that shows what the stores need."""
        needs = _of_idle_axes(subject, kernel, needs_of(subject.source, kernel))
        return edits_of_each(
            kernel.launches,
            lambda launch: with_fewer_programs(subject.source, kernel, launch, needs),
            f"no launch of {kernel.name} stands in this file",
        )


def _of_idle_axes(
    subject: Subject, kernel: Kernel, needs: Mapping[int, tuple[Need, ...]]
) -> dict[int, tuple[Need, ...]]:
    """The axes along which a launch was seen to have more programs than it needs.

    Raises:
        NotApplicable: there is none.
    """
    seen = [each for each in subject.launches if each.kernel == kernel.name]
    if not seen:
        raise NotApplicable(f"nobody saw with how many programs {kernel.name} is launched")
    found = {
        axis: along
        for axis, along in needs.items()
        if any(_has_idle(launch, axis, along) for launch in seen)
    }
    if not found:
        raise NotApplicable(f"every launch of {kernel.name} has the programs that its stores need")
    return found


def _has_idle(launch: ObservedLaunch, axis: int, needs: tuple[Need, ...]) -> bool:
    if axis >= len(launch.grid):
        return False
    if any(not need.parameters <= launch.integers.keys() for need in needs):
        return False
    needed = [need.programs(launch.integers) for need in needs]
    known = [count for count in needed if count is not None]
    return len(known) == len(needed) and launch.grid[axis] > WORTHWHILE * max(*known, 1)
