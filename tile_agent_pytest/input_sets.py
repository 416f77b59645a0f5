"""A callable's tensors several times over, so that launches in a row do not share the L2 cache.

Fifty launches of a kernel on the same inputs find them in the cache, or a part of them that depends
on where they lie: the same L2 norm of 34 MB takes 26 % more or less from process to process on an
H200. On sets that overflow the cache together, every launch reads memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tile_agent_pytest.examining.tensors import span_bytes, torch

OVERFLOW = 3.0
"""Times the L2 cache: what all sets together hold."""
_ALIGNED_TO = 16
"""Bytes: kernels are compiled for addresses that are multiples of it, or not."""


class InputSets:
    """The tensors on a GPU, with the memory of each set of them.

    Args:
        tensors: what a callable has at hand. Those that lie in one memory do so in every set.
        count: of sets; the first is the memory that they have.

    Raises:
        RuntimeError: the sets do not fit, or a tensor cannot lie elsewhere.
    """

    def __init__(self, tensors: Iterable[Any], count: int) -> None:
        self._tensors = list(tensors)
        with torch().no_grad():
            sets = [[tensor.data for tensor in self._tensors]]
            while len(sets) < count:
                sets.append(_copies(self._tensors))
        self._sets: Sequence[Sequence[Any]] = sets

    def __len__(self) -> int:
        return len(self._sets)

    def use(self, index: int) -> None:
        """Have every tensor lie in the memory of a set, with its identity and its version kept."""
        for tensor, data in zip(self._tensors, self._sets[index], strict=True):
            tensor.data = data


def count_of_sets(tensors: Iterable[Any], cache_bytes: int, launches: int) -> int:
    """How many sets overflow the cache, at most one a launch; 1 where that is no matter: all of
    them would fit into it, or one of them overflows it.

    Args:
        tensors: of one set, with what a call returns.
        cache_bytes: of the L2 cache.
        launches: in a row.
    """
    held = sum(_spans(tensors).values())
    if held * launches < 2 * cache_bytes:
        return 1
    return max(1, min(launches, math.ceil(OVERFLOW * cache_bytes / held)))


def that_can_lie_elsewhere(tensors: Iterable[Any], cache_bytes: int) -> list[Any]:
    """Those on the GPU whose memory is no larger than what all sets would hold."""
    most = OVERFLOW * cache_bytes
    return [
        tensor
        for tensor in tensors
        if tensor.device.type == "cuda"
        and tensor.layout == torch().strided
        and tensor.untyped_storage().nbytes() <= most
    ]


def _spans(tensors: Iterable[Any]) -> dict[int, int]:
    """Address of each memory -> how many bytes of it are used."""
    spans: dict[int, int] = {}
    for tensor in tensors:
        memory = tensor.untyped_storage()
        used = spans.get(memory.data_ptr(), 0) + span_bytes(tensor)
        spans[memory.data_ptr()] = min(used, memory.nbytes())
    return spans


def _copies(tensors: Iterable[Any]) -> list[Any]:
    """The tensors' bytes in other memory, what shares its memory still doing so."""
    memories: dict[int, Any] = {}
    made = []
    for tensor in tensors:
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in memories:
            memories[memory.data_ptr()] = memory.clone()
        copy = memories[memory.data_ptr()]
        if (copy.data_ptr() - memory.data_ptr()) % _ALIGNED_TO:
            raise RuntimeError("a copy of a tensor is aligned in another way")
        other = torch().empty(0, dtype=tensor.dtype, device=tensor.device)
        other.set_(copy, tensor.storage_offset(), tensor.size(), tensor.stride())
        made.append(other)
    return made
