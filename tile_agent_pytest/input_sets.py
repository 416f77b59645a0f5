"""A callable's tensors several times over, so that launches in a row do not share the L2 cache.

Fifty launches of a kernel on the same inputs find them in the cache, or a part of them that depends
on where they lie: the same L2 norm of 34 MB takes 26 % more or less from process to process on an
H200. On sets that overflow the cache together, every launch reads memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tile_agent_pytest.examining.tensors import span_bytes, torch

OVERFLOW = 3.0
"""Times the L2 cache: what all sets together hold."""
_ALIGNED_TO = 16
"""Bytes: kernels are compiled for addresses that are multiples of it, or not."""


class InputSets:
    """The tensors on a GPU, with the memory of each set of them.

    Args:
        tensors: of those that `that_can_lie_elsewhere` chooses. What lies in one memory does so in
            every set.
        count: of sets; the first is the memory that they have.

    Raises:
        RuntimeError: the sets do not fit, or a tensor cannot lie elsewhere.
    """

    def __init__(self, tensors: Iterable[Any], count: int) -> None:
        self._tensors = list(tensors)
        self._memories: list[Sequence[Any]] = [list(_memories(self._tensors).values())]
        self._sets: list[Sequence[Any]] = [[tensor.data for tensor in self._tensors]]
        self._used = 0
        with torch().no_grad():
            while len(self._sets) < count:
                copies = {at: memory.clone() for at, memory in _memories(self._tensors).items()}
                self._memories.append(list(copies.values()))
                self._sets.append([_placed(tensor, copies) for tensor in self._tensors])

    def __len__(self) -> int:
        return len(self._sets)

    def use(self, index: int) -> None:
        """Have every tensor lie in the memory of a set, with its identity and its version kept."""
        for tensor, data in zip(self._tensors, self._sets[index], strict=True):
            tensor.data = data
        self._used = index

    def spread(self) -> None:
        """Have the bytes of the set that is used in all others."""
        for memories in self._memories:
            for memory, used in zip(memories, self._memories[self._used], strict=True):
                if memory is not used:
                    memory.copy_(used)


class Turns:
    """What calls take turns with: sets of inputs, and what was returned on each last."""

    def __init__(self, sets: InputSets) -> None:
        self._sets = sets
        self._results: list[Any] = [None] * len(sets)

    def take(self, number: int, fn: Callable[[], Any]) -> None:
        """Have a call on the set whose turn it is."""
        index = number % len(self._sets)
        self._sets.use(index)
        self._results[index] = None  # its memory is there for the result that replaces it
        self._results[index] = fn()

    def look_at(self, draw: int) -> Any:
        """Have the tensors lie in a set that a number draws, and return what was returned on it."""
        self._sets.use(draw % len(self._sets))
        return self._results[draw % len(self._sets)]

    def spread(self) -> None:
        """Have the bytes of the set that the tensors lie in, in all of them."""
        self._sets.spread()

    def end(self) -> None:
        """Have the tensors lie where they did."""
        self._sets.use(0)


def count_of_sets(tensors: Iterable[Any], cache_bytes: int, launches: int) -> int:
    """How many sets overflow the cache, at most one a launch; 1 where they need not: all together
    would hardly overflow it, or one of them does by itself.

    Args:
        tensors: of one set, with what a call returns.
        cache_bytes: of the L2 cache.
        launches: in a row.
    """
    held = sum(_spans(tensor for tensor in tensors if _is_plain(tensor)).values())
    if held * launches < 2 * cache_bytes:
        return 1
    return max(1, min(launches, math.ceil(OVERFLOW * cache_bytes / held)))


def that_can_lie_elsewhere(tensors: Iterable[Any], cache_bytes: int) -> list[Any]:
    """Those on the GPU whose memory is mostly used, and no more than what all sets would hold."""
    plain = [tensor for tensor in tensors if tensor.device.type == "cuda" and _is_plain(tensor)]
    spans = _spans(plain)
    most = OVERFLOW * cache_bytes
    return [
        tensor
        for tensor in plain
        if (memory := tensor.untyped_storage()).nbytes() <= min(most, 2 * spans[memory.data_ptr()])
    ]


def _is_plain(tensor: Any) -> bool:
    """Whether its elements are what lies in memory of its own."""
    return bool(
        type(tensor) in (torch().Tensor, torch().nn.Parameter)
        and tensor.layout == torch().strided
        and not (tensor.is_nested or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _memories(tensors: Iterable[Any]) -> dict[int, Any]:
    """Address -> memory, each once."""
    memories = (tensor.untyped_storage() for tensor in tensors)
    return {memory.data_ptr(): memory for memory in memories}


def _spans(tensors: Iterable[Any]) -> dict[int, int]:
    """Address of each memory -> how many bytes of it are used."""
    spans: dict[int, int] = {}
    for tensor in tensors:
        memory = tensor.untyped_storage()
        used = spans.get(memory.data_ptr(), 0) + span_bytes(tensor)
        spans[memory.data_ptr()] = min(used, memory.nbytes())
    return spans


def _placed(tensor: Any, copies: dict[int, Any]) -> Any:
    """The same elements in the copy of the tensor's memory."""
    memory = tensor.untyped_storage()
    copy = copies[memory.data_ptr()]
    if (copy.data_ptr() - memory.data_ptr()) % _ALIGNED_TO:
        raise RuntimeError("a copy of a tensor is aligned in another way")
    other = torch().empty(0, dtype=tensor.dtype, device=tensor.device)
    return other.set_(copy, tensor.storage_offset(), tensor.size(), tensor.stride())
