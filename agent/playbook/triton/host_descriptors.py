"""Load tiles through tensor descriptors that the host makes, once a launch.

When: a Triton kernel that loads two-dimensional tiles by pointers, masked by nothing but the ends
    of the array, on sm_90 or later. Offsets such as `batch * stride`, which a program's number
    multiplies, become dimensions of the descriptor.
Do: `TensorDescriptor` of `triton.tools.tensor_descriptor` for each array, made by a heuristic,
    which sees what the launch gives, with an autotuner the config as well; and
    `descriptor.load([row, column])` for the `tl.load`. Where pointers and strides do not fit, the
    pointers are used as before. No allocator is needed.
Risk: none to results: what lies past an end is zero, as `other=0.0` says. Python makes the
    descriptors in every launch, which shows where launches are all of the time.
Source: Triton's persistent matmul tutorial, in its second form; triton.tools is part of stock
    Triton from 3.4 on. A descriptor that a program makes itself is written to memory and fenced,
    in every round of a persistent kernel too. On an H200, side by side with Triton 3.6 and kernels
    written by hand: a bf16 product of 4096^3 takes 0.1997 ms with pointers, 0.1949 ms so, and
    persistent 0.1945 ms with descriptors of the programs' own and 0.1894 ms with the host's; causal
    attention with heads of 128 takes 0.3586 ms and 0.3136 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import edits_of_each
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import language
from agent.playbook.base import Optimization
from agent.playbook.trial import PRODUCTS, P, TritonTrial
from agent.playbook.triton.tile_descriptors import TileDescriptors, tile_variants
from agent.rewriting.common.insertion import free_name, unused
from agent.rewriting.triton.described import (
    KINDS,
    Described,
    branches,
    check_hardware,
    check_kernel,
    check_undescribed,
    layout,
    usable,
    wanted_name,
)
from agent.rewriting.triton.descriptors import (
    before_kernels,
    check_given,
    check_present,
    conditions,
    fitting,
)
from agent.rewriting.triton.edits import Edit, with_heuristics, with_parameters
from agent.rewriting.triton.host_arrays import HostArray, array_of, importing, strides_in
from agent.syntax import Source


class HostDescriptors(Optimization):
    """`tl.load(a_ptr + ...)` -> `a_desc.load([row, column])`, with `a_desc` from the host."""

    name = "host-descriptors"
    title = "descriptors from the host"
    backend = "triton"
    family = "tma"
    priority: ClassVar = {KernelClass.COMPUTE: 14, KernelClass.BALANCED: 31, KernelClass.MEMORY: 62}
    expected = "a few to 15 % for products on sm_90 and later, more once they are persistent"
    hypothesis = (
        "One thread asks for a whole tile; no program writes a descriptor and waits for it."
    )
    example: ClassVar[Params] = {"tiles": "loads"}
    before = TileDescriptors.before
    after = '''\
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def descriptors_fit(args):
    """Whether the arrays are laid out as tensor descriptors need."""
    return (
        args["a_ptr"].data_ptr() % 16 == 0
        and args["a_ptr"].element_size() * args["stride_am"] % 16 == 0
        and args["a_ptr"].element_size() * args["BLOCK_K"] >= 16
        and args["b_ptr"].data_ptr() % 16 == 0
        and args["b_ptr"].element_size() * args["stride_bk"] % 16 == 0
        and args["b_ptr"].element_size() * args["BLOCK_N"] >= 16
        and args["M"] > 0
        and args["K"] > 0
        and args["stride_am"] > 0
        and args["N"] > 0
        and args["stride_bk"] > 0
    )


def a_descriptor(args):
    """The tiles of a_ptr, where its layout fits."""
    if not args["DESCRIPTORS"]:
        return None
    return TensorDescriptor(
        args["a_ptr"],
        [args["M"], args["K"]],
        [args["stride_am"], 1],
        [args["BLOCK_M"], args["BLOCK_K"]],
    )


def b_descriptor(args):
    """The tiles of b_ptr, where its layout fits."""
    if not args["DESCRIPTORS"]:
        return None
    return TensorDescriptor(
        args["b_ptr"],
        [args["K"], args["N"]],
        [args["stride_bk"], 1],
        [args["BLOCK_K"], args["BLOCK_N"]],
    )


@triton.heuristics(
    {"DESCRIPTORS": descriptors_fit, "a_desc": a_descriptor, "b_desc": b_descriptor}
)
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_bk,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    a_desc,
    b_desc,
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
        types_after=(
            P,
            P,
            P,
            *["i32"] * 6,
            64,
            64,
            32,
            True,
            "tensordesc<fp32[64, 32]>",
            "tensordesc<fp32[32, 64]>",
        ),
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The stores as well, and loads alone."""
        return list(reversed(tile_variants(self, subject)))

    def apply(self, subject: Subject, params: Params) -> str:
        """Describe the tiles of every launched kernel that can be."""
        check_hardware(subject)
        source = subject.source
        class_name, import_line = importing(source)
        extent = free_name(source, "strides_in")
        functions: list[str] = []
        kernels = TRITON.chosen(source)

        def described(kernel: Kernel) -> dict[cst.CSTNode, Edit]:
            prefix = "" if len(kernels) == 1 else f"{kernel.name.replace('.', '_')}_"
            tiles = _tiles(source, kernel, KINDS[params["tiles"]])
            edits, texts = _described(tiles, prefix, class_name, extent, functions)
            functions.extend(texts)
            return edits

        edits = edits_of_each(kernels, described, "no Triton kernel is launched here")
        if any(f"{extent}(" in text for text in functions):
            functions.insert(0, strides_in(extent))
        return source.rewrite(edits | before_kernels(source, functions, import_line))


