"""Fresh bytes for a tensor that rises or falls along a dimension, which it still does with them.

Cumulative log-decays are read as exp(g[i] - g[j]): in another order the differences have both
signs, and the exponentials no bound. So it is the steps from one element to the next that change
their places, and a part of them is halved. The first element stays where it was, and no element
leaves the range of its line.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tile_agent_pytest.examining.tensors import torch

_LEAST_LENGTH = 3
"""Of a line: two steps, which can change their places."""
_ALIKE = 1 / 1000
"""Spread of steps, as a part of their mean, below which they say the same in any order."""


def with_other_steps(tensor: Any, order: Mapping[str, Any], draw: random.Random) -> Any:
    """A copy with other steps, the same ones for the same draw.

    Args:
        tensor: of floating-point numbers that PyTorch can add.
        order: what `monotone` says of it.
        draw: where the random places come from.
    """
    made = tensor.detach().clone()
    halves = order["step_std"] <= _ALIKE * abs(order["step_mean"]) or not _are_whole(tensor)
    given = _chunks(tensor.detach(), order)
    for old, new in zip(given, _chunks(made, order), strict=True):
        if new.shape[-1] >= _LEAST_LENGTH:
            _roll_steps(old, new, draw, rises=order["step_mean"] > 0)
            if halves:
                _halve_steps(new, draw)
    return made


def _chunks(tensor: Any, order: Mapping[str, Any]) -> tuple[Any, Any]:
    """Views of the chunks after each of which the numbers may begin anew, and of what is left."""
    lines = tensor.movedim(order["dimension"], -1)
    length = lines.shape[-1]
    chunk = order["chunk"] or length
    full = length - length % chunk
    return lines[..., :full].unflatten(-1, (-1, chunk)), lines[..., full:]


def _are_whole(tensor: Any) -> bool:
    """Whether they are whole numbers, as offsets are: halves would be none."""
    return bool((tensor == tensor.trunc()).all())


def _roll_steps(old: Any, new: Any, draw: random.Random, *, rises: bool) -> None:
    """Let the steps begin at another place; the first and the last element stay.

    Differences are rounded, which keeps the order within either part of a line, not between them.
    """
    length = old.shape[-1]
    shift = draw.randrange(1, length - 1)
    first, begin, last = (old[..., n : n + 1] for n in (0, shift, length - 1))
    new[..., : length - shift] = old[..., shift:] - (begin - first)
    border = new[..., length - shift - 1 : length - shift]
    further = torch().maximum if rises else torch().minimum
    new[..., length - shift :] = further(old[..., 1 : shift + 1] + (last - begin), border)
    new.copy_(new.clamp(torch().minimum(first, last), torch().maximum(first, last)))
    new[..., :1] = first
    new[..., -1:] = last


def _halve_steps(new: Any, draw: random.Random) -> None:
    """From a place in the first half on."""
    place = draw.randrange(new.shape[-1] // 2)
    tail, pivot = new[..., place:], new[..., place : place + 1].clone()
    tail.copy_(pivot + (tail - pivot) / 2)
