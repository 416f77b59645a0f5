"""What is in a tensor, in a few numbers; index-like integers in full where they are few."""

from __future__ import annotations

import math
from typing import Any

from tile_agent_pytest.examining.monotone import monotone
from tile_agent_pytest.examining.tensors import span_bytes, torch

Message = dict[str, Any]

MOST_VALUES = 1 << 16
"""Integers of a tensor that are kept."""
MOST_LOOKED_AT = 1 << 22
"""Elements of a tensor of floats: for what its distribution is like, those are enough."""


def contents(tensor: Any) -> Message:
    """What others like it have to have in them."""
    plain = tensor.detach()
    try:
        return _contents(plain)
    except torch().OutOfMemoryError:
        raise
    except Exception:
        # A library of operators puts its own in the place of torch's, and they may fail. What it
        # replaces on the GPU it leaves alone on the CPU.
        return _contents(_bytes_on_cpu(plain))


def _bytes_on_cpu(tensor: Any) -> Any:
    """The same elements on the CPU, by a copy of the memory that they span."""
    begin = tensor.storage_offset() * tensor.element_size()
    spanned = tensor.untyped_storage()[begin : begin + span_bytes(tensor)]
    copied = torch().UntypedStorage(spanned.nbytes(), device="cpu").copy_(spanned)
    elements = torch().empty(0, dtype=tensor.dtype, device="cpu")
    return elements.set_(copied, 0, tensor.size(), tensor.stride())


def _contents(plain: Any) -> Message:
    if not plain.numel():
        return {"kind": "empty"}
    if plain.is_complex():
        return {"kind": "normal", "mean": 0.0, "std": 1.0}
    if plain.is_floating_point():
        return _floats(plain)
    return _integers(plain)


def _floats(tensor: Any) -> Message:
    looked_at = tensor.reshape(-1)[:MOST_LOOKED_AT].to(torch().float32)
    finite = looked_at[torch().isfinite(looked_at)]
    if not finite.numel():
        return {"kind": "normal", "mean": 0.0, "std": 1.0}
    low, high = float(finite.min()), float(finite.max())
    whole = finite.numel() == looked_at.numel()
    if low == high and whole:
        return {"kind": "full", "value": low}
    mean, std = float(finite.mean()), float(finite.std(correction=0))
    if not whole or not math.isfinite(std) or std > 1e6:  # what `torch.empty` may hold
        return {"kind": "normal", "mean": 0.0, "std": 1.0}
    found: Message = {"kind": "normal", "mean": mean, "std": std}
    if low >= 0:
        found = {"kind": "uniform", "low": low, "high": high}
    order = monotone(tensor)
    return found | {"monotone": order} if order else found


def _integers(tensor: Any) -> Message:
    flat = tensor.reshape(-1)
    if tensor.dtype == torch().bool:
        flat = flat.to(torch().uint8)
    low, high = int(flat.min()), int(flat.max())
    if low == high:
        return {"kind": "full", "value": low}
    found = {"kind": "integers", "low": low, "high": high}
    if flat.numel() > MOST_VALUES:
        return found
    values = [int(value) for value in flat.tolist()]
    step = values[1] - values[0]
    if step and values == list(range(values[0], values[0] + step * len(values), step)):
        return {"kind": "arange", "begin": values[0], "step": step}
    return {**found, "values": values}