@dataclass(frozen=True)
class DescribedTiles:
    """The tiles of a kernel that descriptors can serve."""

    source: Source
    kernel: Kernel
    described: tuple[Described, ...]
    arrays: Mapping[str, HostArray]
    """Each descriptor's name, and what it tells of."""


def _tiles(source: Source, kernel: Kernel, kinds: Sequence[str]) -> DescribedTiles:
    check_undescribed(source, kernel)
    described: list[Described] = []
    arrays: dict[str, HostArray] = {}
    reasons: list[str] = []
    for call in TRITON.find(source, kernel.function.node.body, kinds):
        try:
            access = usable(source, kernel, call)
            check_present(source, kernel, layout(access).base)
            array, leading = array_of(source, kernel, access)
        except NotApplicable as reason:
            reasons.append(str(reason))
            continue
        known = [name for name, other in arrays.items() if other == array]
        name = known[0] if known else unused(kernel, wanted_name(access), arrays)
        arrays[name] = array
        described.append(Described(access, name, leading))
    check_kernel(source, kernel, [each.access for each in described], reasons)
    return DescribedTiles(source, kernel, tuple(described), arrays)


def _described(
    tiles: DescribedTiles, prefix: str, class_name: str, extent: str, written: Sequence[str]
) -> tuple[dict[cst.CSTNode, Edit], list[str]]:
    """The edits of a kernel, and the functions that its heuristics call.

    Args:
        tiles: what descriptors can serve.
        prefix: what the functions' names begin with.
        class_name: how the file spells `TensorDescriptor`.
        extent: the name of the function of `strides_in`.
        written: the functions of other kernels.
    """

    def free(wanted: str) -> str:
        name = free_name(source, wanted)
        while any(text.startswith(f"def {name}(") for text in written):
            name = free_name(source, f"{name}_2")
        return name

    source, kernel, arrays = tiles.source, tiles.kernel, tiles.arrays
    layouts = [layout(each.access) for each in tiles.described]
    check_given(source, kernel, layouts, {name for a in arrays.values() for name in a.names})
    tl = language(source, kernel)
    flag = unused(kernel, "DESCRIPTORS")
    parameters = {parameter.name.value for parameter in kernel.function.parameters}
    fits = free(f"{prefix}descriptors_fit")
    makers = {name: free(f"{prefix}{name.replace('_desc', '_descriptor')}") for name in arrays}
    positive = [line for array in arrays.values() for line in array.positive(parameters)]
    functions = [fitting(fits, [*conditions(source, kernel, layouts), *dict.fromkeys(positive)])]
    for name, array in arrays.items():
        functions.append(array.maker(makers[name], parameters, flag, class_name, extent))
    edits = with_parameters(source, kernel, [f"{flag}: {tl}.constexpr", *arrays], "None")
    edits |= with_heuristics(source, kernel, {flag: fits, **makers})
    edits |= branches(source, tiles.described, flag, tl)
    return edits, functions
