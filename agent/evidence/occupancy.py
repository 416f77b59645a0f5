"""How many blocks of a kernel fit on a multiprocessor at once, and what keeps out the next one.

The rules are those of CUDA's occupancy calculator (`cuda_occupancy.h`), the limits those of the
CUDA Programming Guide's table of compute capabilities.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

WARP = 32
REGISTERS = 65536
"""A multiprocessor's, and the most that one block may have."""
REGISTER_UNIT = 256
"""Registers are handed to a warp in multiples of this."""
QUARTERS = 4
"""A multiprocessor is four partitions; a warp and its registers live in one of them."""
SHARED_UNIT_BYTES = 128
RESERVED_BYTES = 1024
"""Of shared memory, for the system, in each block."""
MOST_THREADS = 1024


@dataclass(frozen=True)
class MultiprocessorLimits:
    """Of one multiprocessor."""

    warps: int
    blocks: int
    shared_bytes: int

    @property
    def block_shared_bytes(self) -> int:
        """The most that a block may ask for."""
        return self.shared_bytes - RESERVED_BYTES


_AMPERE = MultiprocessorLimits(warps=64, blocks=32, shared_bytes=164 * 1024)
_ADA = MultiprocessorLimits(warps=48, blocks=24, shared_bytes=100 * 1024)
_HOPPER = MultiprocessorLimits(warps=64, blocks=32, shared_bytes=228 * 1024)
LIMITS = {
    80: _AMPERE,
    86: MultiprocessorLimits(warps=48, blocks=16, shared_bytes=100 * 1024),
    87: MultiprocessorLimits(warps=48, blocks=16, shared_bytes=164 * 1024),
    89: _ADA,
    90: _HOPPER,
    100: _HOPPER,
    103: _HOPPER,
    120: _ADA,
    121: _ADA,
}


@dataclass(frozen=True)
class Occupancy:
    """Theoretical: what fits, not what is there while the kernel runs."""

    blocks: int
    """A multiprocessor."""
    warps: int
    most_warps: int
    limiters: tuple[str, ...]
    """What keeps out one block more: registers, shared memory, warps, blocks."""

    @property
    def fraction(self) -> float:
        """Of the warps that a multiprocessor can hold."""
        return self.warps / self.most_warps

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self) | {"fraction": self.fraction}

    def __str__(self) -> str:
        blocks = f"{self.blocks} block{'' if self.blocks == 1 else 's'}"
        warps = f"{self.warps} of {self.most_warps} warps ({self.fraction:.0%})"
        return f"{blocks} = {warps}, limited by {' and '.join(self.limiters)}"


def occupancy(sm: int, registers: int, threads: int, shared_bytes: int) -> Occupancy | None:
    """Blocks that fit on one multiprocessor.

    Args:
        sm: compute capability times ten.
        registers: a thread.
        threads: a block.
        shared_bytes: a block, without what the system reserves.

    Returns:
        None where the limits of the architecture, or the threads, are not known.
    """
    limits = LIMITS.get(sm)
    if limits is None or threads <= 0:
        return None
    warps = _ceil(threads, WARP) // WARP
    per_warp = _ceil(max(registers, 1) * WARP, REGISTER_UNIT)
    warps_by_registers = REGISTERS // QUARTERS // per_warp * QUARTERS
    shared = _ceil(shared_bytes + RESERVED_BYTES, SHARED_UNIT_BYTES)
    fits = {
        "registers": warps_by_registers // warps,
        "shared memory": limits.shared_bytes // shared,
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
    }
    blocks = min(fits.values())
    return Occupancy(
        blocks=blocks,
        warps=blocks * warps,
        most_warps=limits.warps,
        limiters=tuple(name for name, count in fits.items() if count == blocks),
    )


def cannot_run(sm: int, registers: int, threads: int, shared_bytes: int) -> str | None:
    """Why no multiprocessor takes even one block, with the numbers; None when it does."""
    limits = LIMITS.get(sm)
    if limits is not None and shared_bytes > limits.block_shared_bytes:
        return (
            f"needs {shared_bytes} bytes of shared memory a block, and sm_{sm} has "
            f"{limits.block_shared_bytes}: take smaller tiles or fewer stages"
        )
    if threads > MOST_THREADS:
        return f"needs {threads} threads a block, and the most is {MOST_THREADS}"
    if (
        threads
        and _ceil(registers * WARP, REGISTER_UNIT) * _ceil(threads, WARP) // WARP > REGISTERS
    ):
        return (
            f"needs {registers} registers for each of {threads} threads, and a block may have "
            f"{REGISTERS}: take fewer warps"
        )
    return None


def _ceil(value: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-value // unit) * unit
