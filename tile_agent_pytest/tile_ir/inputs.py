"""The inputs of a case, the same in every process: made on the CPU from a seed.

A tensor lies between two bands of canaries, so that a write past its end is seen, and a read past
it brings values into the result that do not belong there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

BAND = 1024
"""Elements of a guard band on either side; a multiple of every alignment that Triton asks about."""
SEED = 20260101


def make(arguments: list[Message], case: Message, device: str) -> dict[str, Any]:
    """The arguments of a call, by name.

    Args:
        arguments: each a `name` with a `value`, or with a `dtype` where it is a tensor.
        case: its `shapes` by name, and a `seed`.
        device: 'cuda' or 'cpu'.

    Returns:
        Values, and tensors that are views into guarded buffers.
    """
    import torch

    generator = torch.Generator().manual_seed(SEED + case["seed"])
    made: dict[str, Any] = {}
    for argument in arguments:
        name = argument["name"]
        if "value" in argument:
            made[name] = argument["value"]
            continue
        shape, dtype = case["shapes"][name], getattr(torch, argument["dtype"])
        values = _values(shape, dtype, generator, smallest_edge(case))
        buffer = torch.empty(values.numel() + 2 * BAND, dtype=dtype)
        buffer.view(torch.uint8).fill_(CANARY)
        buffer[BAND : BAND + values.numel()] = values.flatten()
        made[name] = buffer.to(device)[BAND : BAND + values.numel()].view(shape)
    return made


CANARY = 0x7F
"""Each byte of a guard band: a NaN in floating point, a large number in integers."""


def smallest_edge(case: Message) -> int:
    """The smallest extent of a case: integers stay below it, so that they may be indices."""
    return min((edge for shape in case["shapes"].values() for edge in shape), default=2)


def broken_bands(made: dict[str, Any]) -> Iterator[str]:
    """The names of the tensors beside which something was written."""
    import torch

    for name, value in made.items():
        if isinstance(value, torch.Tensor):
            buffer = torch.empty(0, dtype=value.dtype, device=value.device)
            buffer = buffer.set_(value.untyped_storage())
            for band in (buffer[:BAND], buffer[BAND + value.numel() :]):
                if not bool((band.view(torch.uint8) == CANARY).all()):
                    yield name
                    break


def flattened(result: Any) -> list[Any]:
    """The tensors of a result, in order, and None in the place of each part that is something else.

    A number counts as a tensor without dimensions; of a result that is None nothing is left.
    """
    import torch

    if isinstance(result, torch.Tensor):
        return [result.detach()]
    if isinstance(result, tuple | list):
        return [tensor for part in result for tensor in flattened(part) or [None]]
    if isinstance(result, dict):
        return [tensor for part in result.values() for tensor in flattened(part) or [None]]
    if isinstance(result, bool | int | float):
        return [torch.tensor(result)]
    return []


def _values(shape: list[int], dtype: Any, generator: Any, limit: int) -> Any:
    import torch

    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, max(limit, 1), shape, generator=generator).to(dtype)
