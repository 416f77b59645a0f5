"""Whether a tensor of floats rises or falls along a dimension, as a cumulative sum does.

What takes the exponential of differences, such as a scan with decays, may rely on it: of numbers
in any order the differences have both signs, and the exponentials no bound.
"""

from __future__ import annotations

import math
from typing import Any

from tile_agent_pytest.examining.tensors import torch

Message = dict[str, Any]

LEAST_LENGTH = 8
"""Of a dimension: numbers in any order rise along a shorter one now and then."""
CHUNKS = (256, 128, 64, 32, 16)
"""After how many elements a sum may begin anew; the last chunk may be shorter."""
MOST_COMPARED = 1 << 20
"""Elements that are looked at, for each dimension."""


def monotone(tensor: Any) -> Message | None:
    """How it rises or falls along one of its dimensions, the longest that does; None where it does
    along none.

    Args:
        tensor: of finite floats.
    """
    lengths = list(enumerate(tensor.shape))
    for dimension, length in sorted(lengths, key=lambda pair: -pair[1]):
        if length >= LEAST_LENGTH and (found := _along(tensor, dimension)):
            return {"dimension": dimension, **found}
    return None


def _along(tensor: Any, dimension: int) -> Message | None:
    lines = _some_lines(tensor, dimension).float()
    length = lines.shape[1]
    steps = lines.diff(dim=1)
    for against in (steps > 0, steps < 0):
        breaks = against.any(dim=0).nonzero().flatten() + 1
        chunk = _chunk(breaks, length)
        if chunk:
            break
    else:
        return None
    places = torch().arange(1, length, device=lines.device)
    within = steps[:, places % chunk != 0]
    mean, std = float(within.mean()), float(within.std(correction=0))
    if not math.isfinite(std) or float((within != 0).float().mean()) < 0.5:  # rather a mask
        return None
    return {
        "chunk": chunk if chunk < length else 0,
        "step_mean": mean,
        "step_std": std,
        "first": float(lines[:, ::chunk].mean()),
        "last": float(lines[:, chunk - 1 :: chunk].mean()),
    }


def _chunk(breaks: Any, length: int) -> int:
    """The longest chunk whose borders hold all breaks, the whole length at most; 0 for none."""
    if breaks.numel() > length // CHUNKS[-1]:
        return 0
    places = breaks.tolist()
    chunks = (length, *(chunk for chunk in CHUNKS if chunk < length))
    return next((chunk for chunk in chunks if not any(place % chunk for place in places)), 0)


def _some_lines(tensor: Any, dimension: int) -> Any:
    """Lines along the dimension, as rows: the first ones where they are many."""
    room = max(1, MOST_COMPARED // tensor.shape[dimension])
    lines = tensor.movedim(dimension, -1).narrow(-1, 0, min(tensor.shape[dimension], MOST_COMPARED))
    for axis in reversed(range(lines.dim() - 1)):
        taken = min(lines.shape[axis], room)
        lines = lines.narrow(axis, 0, taken)
        room = max(1, room // taken)
    return lines.reshape(-1, lines.shape[-1])
