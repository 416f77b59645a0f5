"""Host code written for a GPU, on a machine without one.

While `CudaAsCpu` is open, everything on device "cuda" lives in CPU memory, and `torch.cuda` answers
as if one GPU were there. Which tensors count as CPU tensors is remembered, so that `.cuda()` and
`.cpu()` copy when a real transfer would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tile_agent_pytest import operator_bodies
from tile_agent_pytest.tile_cpu import dtypes

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
ON_CPU = "_tile_cpu_on_cpu"

UNINITIALIZED = (
    torch.empty,
    torch.empty_like,
    torch.empty_strided,
    torch.Tensor.new_empty,
    torch.Tensor.new_empty_strided,
)
MOVES = (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu)
READ_DEVICE = torch.Tensor.device.__get__
READ_IS_CUDA = torch.Tensor.is_cuda.__get__


def _names_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return bool(value.type == "cuda")
    return isinstance(value, str) and value.split(":")[0] == "cuda"


def _names_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (
        isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")
    )


def _to_cpu(value: Any) -> Any:
    return CPU if _names_cuda(value) else value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


def poison(tensor: torch.Tensor) -> None:
    """Fill memory that nobody has written with what no kernel should read."""
    if tensor.dtype in dtypes.UNWRITTEN:
        bits = dtypes.INTS[tensor.element_size() * 8]
        tensor.detach().view(bits).fill_(dtypes.UNWRITTEN[tensor.dtype])
    elif tensor.element_size() == 1 and tensor.dtype is not torch.bool:
        tensor.detach().view(torch.int8).fill_(0x7F)


class _Mode(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, poisons: bool) -> None:
        super().__init__()
        self._poisons = poisons

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.device:
            return func(*args, **kwargs)
        sources = list(_tensors([*args, *kwargs.values()]))
        on_cpu = bool(sources) and all(hasattr(tensor, ON_CPU) for tensor in sources)
        if func == READ_DEVICE:
            return CPU if on_cpu else CUDA
        if func == READ_IS_CUDA:
            return not on_cpu
        if func in MOVES:
            return _move(func, args, kwargs, on_cpu)
        device = kwargs.get("device")
        if device is not None or not sources:
            on_cpu = not _names_cuda(device)
        kwargs = {key: _to_cpu(value) for key, value in kwargs.items()}
        result = func(*map(_to_cpu, args), **kwargs)
        if self._poisons and func in UNINITIALIZED:
            poison(result)
        if on_cpu:
            for tensor in _tensors(result):
                setattr(tensor, ON_CPU, True)
        return result


def _move(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], on_cpu: bool) -> torch.Tensor:
    """`to`, `cuda` and `cpu`: a new tensor where the device changes."""
    tensor, *rest = args
    if func == torch.Tensor.to:
        others = [value for value in rest if isinstance(value, torch.Tensor)]
        named = [value for value in (*rest, kwargs.get("device")) if _names_device(value)]
        target_on_cpu = on_cpu
        if others:
            target_on_cpu = hasattr(others[0], ON_CPU)
        elif named:
            target_on_cpu = not _names_cuda(named[0])
        result = func(tensor, *map(_to_cpu, rest), **{k: _to_cpu(v) for k, v in kwargs.items()})
    else:
        target_on_cpu = func == torch.Tensor.cpu
        result = tensor
    if target_on_cpu != on_cpu and result is tensor:
        result = tensor.clone()
    if target_on_cpu:
        setattr(result, ON_CPU, True)
    return result


class _Stream:
    """A stream on which everything has already happened."""

    cuda_stream = 0
    device = CUDA

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, _: Any) -> None: ...

    def wait_event(self, _: Any) -> None: ...

    def query(self) -> bool:
        return True


class _Event:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait(self, *_: Any) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        raise RuntimeError(
            "the CPU execution of cuTile kernels is for correctness: it has no times"
        )


class _CpuGenerator(torch.Generator):  # type: ignore[misc]
    def __new__(cls, device: Any = CPU) -> Any:
        return super().__new__(cls, _to_cpu(device))


@contextmanager
def _same(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _torch_cuda(capability: tuple[int, int], sm_count: int) -> dict[str, Any]:
    properties = SimpleNamespace(
        name="CPU execution",
        major=capability[0],
        minor=capability[1],
        multi_processor_count=sm_count,
        total_memory=16 << 30,
        L2_cache_size=1 << 20,
        shared_memory_per_block_optin=227 << 10,
        warp_size=32,
    )
    stream = _Stream()
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda _: None,
        "is_current_stream_capturing": lambda: False,
        "synchronize": lambda *_, **__: None,
        "empty_cache": lambda: None,
        "current_stream": lambda *_, **__: stream,
        "default_stream": lambda *_, **__: stream,
        "get_device_name": lambda *_, **__: properties.name,
        "get_device_capability": lambda *_, **__: capability,
        "get_device_properties": lambda *_, **__: properties,
        "mem_get_info": lambda *_, **__: (properties.total_memory, properties.total_memory),
        "memory_allocated": lambda *_, **__: 0,
        "max_memory_allocated": lambda *_, **__: 0,
        "reset_peak_memory_stats": lambda *_, **__: None,
        "manual_seed": lambda _: None,
        "manual_seed_all": lambda _: None,
        "device": _same,
        "stream": _same,
        "Stream": _Stream,
        "Event": _Event,
    }


_open: list[CudaAsCpu] = []


def pretends() -> bool:
    """Whether `torch.cuda` answers for a GPU that is not there."""
    return bool(_open)


class CudaAsCpu:
    """A context manager; `capability` and `sm_count` are those of the pretended GPU."""

    def __init__(
        self,
        *,
        poisons: bool = True,
        capability: tuple[int, int] = (9, 0),
        sm_count: int = 4,
    ) -> None:
        self._mode = _Mode(poisons)
        self._replacements = [
            *(
                (torch.cuda, name, value)
                for name, value in _torch_cuda(capability, sm_count).items()
            ),
            (torch, "Generator", _CpuGenerator),
        ]
        self._originals: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        for module, name, value in self._replacements:
            self._originals.append((module, name, getattr(module, name)))
            setattr(module, name, value)
        self._mode.__enter__()
        operator_bodies.keep(self._mode)
        _open.append(self)

    def __exit__(self, *problem: Any) -> None:
        _open.remove(self)
        operator_bodies.drop(self._mode)
        self._mode.__exit__(*problem)
        while self._originals:
            setattr(*self._originals.pop())
