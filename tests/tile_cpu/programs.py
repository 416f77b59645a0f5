"""Small kernels that ask what an operation means, and the inputs to ask with.

Each is run on the CPU against torch, and, where there is a GPU, against that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cuda.tile as ct
import torch
from torch import Tensor

SIZE = 16
EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.5,
    3.5,
    -2.5,
    1e-3,
    65504.0,
    1e5,
    -1e30,
    0.1,
    7.0,
    -7.0,
    448.0,
    0.3,
]


@dataclass(frozen=True)
class Program:
    """`kernel` is launched with `inputs()` and then `outputs()`, which it fills."""

    name: str
    kernel: Any
    inputs: Callable[[], Sequence[Any]]
    outputs: Callable[[], Sequence[Tensor]]
    reference: Callable[..., Any]
    """The outputs from the inputs, in torch."""
    grid: tuple[int, ...] = (1,)
    tolerance: float = 0.0


def filled(dtype: torch.dtype, *shape: int) -> Callable[[], list[Tensor]]:
    """An output that nobody may read."""
    return lambda: [torch.zeros(shape or (SIZE,), dtype=dtype, device="cuda")]


def floats(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(EDGES).to(dtype).to("cuda")


def small_floats(dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.arange(SIZE) / 4 - 1.9).to(dtype).to("cuda")


def integers(dtype: torch.dtype = torch.int32) -> Tensor:
    values = [0, 1, 2, 3, 5, 7, 11, 100, 127, 13, 1, 9, 4, 8, 6, 120]
    signs = (
        torch.ones(SIZE, dtype=torch.int64) if dtype is torch.uint8 else torch.tensor([1, -1] * 8)
    )
    return (torch.tensor(values) * signs).to(dtype).to("cuda")


def divisors(dtype: torch.dtype = torch.int32) -> Tensor:
    values = torch.tensor([3, 3, -3, -3, 2, 7, -7, 5] * 2)
    return (values.abs() if dtype is torch.uint8 else values).to(dtype).to("cuda")


f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
i8, i32, i64, u8 = torch.int8, torch.int32, torch.int64, torch.uint8


@ct.kernel
def reduce_rows(x, total, largest, place, running, product):
    tile = ct.load(x, (0, 0), (4, SIZE))
    ct.store(total, (0,), ct.sum(tile, axis=1))
    ct.store(largest, (0,), ct.max(tile, axis=1))
    ct.store(place, (0,), ct.argmin(tile, axis=1))
    ct.store(running, (0, 0), ct.cumsum(tile, axis=1, reverse=True))
    ct.store(product, (0,), ct.prod(tile, axis=1))


@ct.kernel
def reduce_by_function(x, largest, place, running):
    tile = ct.load(x, (0, 0), (4, SIZE))
    index = ct.arange(SIZE, dtype=ct.int32)[None, :]

    def better(a, i, b, j):
        first = (a > b) | ((a == b) & (i < j))
        return ct.where(first, a, b), ct.where(first, i, j)

    best, where = ct.reduce((tile, index), 1, better, (float("-inf"), 0))
    ct.store(largest, (0,), best)
    ct.store(place, (0,), where)
    ct.store(running, (0, 0), ct.scan(tile, 1, lambda a, b: ct.maximum(a, b), float("-inf")))


def rows() -> list[Tensor]:
    return [torch.stack([small_floats().roll(n) for n in range(4)])]


def row_outputs() -> list[Tensor]:
    def empty(*shape: int, dtype: torch.dtype = f32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device="cuda")

    return [empty(4), empty(4), empty(4, dtype=i32), empty(4, SIZE), empty(4)]


@ct.kernel
def rearrange(x, y):
    tile = ct.load(x, (0, 0), (4, SIZE))
    folded = ct.permute(ct.reshape(tile, (2, 2, -1)), (1, 0, 2))
    low = ct.extract(folded, (0, 1, 0), (2, 1, 8))
    both = ct.cat((low, low), 2)
    result = ct.insert(ct.zeros((4, SIZE), ct.float32), (1, 0), ct.reshape(both, (2, SIZE)))
    ct.store(y, (0, 0), result + ct.transpose(ct.full((SIZE, 4), 1.0, ct.float32)))


def rearranged(x: Tensor) -> Tensor:
    low = x.reshape(2, 2, SIZE).permute(1, 0, 2)[:, 1:2, :8]
    result = torch.zeros(4, SIZE, device=x.device)
    result[2:] = torch.cat((low, low), 2).reshape(2, SIZE)
    return result + 1


def loads(mode: Any) -> Any:
    @ct.kernel
    def kernel(x, y):
        block = ct.bid(0)
        tile = ct.load(x, (block, 0), (4, 8), padding_mode=mode)
        ct.store(y, (block, 0), tile)

    return kernel


def padded(value: float) -> Callable[[Tensor], Tensor]:
    def reference(x: Tensor) -> Tensor:
        result = torch.full((8, 8), value, device=x.device)
        result[: x.shape[0], : x.shape[1]] = x
        return result

    return reference


@ct.kernel
def masked_copy(x, limit, y):
    index = ct.arange(SIZE, dtype=ct.int32) * 3 - 4
    tile = ct.gather(x, index, mask=index < limit, padding_value=-1.0)
    ct.scatter(y, index // 3 + 4, tile, mask=index > 0)


def copied(x: Tensor, limit: int) -> Tensor:
    result = torch.zeros(SIZE, device=x.device)
    for i in range(SIZE):
        index = i * 3 - 4
        inside = 0 <= index < min(limit, len(x))
        if index > 0 and index // 3 + 4 < SIZE:
            result[index // 3 + 4] = x[index] if inside else -1.0
    return result


@ct.kernel
def transposed_order(x, y):
    tile = ct.load(x, (ct.bid(0), 0), (4, 8), order=(1, 0), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (ct.bid(0), 0), tile)


@ct.kernel
def overlapping_views(x, y):
    view = x.slice(0, 1, x.shape[0]).tiled_view((4,), traversal_steps=(2,))
    for i in range(3):
        ct.store(y, (i,), view.load((i,)))


@ct.kernel
def gather_rows(x, rows, y):
    index = ct.load(rows, (0,), (4,))
    tile = ct.load_advanced_indexing(x, (index, ct.Slice(2, 8)), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (0, 0), tile)


@ct.kernel
def count(x, histogram, largest):
    tile = ct.load(x, (ct.bid(0),), (SIZE,))
    ct.atomic_add(histogram, tile % 4, 1)
    ct.atomic_max(largest, ct.zeros((SIZE,), ct.int32), tile)


def counted(x: Tensor) -> list[Tensor]:
    return [torch.bincount(x % 4, minlength=4).to(i32), x.max()[None]]


@ct.kernel
def product(x, y, z):
    a = ct.load(x, (0, 0), (SIZE, 32))
    b = ct.load(y, (0, 0), (32, SIZE))
    zero = ct.zeros((SIZE, SIZE), z.dtype)
    ct.store(z, (0, 0), ct.mma(a, b, zero))


@ct.kernel
def tf32_product(x, y, z):
    a = ct.load(x, (0, 0), (SIZE, 32)).astype(ct.tfloat32)
    b = ct.load(y, (0, 0), (32, SIZE)).astype(ct.tfloat32)
    ct.store(z, (0, 0), ct.mma(a, b, ct.zeros((SIZE, SIZE), ct.float32)))


def factors(dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((SIZE, 32), (32, SIZE))
    if dtype in (i8, u8):
        low = 0 if dtype is u8 else -100
        values = [torch.randint(low, 100, shape, generator=generator) for shape in shapes]
    else:
        values = [torch.randn(shape, generator=generator) for shape in shapes]
    return [value.to(dtype).to("cuda") for value in values]


def exact_product(dtype: torch.dtype) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda a, b: (a.double() @ b.double()).to(dtype)


@ct.kernel
def control_flow(x, limit, y):
    n = ct.num_tiles(x, 0, (SIZE,))
    total = ct.zeros((SIZE,), ct.float32)
    for i in range(ct.bid(0), n, ct.num_blocks(0)):
        tile = ct.load(x, (i,), (SIZE,), padding_mode=ct.PaddingMode.ZERO)
        if i > limit:
            tile = tile * 2
        elif i == limit and ct.sum(tile) > 0:
            tile = -tile
        total += tile
    left = limit
    while left > 0:
        total = total + 1
        left -= 1
    ct.store(y, (ct.bid(0),), total)


def flowed(x: Tensor, limit: int) -> Tensor:
    tiles = torch.nn.functional.pad(x, (0, -len(x) % SIZE)).reshape(-1, SIZE).clone()
    tiles[limit + 1 :] *= 2
    if tiles[limit].sum() > 0:
        tiles[limit] *= -1
    return torch.cat([tiles[0::2].sum(0), tiles[1::2].sum(0)]) + limit


LAYOUT = [
    Program(
        "reductions",
        reduce_rows,
        rows,
        row_outputs,
        lambda x: [
            x.sum(1),
            x.amax(1),
            x.argmin(1).to(i32),
            x.flip(1).cumsum(1).flip(1),
            x.prod(1),
        ],
        tolerance=1e-5,
    ),
    Program(
        "reduction and scan by a function",
        reduce_by_function,
        rows,
        lambda: row_outputs()[1:4],
        lambda x: [x.amax(1), x.argmax(1).to(i32), x.cummax(1).values],
    ),
    Program("rearrangements", rearrange, rows, filled(f32, 4, SIZE), rearranged),
]

MEMORY = [
    *(
        Program(
            f"padding {mode.name}",
            loads(mode),
            lambda: [torch.ones(6, 5, device="cuda")],
            filled(f32, 8, 8),
            padded(value),
            grid=(2,),
        )
        for mode, value in (
            (ct.PaddingMode.ZERO, 0.0),
            (ct.PaddingMode.NEG_ZERO, -0.0),
            (ct.PaddingMode.NAN, float("nan")),
            (ct.PaddingMode.POS_INF, float("inf")),
            (ct.PaddingMode.NEG_INF, float("-inf")),
        )
    ),
    Program(
        "gather and scatter",
        masked_copy,
        lambda: [torch.arange(30.0, device="cuda"), 20],
        filled(f32),
        copied,
    ),
    Program(
        "order",
        transposed_order,
        lambda: [torch.arange(42.0, device="cuda").reshape(6, 7)],
        filled(f32, 8, 8),
        lambda x: torch.nn.functional.pad(x.T, (0, 2, 0, 1)),
        grid=(2,),
    ),
    Program(
        "overlapping views",
        overlapping_views,
        lambda: [torch.arange(9.0, device="cuda")],
        filled(f32, 12),
        lambda x: torch.cat([x[1 + 2 * i : 5 + 2 * i] for i in range(3)]),
    ),
    Program(
        "advanced indexing",
        gather_rows,
        lambda: [
            torch.arange(80.0, device="cuda").reshape(8, 10),
            torch.tensor([3, 0, 7, 3], dtype=i32, device="cuda"),
        ],
        filled(f32, 4, 8),
        lambda x, rows: x[rows.long(), 2:],
    ),
    Program(
        "atomics",
        count,
        lambda: [torch.arange(64, dtype=i32, device="cuda") * 7 % 64],
        lambda: [torch.zeros(n, dtype=i32, device="cuda") for n in (4, 1)],
        counted,
        grid=(4,),
    ),
    Program(
        "control flow",
        control_flow,
        lambda: [torch.arange(90.0, device="cuda") + 1, 2],
        filled(f32, 2 * SIZE),
        flowed,
        grid=(2,),
    ),
]

PRODUCTS = [
    *(
        Program(
            f"mma {dtype} in {result}",
            product,
            lambda d=dtype: factors(d),
            filled(result, SIZE, SIZE),
            exact_product(result),
            tolerance=tolerance,
        )
        for dtype, result, tolerance in (
            (f16, f32, 1e-5),
            (f16, f16, 4e-2),
            (bf16, f32, 1e-5),
            (f32, f32, 1e-5),
            (f64, f64, 1e-12),
            (i8, i32, 0.0),
            (u8, i32, 0.0),
            (torch.float8_e4m3fn, f32, 1e-4),
            (torch.float8_e5m2, f32, 1e-4),
        )
    ),
    Program(
        "mma tf32",
        tf32_product,
        lambda: factors(f32),
        filled(f32, SIZE, SIZE),
        exact_product(f32),
        tolerance=2e-2,
    ),
]

PROGRAMS = [*LAYOUT, *MEMORY, *PRODUCTS]
