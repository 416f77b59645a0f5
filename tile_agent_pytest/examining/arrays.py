"""Arrays of CuPy and NumPy, as tensors on the same memory."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from typing import Any

CUPY = "cupy"
NUMPY = "numpy"


def library_of(value: Any) -> str:
    """Whose array a value is; empty where it is none of them."""
    kind = type(value)
    for name in (CUPY, NUMPY):
        if kind is getattr(sys.modules.get(name), "ndarray", None):
            return name
    return ""


def as_tensor(array: Any) -> Any | None:
    """A tensor on an array's memory; None where PyTorch knows no such type or strides.

    Args:
        array: one of `library_of`.
    """
    import torch

    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        if library_of(array) == CUPY:
            return torch.as_tensor(array, device=f"cuda:{array.device.id}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of memory that is read alone
            return torch.from_numpy(array)
    return None


def as_array(tensor: Any, library: str) -> Any:
    """An array on a tensor's memory.

    Args:
        tensor: on the CPU for NumPy, on a GPU for CuPy.
        library: one that `library_of` names.
    """
    return tensor.numpy() if library == NUMPY else sys.modules[library].asarray(tensor)


def as_fixed(tensor: Any) -> Any:
    """The tensor marked as one that cannot lie elsewhere: an array goes on to use its memory."""
    return tensor.as_subclass(_fixed_type())


def is_fixed(tensor: Any) -> bool:
    """Whether it was marked so."""
    return type(tensor) is _fixed_type()


@functools.cache
def _fixed_type() -> Any:
    """What is computed from one is a plain tensor."""
    import torch

    disabled = torch._C._disabled_torch_function_impl
    return type("FixedTensor", (torch.Tensor,), {"__torch_function__": disabled})
