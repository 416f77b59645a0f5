"""Which block of the grid is running."""

from __future__ import annotations

from typing import Any

from tile_agent_pytest.tile_cpu.errors import UnsupportedOperation
from tile_agent_pytest.tile_cpu.hook import ct
from tile_agent_pytest.tile_cpu.tile import Tile, integer, scalar

MOST_ATOMICS = 100_000
"""Atomics of one block past which it is taken to wait for another one."""

Grid = tuple[int, int, int]


class Running:
    """The block that runs now; blocks run one after another."""

    def __init__(self) -> None:
        self.grid: Grid = (1, 1, 1)
        self.block: Grid = (0, 0, 0)
        self._atomics = 0

    def begin(self, block: Grid) -> None:
        self.block = block
        self._atomics = 0

    def count_atomic(self) -> None:
        self._atomics += 1
        if self._atomics > MOST_ATOMICS:
            raise UnsupportedOperation(
                f"{MOST_ATOMICS} atomic operations in one block: it seems to wait for another"
                " block, but blocks run one after another here"
            )


running = Running()


def _axis(axis: Any) -> int:
    place = integer(axis, "axis")
    if place not in (0, 1, 2):
        raise ct.TileTypeError(f"axis must be 0, 1 or 2, got {place}")
    return place


def bid(axis: Any) -> Tile:
    return scalar(running.block[_axis(axis)], ct.int32)


def num_blocks(axis: Any) -> Tile:
    return scalar(running.grid[_axis(axis)], ct.int32)


OPERATIONS = {"bid": bid, "num_blocks": num_blocks}
