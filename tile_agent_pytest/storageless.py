"""Lets code written for a GPU run where none is, as far as its kernels' launches.

Whatever is put on 'cuda' becomes a tensor of PyTorch's meta device: it has a shape, strides and a
type, and no elements. So the inputs of a perf test cost nothing, however large, and what a kernel
is launched with is known exactly. Code that asks for an element gets it where that is known, as of
the sizes and indices that a test makes itself (`known_values`), and fails elsewhere, as it must.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from tile_agent_pytest.known_values import (
    READING,
    follow,
    forget_all,
    of_twins,
    replaced,
    twin_of,
    writes_of,
)
from tile_agent_pytest.registered_operators import followed, launching

ALIGNMENT_BYTES = 256
"""Of every allocation, as PyTorch's CUDA allocator aligns them at least."""
MULTIPROCESSORS = {80: 108, 89: 128, 90: 132, 100: 148, 120: 170}
"""Of the A100, RTX 4090, H100 SXM, B200 and RTX 5090; host code sizes persistent grids by it."""
_CUDA = torch.device("cuda", 0)


@contextlib.contextmanager
def storageless(sm: int) -> Iterator[None]:
    """Pretend that there is one GPU of compute capability `sm` / 10 while the block lasts."""
    with contextlib.ExitStack() as stack:
        for name, stand_in in _cuda(sm).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, stand_in, create=True))
        raw = mock.patch.object(torch._C, "_cuda_getCurrentRawStream", _no_stream, create=True)
        stack.enter_context(raw)
        stack.enter_context(mock.patch.object(torch, "Generator", _StoragelessGenerator))
        stack.enter_context(mock.patch.object(torch.testing, "assert_close", _agree))
        if hasattr(torch.library, "wrap_triton"):  # what it wraps is traced on meta, not launched
            traced = mock.patch.object(
                torch._library.triton, "is_wrap_triton_enabled", _not_so, create=True
            )
            stack.enter_context(traced)
        # torch tells no mode of it
        stack.enter_context(mock.patch.object(torch.Tensor, "set_", _set))
        stack.callback(forget_all)
        stack.enter_context(followed())
        stack.enter_context(_OnMeta())
        yield


class _OnMeta(TorchFunctionMode):  # type: ignore[misc]
    """Sends what is meant for the GPU to the meta device, which in turn says that it is the GPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.device:  # names a device, and puts nothing there
            return func(*args, **(kwargs or {}))
        first: Any = args[0] if args else None
        on_meta = isinstance(first, torch.Tensor) and _is_meta(first)
        if on_meta and func in _ANSWERS:
            return _ANSWERS[func](first)
        if func in (torch.equal, torch.allclose):
            return True
        if on_meta and func in READING and (twin := _twin_of(first)) is not None:
            return func(twin, *args[1:], **(kwargs or {}))
        if on_meta and func in (torch.Tensor.cpu, torch.Tensor.to) and _to_cpu(func, args, kwargs):
            dtype = _dtype(args, kwargs) or first.dtype
            if (twin := _twin_of(first)) is not None:
                return twin.to(dtype, copy=True)
            return torch.zeros(first.shape, dtype=dtype, device="cpu")
        with torch._C.DisableTorchFunction():
            looking = writes_of(func, args, kwargs or {})
        try:
            with looking or contextlib.nullcontext():
                made = self._on_meta(func, first, args, kwargs or {})
        except (NotImplementedError, RuntimeError):
            with torch._C.DisableTorchFunction():
                made = of_twins(func, args, kwargs or {})
            if made is None:
                raise
            return made
        with torch._C.DisableTorchFunction():
            follow(func, args, kwargs or {}, made, looking.memory if looking else ())
        return made

    def _on_meta(self, func: Any, first: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        if func is torch.Tensor.cuda:
            return first.to("meta") if isinstance(first, torch.Tensor) else first
        args = tuple(_moved(value) for value in args)
        kwargs = {name: _moved(value) for name, value in kwargs.items()}
        if str(kwargs.get("device")) == "meta":
            kwargs.pop("generator", None)  # of the CPU: it has nothing to draw
        if (launches := launching(func)) is not None:
            return self._launched(launches, func, args, kwargs)
        return func(*args, **kwargs)

    def _launched(self, launches: Any, func: Any, args: Any, kwargs: Any) -> Any:
        """What an operator of the project's returns; on meta PyTorch asks what stands in for it,
        which launches nothing."""
        with self, torch.no_grad():
            made = launches(*args, **kwargs)
        try:
            return func(*args, **kwargs)  # with its gradient
        except (NotImplementedError, RuntimeError):  # nothing stands in for it
            return made


def _is_meta(tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return bool(tensor.is_meta)


def _twin_of(tensor: torch.Tensor) -> torch.Tensor | None:
    with torch._C.DisableTorchFunction():
        return twin_of(tensor)


def _address(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return ALIGNMENT_BYTES + int(tensor.storage_offset() * tensor.element_size())


_ANSWERS = {
    torch.Tensor.device.__get__: lambda _: _CUDA,
    torch.Tensor.is_cuda.__get__: lambda _: True,
    torch.Tensor.is_meta.__get__: lambda _: False,
    torch.Tensor.get_device: lambda _: 0,
    torch.Tensor.data_ptr: _address,
}


def _moved(value: Any) -> Any:
    """A device argument that names the GPU, changed to the meta device; all else as it is."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("meta")
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "meta"
    return value


