"""Whether a version of a kernel computes what PyTorch does in fp64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.spec import Reference

LARGEST_ERROR = 0.01
"""Of a tensor, relative to PyTorch's in fp64, both as vectors. Rounding to bf16 is some 0.002."""


def right(reference: Reference, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the kernel is to give: PyTorch's tensors, computed from the inputs in fp64."""
    return tensors(reference.torch_version(*map(widened, inputs)))


def error(result: Any, expected: Sequence[Any]) -> float:
    """How far the worst of a version's tensors is off.

    Raises:
        ValueError: it is wrong: other tensors, another size, or off by more than is allowed.
    """
    found = tensors(result)
    sizes, wanted = ([tensor.numel() for tensor in each] for each in (found, expected))
    if sizes != wanted:
        raise ValueError(f"{listed(sizes)} elements instead of {listed(wanted)}")
    pairs = [(one.double().flatten(), other.double().flatten())
             for one, other in zip(found, expected, strict=True)]  # fmt: skip
    off = [float((one - other).norm() / other.norm()) for one, other in pairs]
    for fraction in off:  # no `max`: a NaN is neither more nor less
        if not fraction <= LARGEST_ERROR:
            raise ValueError(f"its result is off by {fraction:.2%}, {LARGEST_ERROR:.0%} is allowed")
    return max(off)


def listed(sizes: Sequence[int]) -> str:
    """'16', or '16 and 2'."""
    return " and ".join(map(str, sizes))


def tensors(result: Any) -> tuple[Any, ...]:
    """A result's tensors, of which there may be one."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def widened(value: Any) -> Any:
    """A floating-point tensor in fp64; anything else as it is."""
    import torch

    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if floats else value


def copied(value: Any) -> Any:
    """A tensor of its own."""
    import torch

    return value.clone() if isinstance(value, torch.Tensor) else value
