"""Code that names device "cuda", where Triton interprets because there is no GPU: the CPU is meant.

Most public tests put their inputs on "cuda" and ask for no GPU otherwise. From here on such tensors
are the CPU's, and `torch.cuda` does nothing where it could only wait or choose. It goes on to say
that there is no GPU, so that code that looks for one takes the way that it takes without.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tile_agent_pytest.interpreted_driver import PROPERTIES, CpuEvent

CAPABILITY = (8, 0)
"""What all of Triton's configs for CUDA are made for; the interpreter knows no difference."""
_installed: list[Any] = []


def install() -> None:
    """Have it so in this thread until the process ends; a second time changes nothing."""
    torch: Any = sys.modules.get("torch")
    wanted = os.environ.get("TRITON_INTERPRET") == "1" and hasattr(torch, "Tensor")
    if _installed or not wanted or torch.cuda.is_available():
        return
    for name, stand_in in _cuda().items():
        setattr(torch.cuda, name, stand_in)
    mode = _cpu_instead(torch)
    mode.__enter__()
    _installed.append(mode)


def _cpu_instead(torch: Any) -> Any:
    """The mode that every call of PyTorch's goes through."""
    from torch.overrides import TorchFunctionMode

    tensor = torch.Tensor
    is_cuda = tensor.is_cuda.__get__
    moves = (tensor.to, tensor.cuda, tensor.cpu)

    class CpuInstead(TorchFunctionMode):  # type: ignore[misc]
        asked = False
        """Whether anything was put on "cuda": then `is_cuda` holds, as wrappers insist on it, and
        what `cpu` gives is a copy."""

        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func is torch.device:  # names a device, and puts nothing there
                return func(*args, **kwargs)
            if func == is_cuda:
                return self.asked
            named = any(map(_is_cuda, (*args, *kwargs.values()))) or func is tensor.cuda
            self.asked |= named
            if named:
                args = tuple(map(_here, args))
                kwargs = {name: _here(value) for name, value in kwargs.items()}
            if func is tensor.cuda:
                return args[0].clone()
            found = func(*args, **kwargs)
            moved = func in moves and (named or (self.asked and func is tensor.cpu))
            return found.clone() if moved and found is args[0] else found

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
    )
    answers: dict[str, Any] = {
        "current_device": 0,
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
    handles = dict.fromkeys(("device", "device_of", "stream", "Stream"), _Nothing)
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
