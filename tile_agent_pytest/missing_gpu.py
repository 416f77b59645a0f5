"""Code that names device "cuda", where Triton interprets because there is no GPU: the CPU is meant.

Most public tests put their inputs on "cuda" and ask for no GPU otherwise. From here on such tensors
are the CPU's, and `torch.cuda` does nothing where it could only wait or choose. It goes on to say
that there is no GPU, so that code that looks for one takes the way that it takes without.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tile_agent_pytest import operator_bodies
from tile_agent_pytest.interpreted_driver import PROPERTIES, CpuEvent

CAPABILITY = (8, 0)
"""What all of Triton's configs for CUDA are made for; the interpreter knows no difference."""
_ON_GPU = "_tile_agent_on_gpu"
"""Marks tensors that were put on "cuda": who puts them there again gets the same, as on a GPU."""
_installed: list[Any] = []


def install() -> None:
    """Have it so in this thread until the process ends; a second time changes nothing."""
    torch: Any = sys.modules.get("torch")
    wanted = os.environ.get("TRITON_INTERPRET") == "1" and hasattr(torch, "Tensor")
    if _installed or not wanted or _has_gpu(torch):
        return
    for name, stand_in in _cuda().items():
        setattr(torch.cuda, name, stand_in)
    _stand_in_elsewhere(torch)
    _cast_here(torch.amp.autocast_mode.autocast)
    mode = _cpu_instead(torch)
    _in_backward_too(torch, mode)
    operator_bodies.keep(mode)
    mode.__enter__()
    _installed.append(mode)


def stands_in() -> bool:
    """Whether device "cuda" is the CPU here."""
    return bool(_installed)


def _stand_in_elsewhere(torch: Any) -> None:
    """What modules ask for when they are imported, apart from `torch.cuda`."""
    torch._C._cuda_getCurrentRawStream = _constant(0)
    if hasattr(torch, "accelerator"):
        named = torch.device("cuda")

        def current_accelerator(check_available: bool = False) -> Any:
            return None if check_available else named

        torch.accelerator.current_accelerator = current_accelerator
    guards: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    if hasattr(guards, "_empty_strided_cuda"):  # by which Inductor's code makes its tensors

        def empty_strided(size: Any, stride: Any, dtype: Any) -> Any:
            return torch.empty_strided(size, stride, dtype=dtype, device="cuda")

        guards._empty_strided_cuda = empty_strided
    triton_of_torch: Any = importlib.import_module("torch.utils._triton")
    if hasattr(triton_of_torch, "has_triton"):
        triton_of_torch.has_triton = _constant(True)


