"""Tensors handed from a worker to another process, by numbers and bytes alone.

What is in a GPU's memory stays there: the other process opens it by its handle. What is in the
host's goes through a file. Nothing is pickled: unpickling is running what somebody else wrote.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tile_agent_pytest.examining.arrays import is_fixed
from tile_agent_pytest.examining.tensors import torch

Message = dict[str, Any]

ELEMENT_TYPES = frozenset(
    {
        "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64",
        "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
        "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    }
)  # fmt: skip


class NotExchangeable(Exception):
    """A tensor cannot be handed over, or was not."""


def hand_out(tensors: Mapping[str, Any], folder: Path) -> list[Message]:
    """Say where each tensor is. It has to stay there until the other side is done.

    Args:
        tensors: by name.
        folder: for what goes through files; written over by the next call.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for index, (name, tensor) in enumerate(tensors.items()):
        plain = tensor.detach().resolve_conj().resolve_neg()
        described: Message = {
            "name": name,
            "dtype": str(plain.dtype).removeprefix("torch."),
            "shape": list(plain.shape),
            "device": plain.device.type,
        }
        if is_fixed(tensor):  # CuPy's memory is not torch's to hand out
            plain = plain.cpu()
        if plain.numel() and plain.device.type == "cuda":
            described |= _handle(plain)
        elif plain.numel():
            file = folder / f"{index}.bytes"
            octets = plain.contiguous().view(-1).view(torch().uint8)
            octets.numpy().tofile(file)
            described["file"] = str(file)
        found.append(described)
    return found


def _handle(tensor: Any) -> Message:
    """CUDA's handle of the allocation that a tensor lies in, and the tensor's place there."""
    shared = tensor.untyped_storage()._share_cuda_()
    encoded = [
        base64.b64encode(part).decode() if isinstance(part, bytes) else part for part in shared
    ]
    return {
        "handle": encoded,
        "strides": list(tensor.stride()),
        "offset": int(tensor.storage_offset()),
    }


def take(described: Message) -> Any:
    """The tensor that another process handed out, in its memory or as a copy.

    Raises:
        NotExchangeable: the description is none, or what it names is not there.
    """
    try:
        if described["dtype"] not in ELEMENT_TYPES:
            raise NotExchangeable(f"a tensor of {described['dtype']}")
        dtype = getattr(torch(), described["dtype"])
        shape = [int(n) for n in described["shape"]]
        if "handle" in described:
            return _opened(described, dtype, shape)
        if "file" not in described:
            return torch().empty(shape, dtype=dtype)
        octets = torch().frombuffer(bytearray(Path(described["file"]).read_bytes()), dtype=dtype)
        return octets.view(shape)
    except (KeyError, OSError, RuntimeError, TypeError, ValueError) as problem:
        raise NotExchangeable(f"{type(problem).__name__}: {problem}") from problem


def _opened(described: Message, dtype: Any, shape: list[int]) -> Any:
    handle = [
        base64.b64decode(part) if isinstance(part, str) else part for part in described["handle"]
    ]
    torch().cuda.init()
    storage = torch().UntypedStorage._new_shared_cuda(*handle)
    empty = torch().empty(0, dtype=dtype, device="cuda")
    strides = [int(n) for n in described["strides"]]
    return empty.set_(storage, int(described["offset"]), shape, strides)
