"""What of Triton's driver a file asks for before it launches anything, where there is no GPU.

The tutorials of Triton, and much that began as one of them, ask the driver for the device of their
tensors and for the kind of GPU, mostly when they are imported. Where Triton interprets, tensors are
the CPU's, and `do_bench` is given its clock. What else a driver is asked for there is no answer to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter
from types import SimpleNamespace
from typing import Any

from tile_agent_pytest.stand_in_driver import gpu_target


def mend(module: Any) -> None:
    """Have `triton.runtime.driver` make do without a GPU; a second time changes nothing."""
    create = getattr(module, "_create_driver", None)
    if create is not None and not hasattr(create, "by_tile_agent"):
        module._create_driver = _or_without_a_gpu(create)
        default = vars(module.driver).get("default")
        if hasattr(type(default), "_initialize_obj"):  # of Triton 3.4, which keeps the function
            default._init_fn = module._create_driver


def _or_without_a_gpu(create: Callable[[], Any]) -> Any:
    @functools.wraps(create)
    def create_driver() -> Any:
        try:
            return create()
        except RuntimeError as problem:
            return NoGpuDriver(problem)

    made: Any = create_driver
    made.by_tile_agent = create
    return made


PROPERTIES = {
    "multiprocessor_count": 4,
    "max_shared_mem": 99 << 10,
    "max_num_regs": 65536,
    "warpSize": 32,
}
"""Programs of a persistent grid run one after the other: few multiprocessors are soon done with."""


class NoGpuDriver:
    """Answers what the interpreter's CPU can; the rest is what Triton said of the want of a GPU."""

    def __init__(self, problem: RuntimeError) -> None:
        """Remember what Triton said."""
        self._problem = str(problem)

    def get_active_torch_device(self) -> Any:
        """Where tensors are made."""
        import torch

        return torch.device("cpu")

    def get_current_target(self) -> Any:
        """A kind of GPU that all of Triton's configs for CUDA are made for."""
        return gpu_target(80)

    def get_device_interface(self) -> Any:
        """The clock of `do_bench`."""
        return CpuClock

    def get_current_device(self) -> int:
        """The one that is not there."""
        return 0

    @property
    def utils(self) -> Any:
        """What host code sizes persistent grids by."""
        return SimpleNamespace(get_device_properties=lambda _: dict(PROPERTIES))

    def get_empty_cache_for_benchmark(self) -> None:
        """None: a CPU's caches stay as they are."""

    def clear_cache(self, _: None) -> None:
        """Leave them."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(self._problem)


class CpuEvent:
    """As much of an event of `torch.cuda` as a timing needs."""

    def __init__(self, enable_timing: bool = True, **_: Any) -> None:  # noqa: ARG002 - torch's
        """None yet."""
        self._at_s = 0.0

    def record(self, stream: Any = None) -> None:  # noqa: ARG002 - torch's
        """It is now."""
        self._at_s = perf_counter()

    def synchronize(self) -> None:
        """It has happened."""

    def wait(self, stream: Any = None) -> None:
        """So it has."""

    def query(self) -> bool:
        """Nothing is left to do."""
        return True

    def elapsed_time(self, end: CpuEvent) -> float:
        """Milliseconds from this one to another."""
        return (end._at_s - self._at_s) * 1e3


class CpuClock:
    """As much of `torch.cuda` as a timing needs."""

    Event = CpuEvent

    @staticmethod
    def synchronize() -> None:
        """What was called is done."""
