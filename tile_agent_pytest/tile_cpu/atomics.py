"""Atomic read-modify-writes. Elements of one tile that meet at one address go one after another."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tile_agent_pytest.tile_cpu import dtypes
from tile_agent_pytest.tile_cpu.casts import implicit_cast
from tile_agent_pytest.tile_cpu.elementwise import less
from tile_agent_pytest.tile_cpu.grid import running
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.memory import (
    Array,
    Memory,
    RawArrayMemory,
    addresses,
    check_hints,
    expand,
)
from tile_agent_pytest.tile_cpu.tile import Tile, as_tile
from tile_agent_pytest.tile_cpu.views import TiledView, view_indices

Update = Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]

WIDE_INTEGERS = (ct.int32, ct.int64, ct.uint32, ct.uint64)
WIDE = (*WIDE_INTEGERS, ct.float32, ct.float64)

UPDATES: dict[str, tuple[Update, tuple[Any, ...]]] = {
    "xchg": (lambda _, new, __: new, WIDE),
    "add": (lambda old, new, dtype: dtypes.fit(old + new, dtype), (*WIDE, ct.float16, ct.bfloat16)),
    "max": (lambda old, new, dtype: torch.where(less(old, new, dtype), new, old), WIDE_INTEGERS),
    "min": (lambda old, new, dtype: torch.where(less(new, old, dtype), new, old), WIDE_INTEGERS),
    "and": (lambda old, new, _: old & new, WIDE_INTEGERS),
    "or": (lambda old, new, _: old | new, WIDE_INTEGERS),
    "xor": (lambda old, new, _: old ^ new, WIDE_INTEGERS),
}
"""By name: the new value from the old one and the update, and the dtypes that have it."""

BITWISE = ("and", "or", "xor")


def _rounds(offsets: torch.Tensor) -> list[torch.Tensor]:
    """Positions in rounds in which no address occurs twice."""
    if not offsets.numel():
        return []
    order = torch.argsort(offsets, stable=True)
    counts = torch.unique_consecutive(offsets[order], return_counts=True)[1]
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    turn = torch.arange(len(offsets)) - starts
    return [order[turn == n] for n in range(int(counts.max()))]


def _modify(
    memory: Memory, offset: torch.Tensor, chosen: torch.Tensor, result: torch.Tensor, update: Any
) -> Tile:
    """Apply `update(old, positions)` to what was chosen; the old values, `result` elsewhere."""
    running.count_atomic()
    result = result.clone()
    flat = offset[chosen]
    old = torch.zeros(flat.shape, dtype=dtypes.carrier(memory.dtype))
    for positions in _rounds(flat):
        here = flat[positions]
        old[positions] = memory.read(here)
        memory.write(here, update(old[positions], positions))
    result[chosen] = old
    return Tile(result, memory.dtype)


def _read_modify_write(
    name: str, memory: Memory, offset: torch.Tensor, chosen: torch.Tensor, update: Any
) -> Tile:
    new_value, supported = UPDATES[name]
    if memory.dtype not in supported:
        raise ct.TileTypeError(f"atomic_{name} does not take {memory.dtype.name}")
    if name in BITWISE and as_tile(update).dtype is not memory.dtype:
        raise ct.TileTypeError(f"atomic_{name} needs an update of {memory.dtype.name}")
    tile = implicit_cast(update, memory.dtype, "update")
    operand = expand(tile, tuple(offset.shape), "update")[chosen]
    nothing = torch.zeros(offset.shape, dtype=dtypes.carrier(memory.dtype))
    return _modify(
        memory,
        offset,
        chosen,
        nothing,
        lambda old, positions: new_value(old, operand[positions], memory.dtype),
    )


def _compare_and_swap(
    memory: Memory, offset: torch.Tensor, chosen: torch.Tensor, expected: Any, desired: Any
) -> Tile:
    if memory.dtype not in WIDE:
        raise ct.TileTypeError(f"atomic_cas does not take {memory.dtype.name}")
    shape = tuple(offset.shape)
    wanted = expand(implicit_cast(expected, memory.dtype, "expected"), shape, "expected")
    new = expand(implicit_cast(desired, memory.dtype, "desired"), shape, "desired")[chosen]
    flat = wanted[chosen]
    return _modify(
        memory,
        offset,
        chosen,
        wanted,
        lambda old, positions: torch.where(old == flat[positions], new[positions], old),
    )


def on_array(
    name: str,
    array: Array,
    indices: Any,
    update: Any,
    /,
    *,
    check_bounds: bool = True,
) -> Tile:
    return _read_modify_write(name, Memory(array), *addresses(array, indices, check_bounds), update)


def cas_on_array(
    array: Array,
    indices: Any,
    expected: Any,
    desired: Any,
    /,
    *,
    check_bounds: bool = True,
) -> Tile:
    return _compare_and_swap(
        Memory(array), *addresses(array, indices, check_bounds), expected, desired
    )


def _on_raw_memory(name: str) -> Callable[..., Tile]:
    def method(
        raw: RawArrayMemory,
        offset: Any,
        update: Any,
        /,
        *,
        mask: Any = None,
        **hints: Any,
    ) -> Tile:
        check_hints(hints)
        return _read_modify_write(name, raw.memory, *raw.addresses(offset, mask), update)

    return method


def cas_on_raw_memory(
    raw: RawArrayMemory,
    offset: Any,
    expected: Any,
    desired: Any,
    /,
    *,
    mask: Any = None,
    **hints: Any,
) -> Tile:
    check_hints(hints)
    return _compare_and_swap(raw.memory, *raw.addresses(offset, mask), expected, desired)


def on_view(name: str, view: TiledView, index: Any, update: Any, /) -> None:
    on_array(name, view.array, view_indices(view, index), update)


for _name in UPDATES:
    setattr(RawArrayMemory, f"atomic_{_name}_offset", _on_raw_memory(_name))
RawArrayMemory.atomic_cas_offset = cas_on_raw_memory  # type: ignore[attr-defined]

OPERATIONS: dict[str, Callable[..., Any]] = {
    **{f"atomic_{name}": partial(on_array, name) for name in UPDATES},
    **{
        f"TiledView.atomic_store_{name}": partial(on_view, name)
        for name in UPDATES
        if name != "xchg"
    },
    "atomic_cas": cas_on_array,
}
