"""A stand-in for Triton's driver of a GPU that is not there, or that this process cannot ask."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

Message = dict[str, Any]


class StandInDriver:
    """As much of a Triton driver as a launch, or the autotuner, needs before the code is there."""

    def __init__(self, sm: int) -> None:
        self._target = gpu_target(sm)
        self.utils = SimpleNamespace(get_device_properties=_device_properties)

    def get_current_target(self) -> Any:
        """The GPU that is pretended."""
        return self._target

    def get_current_device(self) -> int:
        """Its number."""
        return 0

    def set_current_device(self, _: int) -> None:
        """There is one only."""

    def get_current_stream(self, _: int | None = None) -> int:
        """The default stream."""
        return 0

    def get_active_torch_device(self) -> Any:
        """Where user code allocates."""
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """`torch.cuda`."""
        import torch

        return torch.cuda

    def get_device_capability(self, _: int = 0) -> tuple[int, int]:
        """Major and minor."""
        major, minor = divmod(self._target.arch, 10)
        return major, minor

    def get_benchmarker(self) -> Any:
        """The autotuner's: each config is launched once, and all are equally fast."""
        return launched_once


def gpu_target(sm: int) -> Any:
    """An NVIDIA GPU of compute capability `sm` / 10, as Triton names it."""
    return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", sm, 32)


def launched_once(fn: Any, *_: Any, quantiles: Any = None, **__: Any) -> Any:
    """In place of `do_bench`: each config is launched once, and all are equally fast."""
    fn()
    return [1.0] * len(quantiles) if quantiles else 1.0


def _device_properties(_: int = 0) -> Message:
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "multiprocessor_count": properties.multi_processor_count,
        "max_shared_mem": 232448,
        "warpSize": 32,
        "max_num_regs": 65536,
    }
