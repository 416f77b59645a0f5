"""What the example of an entry is tried with: the tests compile it and compare its numbers.

Stated on the entry, so that an entry is one file. The tests take up every entry by themselves.
Programs that several entries begin with are here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Shapes = tuple[tuple[tuple[int, ...], ...], ...]
"""Of the tensors of one call, several calls."""

P = "*fp32"
"""A pointer, as Triton writes its type."""
F16, F32 = "float16", "float32"
ROWS: Shapes = (((3, 1024),), ((5, 77),), ((1, 1),), ((4, 2500),))
"""One matrix a call; its rows end within a block, at the end of one, and need several."""
PAIRS: Shapes = tuple((shape, shape) for (shape,) in ROWS)
"""Two of the same shape."""
PRODUCTS: Shapes = (
    ((64, 64), (64, 64)),
    ((70, 36), (36, 132)),
    ((70, 33), (33, 130)),
    ((1, 7), (7, 3)),
)


@dataclass(frozen=True)
class TritonTrial:
    """For a Triton example; it runs in the interpreter and compiles for sm_80, sm_90, sm_100."""

    kernel: str
    types: tuple[str | int, ...]
    """Of the kernel's parameters, as Triton writes them; an integer is a constant."""
    function: str
    """The host's, which takes tensors alone."""
    calls: Shapes = ROWS
    types_after: tuple[str | int, ...] = ()
    """Where the transform changes the parameters."""
    options: Mapping[str, int] = field(default_factory=dict)
    """Of the launch: `num_warps`, `num_stages`."""
    options_after: Mapping[str, int] = field(default_factory=dict)
    reference: str = ""
    """What gives the right numbers where the example needs a Triton that few still have."""


Array = tuple[str, int] | tuple[str, int, tuple[int | None, ...]]
"""Type, dimensions, and extents where some are static."""


@dataclass(frozen=True)
class TileTrial:
    """For a cuTile example; the host's function is its last one."""

    kernel: str
    arguments: tuple[Array | str | int | float, ...]
    """Of the kernel: an array, the type of a scalar, or a constant."""
    arguments_after: tuple[Array | list[str | int] | str | int | float | bool, ...] = ()
    """Where the transform changes the parameters; a list is one of such arrays."""
    rows_of: int = 1
    """Its arrays have a multiple of so many rows."""
    columns: int = 0
    """Its arrays have so many columns; any number where it is zero."""
    fp32_only: bool = False
    """It stores products with an fp32 number as they are."""


TILE_PRODUCT = """\
import cuda.tile as ct
import torch

M, N, K = 128, 128, 64


@ct.kernel
def matmul_kernel(a, b, c):
    row, column = ct.bid(0), ct.bid(1)
    sum = ct.full((M, N), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(row, k), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(k, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        sum = ct.mma(left, right, sum)
    ct.store(c, index=(row, column), tile=ct.astype(sum, c.dtype))


def matmul(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(a.shape[0], M), ct.cdiv(b.shape[1], N))
    ct.launch(torch.cuda.current_stream(), grid, matmul_kernel, (a, b, c))
    return c
"""
"""cuTile: a product of matrices, tile by tile."""

TILE_ROWS = """\
import cuda.tile as ct
import torch


@ct.kernel
def softmax_kernel(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, N), padding_mode=ct.PaddingMode.NEG_INF)
    numerator = ct.exp(tile - ct.max(tile, axis=1, keepdims=True))
    ct.store(y, index=(row, 0), tile=numerator / ct.sum(numerator, axis=1, keepdims=True))


def softmax(x):
    y = torch.empty_like(x)
    n = 1 << (x.shape[1] - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), softmax_kernel, (x, y, n))
    return y
"""
"""cuTile: a softmax of rows, each of which a block holds whole."""

TUNED = """\
import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 512}, num_warps=2),
        triton.Config({"BLOCK": 1024}, num_warps=4),
    ],
    key=["n"],
)
@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=offsets < n)


def relu(x):
    y = torch.empty_like(x)
    grid = lambda META: (triton.cdiv(x.numel(), META["BLOCK"]),)
    relu_kernel[grid](x, y, x.numel())
    return y
"""
"""Triton: a kernel of one dimension, with a tuner."""
