"""Launch as many programs as the GPU holds at once, and let each work on many tiles.

When: a Triton kernel with one program for each row or tile, and many more of them than the GPU runs
    at once: over two for each multiprocessor.
Do: put the body into `for program in tl.range(tl.program_id(0), programs, tl.num_programs(0))` and
    launch a few programs for each multiprocessor, about as many as their warps leave room for. A
    grid of two or three dimensions is counted along its first axis first, as the hardware does. A
    loop without loops of its own may be pipelined: the loads of the next row then overlap with the
    computation of this one, as far as shared memory holds rows of that length and type. With a
    loop of products in it, `flatten=True` makes one loop of both, so that the loads of the next
    tile overlap with the end of this one; what is stored then needs shared memory of its own, for
    which a stage may have to go. An early return (`if row >= n: return`) becomes a branch.
Risk: none to results: every program of the old grid is one round of the loop. Programs that wait
    for one another would hang, so kernels with locks are refused. What a barrier orders stays as it
    is: nothing is loaded ahead then. A short grid gains nothing.
Source: Triton's softmax tutorial; TileGym's cuTile playbook, item B, which claims +50 % to +300 %
    for many small blocks, and for a product of 4096^3 on a B200 reports 1133 TFLOP/s flat and 988
    persistent: only a timing tells. Compiled with Triton 3.6 for sm_90, a bf16 softmax row of 32768
    fills a multiprocessor with its 32 warps; with 2 stages it loads 64 KiB ahead with `cp.async`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.arguments import rewritten
from agent.analysis.triton.configs import shared_bytes
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.tuners import why_tuned
from agent.analysis.triton.waiting import has_barrier
from agent.playbook.base import Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.triton.early_returns import early_returns
from agent.rewriting.triton.edits import Edit
from agent.rewriting.triton.launch_options import now, setting_options
from agent.rewriting.triton.loads_ahead import Pipelined, is_counted
from agent.rewriting.triton.persistence import (
    Rounds,
    extents_of,
    host_edits,
    kernel_edits,
)
from agent.syntax import descendants

SWEEP_LOOPED, SWEEP_DOT = (1, 2, 4, 8), (1, 2)
FEWEST_STAGES = 3
"""Of a loop of products: with two, a tile is loaded only while the one before it is multiplied."""
MOST_WARPS = 64
"""Of a multiprocessor, on every GPU with TMA and on sm_80."""
ROWS = ((1, 2), (1, 3), (2, 2), (2, 3), (4, 2), (4, 3), (4, None), (8, None))
"""Programs and stages where the warps follow from the length of a row. One program that fills a
multiprocessor has nothing beside it to hide its loads: it needs them pipelined."""


class PersistentPrograms(Optimization):
    """One program a tile -> a few programs a multiprocessor, each with a loop over tiles."""

    name = "persistent-programs"
    title = "persistent programs"
    backend = "triton"
    family = "scheduling"
    priority: ClassVar = {KernelClass.MEMORY: 22, KernelClass.BALANCED: 26, KernelClass.COMPUTE: 22}
    expected = "TileGym claims +50 % to +300 % for many small blocks; a loss for some products"
    hypothesis = "Programs that stay spare the start of each, and overlap one tile with the next."
    example: ClassVar[Params] = {"programs_per_sm": 16, "num_stages": 3}
    before = '''\
import torch
import triton
import triton.language as tl


@triton.jit
def center_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    """Subtracts the mean of each row."""
    row = tl.program_id(0)
    x_ptr += row * stride
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0)
    y = x - tl.sum(x, axis=0) / n_cols
    tl.store(y_ptr + row * stride + cols, y, mask=cols < n_cols)


def center(x):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    center_kernel[(n_rows,)](x, y, x.stride(0), n_cols, BLOCK=block)
    return y
'''
    after = '''\
import torch
import triton
import triton.language as tl


@triton.jit
def center_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr, n_programs):
    """Subtracts the mean of each row."""
    x_ptr_bytes: tl.constexpr = BLOCK * x_ptr.dtype.element_ty.primitive_bitwidth // 8
    num_stages: tl.constexpr = 3 if 2 * x_ptr_bytes <= 224256 else 1
    for row in tl.range(
        tl.program_id(0), n_programs, tl.num_programs(0), num_stages=num_stages
    ):
        x_ptr_of_row = x_ptr + row * stride
        cols = tl.arange(0, BLOCK)
        x = tl.load(x_ptr_of_row + cols, mask=cols < n_cols, other=0.0)
        y = x - tl.sum(x, axis=0) / n_cols
        tl.store(y_ptr + row * stride + cols, y, mask=cols < n_cols)


def center(x):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    n_sms = torch.cuda.get_device_properties(
        torch.cuda.current_device()
    ).multi_processor_count
    center_kernel[(min(n_rows, n_sms * 16),)](
        x, y, x.stride(0), n_cols, BLOCK=block, n_programs=n_rows
    )
    return y
'''

    trial = TritonTrial(
        kernel="center_kernel",
        types=(P, P, "i32", "i32", 1024),
        function="center",
        types_after=(P, P, "i32", "i32", 1024, "i32"),
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Programs a multiprocessor; pipelined too, where the loop is the only one."""
        kernels = _kernels(subject)
        if any(TRITON.has_dot(subject.source, r.kernel) for r in kernels):
            products = [r for r in kernels if TRITON.has_dot(subject.source, r.kernel)]
            flat = _flattened(products) if any(map(_may_be_flat, products)) else []
            return [*flat, *({"programs_per_sm": count} for count in SWEEP_DOT)]
        plain = [r for r in kernels if _may_load_ahead(r)]
        if not plain or any(_has_loops(r) or _rewrites(r) for r in plain):
            return [{"programs_per_sm": count} for count in SWEEP_LOOPED]
        found = [pair for r in plain for pair in _pairs(r)]
        return [
            {"programs_per_sm": count} | ({"num_stages": stages} if stages else {})
            for count, stages in dict.fromkeys(found)
        ]

    def apply(self, subject: Subject, params: Params) -> str:
        """Rewrite every launched kernel that can be, and all its launches."""
        edits: dict[cst.CSTNode, Edit] = {}
        stages, flatten = params.get("num_stages"), bool(params.get("flatten"))
        pipelined = Pipelined(stages, shared_bytes(subject.hardware.sm)) if stages else None
        if flatten and stages:
            subject, pipelined = _launched_with(subject, stages), None
        for rounds in _kernels(subject):
            ahead = pipelined if _may_load_ahead(rounds) else None
            edits |= kernel_edits(
                rounds,
                ahead,
                flatten=flatten and _may_be_flat(rounds),
                elsewhere=rounds.kernel.name in subject.elsewhere,
            )
            edits |= host_edits(rounds, int(params["programs_per_sm"]))
        return subject.source.rewrite(edits)