def _cast_here(autocast: Any) -> None:
    """Have `torch.autocast("cuda")` cast what the CPU computes, to the type that a GPU's does."""
    init = autocast.__init__

    @functools.wraps(init)
    def __init__(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if _is_cuda(device_type):
            dtype = dtype or sys.modules["torch"].get_autocast_dtype("cuda")
        init(self, _here(device_type), dtype, *args, **kwargs)

    autocast.__init__ = __init__


def _in_backward_too(torch: Any, mode: Any) -> None:
    """PyTorch leaves the mode for as long as it is in `Tensor.backward` or `autograd.grad`, and so
    for all that a `Function` of the user's does in its backward pass."""
    run = torch.autograd._engine_run_backward

    @functools.wraps(run)
    def run_within(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return run(*args, **kwargs)

    torch.autograd._engine_run_backward = run_within


def _has_gpu(torch: Any) -> bool:
    """Asked of NVML, so that no driver is woken before the user's code says for which GPU."""
    with mock.patch.dict(os.environ, {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}):
        return bool(torch.cuda.is_available())


def _cpu_instead(torch: Any) -> Any:
    """The mode that every call of PyTorch's goes through."""
    from torch.overrides import TorchFunctionMode

    tensor = torch.Tensor
    is_cuda = tensor.is_cuda.__get__
    moves = (tensor.to, tensor.cuda, tensor.cpu)

    class CpuInstead(TorchFunctionMode):  # type: ignore[misc]
        asked = False
        """Whether anything was put on "cuda": then `is_cuda` holds, as wrappers insist on it."""

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func is torch.device:  # names a device, and puts nothing there
                return func(*args, **kwargs)
            if func == is_cuda:
                return self.asked
            if type(kwargs.get("device")) is int:  # the number of a GPU
                kwargs = {**kwargs, "device": "cuda"}
            if func is tensor.to and type(args[1] if len(args) > 1 else None) is int:
                args = (args[0], "cuda", *args[2:])
            named = any(map(_is_cuda, (*args, *kwargs.values()))) or func is tensor.cuda
            self.asked |= named
            if named:
                args = tuple(map(_here, args))
                kwargs = {name: _here(value) for name, value in kwargs.items()}
            found = args[0] if func is tensor.cuda else func(*args, **kwargs)
            if func in moves and found is args[0]:
                arrives = named and not hasattr(found, _ON_GPU)
                if arrives or (self.asked and func is tensor.cpu):
                    found = found.clone()
            if named and isinstance(found, tensor):
                setattr(found, _ON_GPU, True)
            return found

    mode = CpuInstead()
    set_default = torch.set_default_device

    @functools.wraps(set_default)
    def set_default_device(device: Any) -> None:
        mode.asked |= _is_cuda(device)
        set_default(_here(device))

    torch.set_default_device = set_default_device
    torch.Generator = _generator(torch.Generator)
    return mode


def _generator(base: Any) -> Any:
    class AnyGenerator(type(base)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, base)

    class Generator(base, metaclass=AnyGenerator):  # type: ignore[misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            return base.__new__(base, _here(device))

    return Generator


def _is_cuda(value: Any) -> bool:
    if isinstance(value, str):
        return value.partition(":")[0] == "cuda"
    return type(value).__name__ == "device" and getattr(value, "type", "") == "cuda"


def _here(value: Any) -> Any:
    return "cpu" if _is_cuda(value) else value


def _cuda() -> dict[str, Any]:
    """What `torch.cuda` answers and does."""
    properties = SimpleNamespace(
        name="Triton's interpreter",
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        multi_processor_count=PROPERTIES["multiprocessor_count"],
        total_memory=16 << 30,
        L2_cache_size=1 << 20,
        shared_memory_per_block_optin=99 << 10,
        shared_memory_per_multiprocessor=100 << 10,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
    )
    answers: dict[str, Any] = {
        "current_device": 0,
        "_exchange_device": 0,  # what code that Inductor made chooses a device by
        "_maybe_exchange_device": 0,
        "get_device_capability": CAPABILITY,
        "get_device_name": properties.name,
        "get_device_properties": properties,
        "mem_get_info": (properties.total_memory, properties.total_memory),
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "is_bf16_supported": False,
        "is_current_stream_capturing": False,
        "current_stream": _Nothing(),
        "default_stream": _Nothing(),
    }
    nothing = (
        "init", "synchronize", "set_device", "set_stream", "empty_cache",
        "reset_peak_memory_stats", "ipc_collect",
    )  # fmt: skip
    answers |= dict.fromkeys(nothing)
    guards = ("device", "device_of", "_DeviceGuard", "stream", "Stream")
    handles = dict.fromkeys(guards, _Nothing)
    return {name: _constant(value) for name, value in answers.items()} | {
        **handles,
        "Event": CpuEvent,
    }


def _constant(value: Any) -> Callable[..., Any]:
    def answer(*_: Any, **__: Any) -> Any:
        return value

    return answer


class _Nothing:
    """A device or a stream that is chosen, waited for or asked: all has happened already."""

    cuda_stream = 0
    idx = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        """Whatever it is given."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None: ...

    def synchronize(self) -> None:
        """It has happened."""

    def wait_stream(self, _: Any) -> None:
        """So has that."""

    def wait_event(self, _: Any) -> None:
        """And that."""

    def record_event(self, event: Any = None) -> Any:
        """It is now."""
        event = event or CpuEvent()
        event.record()
        return event

    def query(self) -> bool:
        """Nothing is left to do."""
        return True
