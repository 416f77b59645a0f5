"""Fresh bytes for the inputs of a callable, and the old ones back.

A test makes its inputs once and a callable is timed on them thousands of times, so that a result
of an earlier call would be right for ever. Here the elements of every floating-point input are
moved on by some places and a part of them is scaled by a power of two, which changes the result of
nearly any kernel, leaves every value as valid as it was, and can be undone to the last bit. It is
done behind a tensor's back: its identity and its version stay, its address changes where it may.
Numbers that rise or fall along a dimension get other steps instead, for who reads them may rely on
their order.

Integers stay: they are indices, lengths and addresses, which no other values may replace.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tile_agent_pytest.examining.arrays import is_fixed
from tile_agent_pytest.examining.monotone import monotone
from tile_agent_pytest.examining.other_steps import with_other_steps
from tile_agent_pytest.examining.tensors import CHUNK, overlap, torch

FACTOR = 32.0
"""Of the scaled part. A large one makes a single element count in a long sum."""
MADE_UP = 4_194_301
"""Numbers that are drawn for a tensor; a prime, so that no row begins as the one before."""
SPECIAL_SCALES = (2.0**7, 0.0, 2.0**-14)
"""Of the special rows, as many as there are. The exponential of the first overflows a float32."""


@dataclass(frozen=True)
class ByteChange:
    """What one seed does to one tensor."""

    shift: int
    begin: int
    end: int
    """The elements, in the order of indices, that are scaled afterwards."""

    @classmethod
    def of(cls, seed: int, name: str, elements: int) -> ByteChange:
        """The same for the same seed, name and size, in every process."""
        draw = random.Random(f"{seed} {name}")
        shift = draw.randrange(1, elements) if elements > 1 else 0
        if draw.random() < 0.5:  # the tail is what is forgotten first
            begin = elements - draw.choice((1, max(1, elements // 64)))
            return cls(shift, begin, elements)
        begin = draw.randrange(elements)
        return cls(shift, begin, min(elements, begin + max(1, elements // 16)))


class Inputs:
    """The tensors that a callable has at hand, as they were and as a seed makes them.

    Args:
        tensors: by path.
        may_move: whether their addresses may change; not in a CUDA graph.
    """

    def __init__(self, tensors: Mapping[str, Any], *, may_move: bool = True) -> None:
        self.tensors = dict(tensors)
        self.may_move = may_move and not _mentions_addresses(self.tensors.values())
        self._changes: dict[str, ByteChange] = {}
        self._jittered = 0
        self._plain: dict[str, Any] = {}
        """Tensor -> its bytes without special values."""
        self._saved: dict[str, Any] = {}
        self._left: dict[str, Any] = {}
        """Tensor -> the memory that it had before it was moved."""
        self._aliased = _overlapping(self.tensors)
        self._factors: dict[str, float] = {}
        """Of what can change; 1: its values are not scaled."""
        self._orders: dict[str, Mapping[str, Any]] = {}
        """Of those among them that rise or fall along a dimension: how they do."""
        self._ordered: dict[str, Any] = {}
        """Their bytes before their steps were changed, which cannot be computed back."""
        for name in self.tensors:
            if self._can_change(name):
                self._look_at(name)

    def to_be_moved(self) -> list[Any]:
        """Those that can lie elsewhere; none where one holds the addresses of others or a graph."""
        return [t for t in self.tensors.values() if not is_fixed(t)] if self.may_move else []

    def save(self, names: Iterable[str]) -> None:
        """Keep the bytes of those that the callable writes: they cannot be computed back."""
        for name in names:
            if name not in self._saved:
                self._saved[name] = self.tensors[name].detach().clone()

    def keep_saved(self, names: Iterable[str]) -> None:
        """Forget the bytes of all others."""
        self._saved = {name: self._saved[name] for name in names if name in self._saved}

    def make_up(self, names: Iterable[str]) -> None:
        """Other bytes for good, the same in every process: numbers around one, integers of zero."""
        for name in names:
            tensor = self.tensors[name]
            _make_up(name, tensor)
            self._saved[name] = tensor.detach().clone()
            if name in self._factors:
                self._look_at(name)

    def replace(self) -> None:
        """All other numbers, until `restore`, for which all have to be saved.

        A kernel need not read the few that a seed scales.
        """
        self.restore()
        for name in self._factors.keys() - self._orders.keys():
            _make_up(name, self.tensors[name])

    def take(self, name: str, content: Any) -> None:
        """Other bytes for good, of a tensor that is as the test made it."""
        tensor = self.tensors[name]
        tensor.data.copy_(content)
        if name in self._saved:
            self._saved[name] = tensor.detach().clone()
        if name in self._factors:
            self._look_at(name)

    def restore(self) -> None:
        """Every tensor as the test made it; in the opposite order, for some share their memory."""
        for name, plain in self._plain.items():
            self.tensors[name].data.copy_(plain)
        self._plain = {}
        if self._jittered:
            self.jitter(self._jittered)
        for name, change in reversed(self._changes.items()):
            if name in self._ordered:
                self.tensors[name].data.copy_(self._ordered[name])
            elif name not in self._saved:
                self._undo(self.tensors[name], change, self._factors[name])
        self._changes.clear()
        self._ordered.clear()
        for name, saved in self._saved.items():
            self.tensors[name].data.copy_(saved)

    def refresh(self, seed: int) -> None:
        """The bytes of a seed, from those that the test made."""
        self.restore()
        for tensor in self.tensors.values():
            if tensor.grad is not None:
                tensor.grad = None
        moves = self.may_move and seed % 2 == 1  # what is kept by address, and what by bytes alone
        for name in self._factors:
            self._changes[name] = change = ByteChange.of(seed, name, self.tensors[name].numel())
            if name in self._orders:
                self._ordered[name] = tensor = self.tensors[name].detach().clone()
                draw = random.Random(f"{seed} {name} steps")
                made = with_other_steps(tensor, self._orders[name], draw)
            else:
                made = self._changed(name, change)
            self._put(name, made, moves=moves)

    def move_back(self) -> None:
        """Have what was moved lie where it did, with the bytes that it has now."""
        for name, memory in self._left.items():
            tensor = self.tensors[name]
            memory.copy_(tensor.data)
            tensor.data = memory
        self._left = {}

    def jitter(self, draw: int) -> None:
        """Turn the last bit of float32s: what a result owes to rounding moves with it.

        Of all of them by the first draw, of every other one by the following, each of others. A
        second time it turns them back. Narrower types have no bits to spare: their last one
        counts for more than the rounding of the sums over them.
        """
        for name in self._factors:
            tensor = self.tensors[name]
            if tensor.dtype == torch().float32 and name not in self._saved:
                bits = tensor.data.view(torch().int32)
                turned = torch().isfinite(tensor.data).to(torch().int32)
                if draw > 1:
                    generator = torch().Generator(tensor.device).manual_seed(draw)
                    turned.bitwise_and_(torch().empty_like(turned).random_(2, generator=generator))
                bits.bitwise_xor_(turned)
        self._jittered = 0 if self._jittered else draw

    def specialize(self, seed: int) -> None:
        """In each matrix, a row of zeros, one of tiny values and one of large ones.

        What was left out because random numbers never need it (a maximum that is subtracted, an
        epsilon, a test for zero) shows there. Needs a copy of what it changes.
        """
        for name, factor in self._factors.items():
            tensor = self.tensors[name]
            if tensor.ndim < 2 or factor == 1.0 or name in self._saved:
                continue
            self._plain[name] = tensor.detach().clone()
            rows = tensor.detach().reshape(-1, tensor.shape[-1]).clone()
            draw = random.Random(f"{seed} {name} rows")
            places = draw.sample(range(len(rows)), min(len(rows), len(SPECIAL_SCALES)))
            for place, scale in zip(places, SPECIAL_SCALES, strict=False):
                rows[place] *= scale
            tensor.data.copy_(rows.view(tensor.shape))

    def _look_at(self, name: str) -> None:
        """See how the tensor may change, by the bytes that the test made."""
        tensor = self.tensors[name]
        order = monotone(tensor.detach()) if tensor.element_size() > 1 else None
        if order:
            self._orders[name] = order
        else:
            self._orders.pop(name, None)
        self._factors[name] = FACTOR if not order and _is_small(tensor) else 1.0

    def _changed(self, name: str, change: ByteChange) -> Any:
        tensor, factor = self.tensors[name], self._factors[name]
        flat = _rolled(tensor.detach().reshape(-1), change.shift)
        if factor != 1.0:
            flat[change.begin : change.end] *= factor
        return flat.view(tensor.shape)

    def _put(self, name: str, made: Any, *, moves: bool) -> None:
        tensor = self.tensors[name]
        fixed = name in self._aliased or is_fixed(tensor)
        if moves and not fixed and tensor.is_contiguous():
            self._left.setdefault(name, tensor.data)
            tensor.data = made
        else:
            tensor.data.copy_(made)

    def _undo(self, tensor: Any, change: ByteChange, factor: float) -> None:
        flat = tensor.data.reshape(-1)  # itself where that can be: a copy need not fit beside it
        if factor != 1.0:
            flat[change.begin : change.end] /= factor
        tensor.data.copy_(_rolled(flat, -change.shift).view(tensor.shape))

    def _can_change(self, name: str) -> bool:
        tensor = self.tensors[name]
        return bool(
            tensor.is_floating_point()
            and tensor.numel()
            and not any(
                n > 1 and stride == 0
                for n, stride in zip(tensor.shape, tensor.stride(), strict=True)
            )
        )


def _overlapping(tensors: Mapping[str, Any]) -> set[str]:
    """Those that share memory with another: what changes one would change the other, too."""
    named = list(tensors.items())
    return {
        name
        for index, (one, first) in enumerate(named)
        for other, second in named[index + 1 :]
        if first is not second and overlap(first, second)
        for name in (one, other)
    }


def _rolled(flat: Any, shift: int) -> Any:
    if flat.element_size() > 1:
        return flat.roll(shift)
    return flat.view(torch().uint8).roll(shift).view(flat.dtype)  # of 8 bits: not in floating point


def _is_small(tensor: Any) -> bool:
    """Whether its values can be scaled without leaving what its type can hold."""
    if tensor.element_size() == 1:
        return False
    flat, largest = tensor.detach().reshape(-1), -1.0
    for begin in range(0, flat.numel(), CHUNK):
        values = flat[begin : begin + CHUNK].abs()
        finite = values[torch().isfinite(values)]
        largest = max(largest, float(finite.max()) if finite.numel() else -1.0)
    return 0 <= largest * FACTOR < float(torch().finfo(tensor.dtype).max) / FACTOR


def _make_up(name: str, tensor: Any) -> None:
    """Other bytes in a tensor of that name: numbers around one, integers of zero.

    Those of a large tensor repeat: four billion of them take a processor half a minute, and the
    memory of its computer twice.
    """
    if not tensor.is_floating_point():
        tensor.data.zero_()
        return
    draw = torch().Generator().manual_seed(zlib.crc32(name.encode()))
    count = min(tensor.numel(), MADE_UP)
    drawn = torch().rand(count, generator=draw) + 0.5
    numbers = drawn.to(tensor.dtype).to(tensor.device)
    flat = tensor.data.reshape(-1)  # itself where it is contiguous
    for begin in range(0, flat.numel(), MADE_UP):
        part = flat[begin : begin + MADE_UP]
        part.copy_(numbers[: part.numel()])
    if flat.data_ptr() != tensor.data_ptr():
        tensor.data.copy_(flat.view(tensor.shape))


def _mentions_addresses(tensors: Iterable[Any]) -> bool:
    """Whether integers among them are addresses of others: those must stay where they are."""
    every = list(tensors)
    spans = [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in every]
    for tensor in every:
        if tensor.dtype not in (torch().int64, torch().uint64) or not tensor.numel():
            continue
        values = tensor.detach().view(torch().int64)
        low, high = int(values.min()), int(values.max())
        if any(low < end and begin <= high for begin, end in spans if begin):
            return True
    return False