def _kernels(subject: Subject) -> list[Rounds]:
    if subject.hardware.interpreted:
        raise NotApplicable("Triton's interpreter runs one program after the other")

    def looped(kernel: Kernel) -> Rounds:
        rounds = extents_of(subject.source, kernel)
        kernel_edits(rounds)
        host_edits(rounds, 1)
        return rounds

    return of_each(TRITON.chosen(subject.source), looped, "no Triton kernel is launched here")


def _flattened(products: Sequence[Rounds]) -> list[Params]:
    """One loop of two, with the stages of the launches and with one fewer.

    Such a loop keeps the stages of the next tile beside what it stores of this one.
    """
    flat: Params = {"programs_per_sm": 1, "flatten": True}
    said = []
    for rounds, launch in ((r, launch) for r in products for launch in r.kernel.launches):
        with suppress(NotApplicable):
            said.append(now(rounds.source, launch, "num_stages"))
    stages = max(said, default=0)
    return [flat, *([{**flat, "num_stages": stages - 1}] if stages > FEWEST_STAGES else [])]


def _launched_with(subject: Subject, stages: int) -> Subject:
    """The file with launches of so many stages."""
    source = subject.source
    kernels = [r.kernel for r in _kernels(subject) if not why_tuned(source, r.kernel, "the stages")]
    launches = [launch for kernel in kernels for launch in kernel.launches]
    text = source.rewrite(setting_options(source, launches, {"num_stages": stages}))
    return replace(subject, source=source.with_text(text))


def _pairs(rounds: Rounds) -> Sequence[tuple[int, int | None]]:
    """Programs and stages: about as many programs as their warps leave room for."""
    try:
        warps = max(now(rounds.source, x, "num_warps") for x in rounds.kernel.launches)
    except NotApplicable:
        return ROWS
    most = max(MOST_WARPS // warps, 1)
    fewer = (most // 2, 3) if most > 1 else (most, 4)
    return ((most, 2), (most, 3), fewer, (2 * most, 2), (most, None), (2 * most, None))


def _has_loops(rounds: Rounds) -> bool:
    body = rounds.kernel.function.node.body
    return any(True for kind in (cst.For, cst.While) for _ in descendants(body, kind))


def _may_load_ahead(rounds: Rounds) -> bool:
    """Not where loads of a round depend on a branch, a barrier orders them, or they may not fit."""
    body = cst.ensure_type(rounds.kernel.function.node.body, cst.IndentedBlock)
    source, kernel = rounds.source, rounds.kernel
    orderly = not early_returns(body) and not has_barrier(source, kernel)
    return orderly and is_counted(source, kernel)


def _may_be_flat(rounds: Rounds) -> bool:
    """A nest of two is what the compiler makes one loop of; a barrier keeps its round."""
    body = rounds.kernel.function.node.body
    loops = [loop for kind in (cst.For, cst.While) for loop in descendants(body, kind)]
    one = len(loops) == 1 and isinstance(loops[0], cst.For)
    return one and not has_barrier(rounds.source, rounds.kernel)


def _rewrites(rounds: Rounds) -> bool:
    """Whether a load of the next round might have to wait for a store of this one."""
    try:
        return bool(rewritten(rounds.source, rounds.kernel))
    except NotApplicable:
        return True
