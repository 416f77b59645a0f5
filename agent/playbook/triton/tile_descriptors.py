"""Load tiles through tensor descriptors, which the tensor memory accelerator (TMA) serves.

When: a Triton kernel that loads two-dimensional tiles by pointers, `a_ptr + rows[:, None] * stride`
    and so on, masked by nothing but the ends of the array, on sm_90 or later.
Do: `tl.make_tensor_descriptor` once for each array, and `descriptor.load([row, column])` for the
    `tl.load`. A heuristic looks at pointers and strides, and where they do not fit, the pointers
    are used as before. `triton.set_allocator` gives the memory that a descriptor needs.
Risk: none to results: what lies past an end is zero, as `other=0.0` says. Each program writes its
    descriptors, which short programs do not gain back.
Source: compiled with Triton 3.6 for sm_90, such a matrix product copies with `cp.async.bulk.tensor`
    instead of `cp.async`; with 3.9 one of bf16 in tiles of 128 x 256 x 64 goes from 204 registers
    and 828 instructions to 154 and 629. NVIDIA's tuning notes for Tile IR report 524 to 562
    TFLOP/s for a persistent product of K=2048 on a B200 with Triton's own backend, and 463 to 550
    for K=5120.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import language
from agent.analysis.triton.spans import holds_at
from agent.analysis.triton.tiles import TileAccess
from agent.playbook.base import Optimization
from agent.playbook.trial import PRODUCTS, P, TritonTrial
from agent.rewriting.common.formatting import NewCall, laid_out
from agent.rewriting.common.insertion import unused
from agent.rewriting.triton.described import (
    KINDS,
    Described,
    branches,
    check_hardware,
    check_kernel,
    check_undescribed,
    in_memory,
    layout,
    origin,
    usable,
    wanted_name,
)
from agent.rewriting.triton.descriptors import (
    check_given,
    check_present,
    conditions,
    descriptor_place,
    fitting,
    only_where,
    with_descriptors,
)
from agent.rewriting.triton.edits import Edit, with_heuristics, with_parameters
from agent.syntax import Source


class TileDescriptors(Optimization):
    """`tl.load(a_ptr + ...)` -> `a_desc.load([row, column])`."""

    name = "tile-descriptors"
    title = "tensor descriptors"
    backend = "triton"
    family = "tma"
    priority: ClassVar = {KernelClass.COMPUTE: 16, KernelClass.BALANCED: 32, KernelClass.MEMORY: 64}
    expected = "a few to 15 % for large products on sm_90 and later"
    hypothesis = "One thread asks for a whole tile; the others no longer compute addresses."
    example: ClassVar[Params] = {"tiles": "loads"}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K - k)
        b_mask = (offs_k[:, None] < K - k) & (offs_n[None, :] < N)
        a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
    tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def matmul(a, b):
    (M, K), (_, N) = a.shape, b.shape
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    matmul_kernel[grid](
        a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), BLOCK_M=64, BLOCK_N=64, BLOCK_K=32
    )
    return c
"""
    after = '''\
import torch
import triton
import triton.language as tl


def descriptors_fit(args):
    """Whether the arrays are laid out as tensor descriptors need."""
    return (
        args["a_ptr"].data_ptr() % 16 == 0
        and args["a_ptr"].element_size() * args["stride_am"] % 16 == 0
        and args["a_ptr"].element_size() * args["BLOCK_K"] >= 16
        and args["b_ptr"].data_ptr() % 16 == 0
        and args["b_ptr"].element_size() * args["stride_bk"] % 16 == 0
        and args["b_ptr"].element_size() * args["BLOCK_N"] >= 16
    )


def allocate(size, alignment, stream):
    """Memory for the descriptors of one launch."""
    return torch.empty(size, device="cuda", dtype=torch.int8)


@triton.heuristics({"DESCRIPTORS": descriptors_fit})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DESCRIPTORS: tl.constexpr,
):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if DESCRIPTORS:
        a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [stride_am, 1], [BLOCK_M, BLOCK_K])
        b_desc = tl.make_tensor_descriptor(b_ptr, [K, N], [stride_bk, 1], [BLOCK_K, BLOCK_N])
    for k in range(0, K, BLOCK_K):
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K - k)
        b_mask = (offs_k[:, None] < K - k) & (offs_n[None, :] < N)
        if DESCRIPTORS:
            a = a_desc.load([pid_m * BLOCK_M, k])
            b = b_desc.load([k, pid_n * BLOCK_N])
        else:
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
            b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
    tl.store(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def matmul(a, b):
    (M, K), (_, N) = a.shape, b.shape
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    triton.set_allocator(allocate)
    matmul_kernel[grid](
        a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), BLOCK_M=64, BLOCK_N=64, BLOCK_K=32
    )
    return c
'''

    trial = TritonTrial(
        kernel="matmul_kernel",
        types=(P, P, P, *["i32"] * 6, 64, 64, 32),
        function="matmul",
        calls=PRODUCTS,
        types_after=(P, P, P, *["i32"] * 6, 64, 64, 32, True),
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Loads alone, and the stores as well."""
        return tile_variants(self, subject)

    def apply(self, subject: Subject, params: Params) -> str:
        """Describe the tiles of every launched kernel that can be."""
        check_hardware(subject)
        source, kinds = subject.source, KINDS[params["tiles"]]
        return with_descriptors(
            source, lambda kernel, fits: _described(source, kernel, kinds, fits)
        )


def tile_variants(entry: Optimization, subject: Subject) -> list[Params]:
    """Loads alone, and where it makes a difference the stores as well."""
    found: list[Params] = [{"tiles": "loads"}]
    text = entry.apply(subject, found[0])
    both: Params = {"tiles": "loads and stores"}
    with suppress(NotApplicable):
        if entry.apply(subject, both) != text:
            found.append(both)
    return found


@dataclass(frozen=True)
class Made:
    """A tile access with a descriptor that the kernel makes."""

    described: Described
    text: str
    """What makes the descriptor."""
    place: cst.BaseStatement
    """Above it the descriptor is made."""


def _described(
    source: Source, kernel: Kernel, kinds: Sequence[str], fits: str
) -> tuple[dict[cst.CSTNode, Edit], str]:
    """The edits of a kernel, and the function that says whether its arrays fit."""
    tl = language(source, kernel)
    check_undescribed(source, kernel)
    reasons: list[str] = []
    found = list(_making(source, kernel, kinds, tl, reasons))
    accesses = [made.described.access for made in found]
    check_kernel(source, kernel, accesses, reasons)
    layouts = [layout(access) for access in accesses]
    check_given(source, kernel, layouts)
    flag = unused(kernel, "DESCRIPTORS")
    edits = with_parameters(source, kernel, [f"{flag}: {tl}.constexpr"], "False")
    edits |= with_heuristics(source, kernel, {flag: fits})
    edits |= branches(source, [made.described for made in found], flag, tl)
    above: dict[cst.BaseStatement, dict[str, str]] = {}
    for made in found:
        above.setdefault(made.place, {})[made.described.name] = made.text
    for place, texts in above.items():
        edits[place] = _preceded(texts, flag, edits.get(place))
    return edits, fitting(fits, conditions(source, kernel, layouts))


def _making(
    source: Source, kernel: Kernel, kinds: Sequence[str], tl: str, reasons: list[str]
) -> Iterator[Made]:
    """What can be described, with its descriptors; why the rest cannot is added to the reasons."""
    names: dict[str, str] = {}
    for call in TRITON.find(source, kernel.function.node.body, kinds):
        try:
            access = usable(source, kernel, call)
            check_present(source, kernel, layout(access).base)
            place = _place(source, access)
        except NotApplicable as reason:
            reasons.append(str(reason))
            continue
        made = _made(source, access, tl)
        key = f"{made} {source.line(place)}"
        if key not in names:
            names[key] = unused(kernel, wanted_name(access), names.values())
        laid = laid_out(made, descriptor_place(source, place, names[key]))
        yield Made(Described(access, names[key]), laid, place)


def _place(source: Source, access: TileAccess) -> cst.BaseStatement:
    """The outermost statement around an access above which its descriptor can be made."""
    statements = [
        around
        for around in source.ancestors(access.call)
        if isinstance(around, cst.SimpleStatementLine | cst.For | cst.While | cst.If)
    ]
    for statement in reversed(statements):
        told_by = (*access.origin, *access.lengths)
        if all(holds_at(source, each, statement) for each in told_by):
            return statement
    raise NotApplicable(f"line {source.line(access.call)} adds what changes to its address")


def _made(source: Source, access: TileAccess, tl: str) -> NewCall:
    rows, columns = in_memory(access)
    return NewCall(
        f"{tl}.make_tensor_descriptor",
        [
            origin(source, access),
            f"[{rows.length}, {columns.length}]",
            f"[{' * '.join(rows.stride) or 1}, 1]",
            f"[{rows.extent}, {columns.extent}]",
        ],
    )


def _preceded(made: dict[str, str], flag: str, inner: Edit | None) -> Edit:
    lines = only_where(flag, [f"{name} = {text}" for name, text in made.items()])

    def edit(updated: cst.BaseStatement) -> Any:
        leading = getattr(updated, "leading_lines", ())
        rest = updated.with_changes(leading_lines=())
        changed = inner(rest) if inner is not None else rest
        return cst.FlattenSentinel([lines.with_changes(leading_lines=leading), changed])

    return edit