def _set(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    made = torch._C.TensorBase.set_(tensor, *args, **kwargs)
    with torch._C.DisableTorchFunction():
        replaced(tensor, args, kwargs)
    return made


def _to_cpu(func: Any, args: tuple[Any, ...], kwargs: Any) -> bool:
    wanted = [*args[1:], *(kwargs or {}).values()]
    devices = [str(value) for value in wanted if isinstance(value, str | torch.device)]
    return func is torch.Tensor.cpu or "cpu" in devices


def _dtype(args: tuple[Any, ...], kwargs: Any) -> torch.dtype | None:
    wanted = [*args[1:], *(kwargs or {}).values()]
    return next((value for value in wanted if isinstance(value, torch.dtype)), None)


class _StoragelessGenerator(torch.Generator):  # type: ignore[misc]
    """A generator for the GPU is one for the CPU: nothing is drawn from it."""

    def __new__(cls, device: Any = None) -> Any:  # noqa: ARG004
        return super().__new__(cls)


def _agree(*_: Any, **__: Any) -> None:
    """Values are not compared: there are none."""


def _not_so() -> bool:
    return False


def _nothing(*_: Any, **__: Any) -> None:
    return None


class _Handle:
    """A stream or an event: every method does nothing."""

    cuda_stream = 0
    device = _CUDA

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def elapsed_time(self, _: Any) -> float:
        return 1.0

    def query(self) -> bool:
        return True

    record = synchronize = wait = wait_event = wait_stream = _nothing


def _cuda(sm: int) -> dict[str, Any]:
    """What `torch.cuda` answers."""
    capability = divmod(sm, 10)
    properties = SimpleNamespace(
        name=f"sm_{sm}",
        major=capability[0],
        minor=capability[1],
        multi_processor_count=MULTIPROCESSORS.get(sm, 132),
        total_memory=80 * 2**30,
        L2_cache_size=50 * 2**20,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
    )
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": capability,
        "get_device_name": properties.name,
        "get_device_properties": properties,
        "current_stream": _Handle(),
        "default_stream": _Handle(),
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
        "mem_get_info": (properties.total_memory, properties.total_memory),
        "memory_allocated": 0,
        "max_memory_allocated": 0,
    }
    nothing = (
        "init", "_lazy_init", "synchronize", "set_device", "empty_cache", "manual_seed",
        "manual_seed_all", "reset_peak_memory_stats",
    )  # fmt: skip
    answers |= dict.fromkeys(nothing)
    handles = ("Stream", "Event", "stream", "device")
    # One object a name: torch.compile keeps a table of what `torch.cuda` holds.
    return {name: _constant(value) for name, value in answers.items()} | {
        name: type(name, (_Handle,), {}) for name in handles
    }


def _constant(value: Any) -> Any:
    return lambda *_, **__: value


def _no_stream(_: Any) -> int:
    return 0
