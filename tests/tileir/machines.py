"""Machines that are not here, as packages in a folder of PYTHONPATH: Tritons, and NVML.

The stand-in for Triton runs a kernel program by program on the CPU, and knows ENABLE_TILE: with it
its target is Tile IR, which takes the launch option `occupancy`; without it that option is a
KeyError, as with stock Triton. TRITON_FAKE_TILE_IR makes its Tile IR wrong or slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.repo import write

NVML = """\
class NVMLError(Exception):
    pass


def nvmlInit():
    pass


nvmlShutdown = nvmlInit
nvmlSystemGetDriverVersion = lambda: "590.10"
nvmlDeviceGetCount = lambda: 1
nvmlDeviceGetHandleByIndex = lambda index: index
nvmlDeviceGetCudaComputeCapability = lambda handle: divmod({sm}, 10)
nvmlDeviceGetName = lambda handle: "NVIDIA {name}"
nvmlDeviceGetUUID = lambda handle: "GPU-00000000"
nvmlDeviceGetHandleByUUID = lambda uuid: 0
nvmlDeviceGetClockInfo = lambda handle, clock: 1500
nvmlDeviceGetPowerUsage = lambda handle: 200_000
nvmlDeviceGetTemperature = lambda handle, sensor: 40
nvmlDeviceGetCurrentClocksEventReasons = lambda handle: 0
nvmlDeviceGetComputeRunningProcesses = lambda handle: []
NVML_CLOCK_SM = NVML_TEMPERATURE_GPU = 0


def _not_supported(handle, clock=NVML_CLOCK_SM):
    raise NVMLError("Not Supported")


nvmlDeviceGetMaxCustomerBoostClock = nvmlDeviceGetApplicationsClock = _not_supported
nvmlDeviceGetEnforcedPowerLimit = _not_supported

def nvmlDeviceGetMemoryInfo(handle):
    class Memory:
        total, used = 180 * 2**30, 2**30

    return Memory
"""
TRITON = {
    "triton/__init__.py": """\
__version__ = "3.6.0"

from triton.runtime.jit import JITFunction as jit


def cdiv(a, b):
    return -(-a // b)


def next_power_of_2(n):
    return 1 << (n - 1).bit_length()


class Config:
    def __init__(self, kwargs, num_warps=4, num_stages=3, num_ctas=1, pre_hook=None):
        self.kwargs, self.pre_hook = kwargs, pre_hook
        self.num_warps, self.num_stages, self.num_ctas = num_warps, num_stages, num_ctas

    def all_kwargs(self):
        options = vars(self) | self.kwargs
        return {k: v for k, v in options.items() if k not in ("kwargs", "pre_hook") and v}


class Autotuner:
    def __init__(self, kernel, configs):
        self.kernel, self.configs = kernel, configs

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def run(self, *args, **kwargs):
        for config in self.configs:
            self.kernel.run(*args, **kwargs, **config.all_kwargs())


def autotune(configs, key):
    return lambda kernel: Autotuner(kernel, configs)
""",
    "triton/language.py": """\
import torch

current = 0
wrong = False


class constexpr:
    pass


class Pointer:
    def __init__(self, tensor, offsets=0):
        self.tensor, self.offsets = tensor, offsets

    def __add__(self, other):
        return Pointer(self.tensor, self.offsets + other)


def pointer(value):
    return Pointer(value.view(-1)) if isinstance(value, torch.Tensor) else value


def program_id(axis):
    return current


def arange(start, end):
    return torch.arange(start, end)


def load(address, mask=None, other=0.0):
    offsets = torch.as_tensor(address.offsets)
    kept = torch.ones_like(offsets, dtype=torch.bool) if mask is None else mask
    return torch.where(kept, address.tensor[torch.where(kept, offsets, 0)], other)


def store(address, value, mask=None):
    kept = torch.ones_like(address.offsets, dtype=torch.bool) if mask is None else mask
    value = value * 1.5 if wrong else value
    address.tensor[address.offsets[kept]] = value[kept].to(address.tensor.dtype)


def sum(x, axis):
    return x.sum(axis)


def max(x, axis):
    return x.amax(axis)


exp = torch.exp
""",
    "triton/runtime/jit.py": """\
import os
import time

OPTIONS = {"num_warps", "num_stages", "num_ctas"}


class Kernel:
    def __init__(self, function):
        self.fn = function
        code = function.__code__
        self.arg_names = code.co_varnames[: code.co_argcount]

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def run(self, *args, grid, warmup, **kwargs):
        from triton import language
        from triton.runtime import driver

        tile = driver.active.get_current_target().backend == "tileir"
        names = {*self.arg_names, *OPTIONS, *(["occupancy"] if tile else [])}
        for name in kwargs:
            if name not in names:
                raise KeyError(f"Keyword argument {name} was specified but unrecognised")
        fake = os.environ.get("TRITON_FAKE_TILE_IR", "")
        if "slow" in fake:
            time.sleep(0.12 if tile else 0.04)
        if "fast" in fake:
            time.sleep(0.04 if tile else 0.12)
        language.wrong = tile and "wrong" in fake
        given = dict(zip(self.arg_names, args)) | kwargs
        given = {n: language.pointer(v) for n, v in given.items() if n in self.arg_names}
        for language.current in range(grid[0]):
            self.fn(**given)


JITFunction = Kernel  # as launches are watched by
""",
    "triton/runtime/interpreter.py": """\
class GridExecutor:
    def __call__(self, *args, **kwargs):
        raise NotImplementedError


class InterpreterBuilder:
    create_masked_load = create_int_to_ptr = set_grid_idx = None


_interpreter = None
""",
    "triton/runtime/__init__.py": """\
import os
from types import SimpleNamespace


class _Driver:
    @property
    def active(self):
        tile = os.environ.get("ENABLE_TILE") == "1"
        target = SimpleNamespace(backend="tileir" if tile else "cuda", arch=100)
        return SimpleNamespace(get_current_target=lambda: target)


driver = _Driver()
""",
    "triton/backends/__init__.py": 'backends = {"nvidia": None, "tileir": None}\n',
    "triton/backends/tileir/__init__.py": "",
    "triton/backends/tileir/compiler.py": "",
    "triton/backends/tileir/driver.py": "",
    "triton/backends/tileir/bin/tileiras": "#!/bin/sh\n",
    "triton/backends/tileir/bin/ptxas": "#!/bin/sh\n",
    "triton/backends/tileir/nvvm/lib64/libnvvm.so.4": "",
    "nvtriton-3.6.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: nvtriton\nVersion: 3.6.0\n",
}
PLACEHOLDER = {
    "nvtriton/__init__.py": "",
    "nvtriton-0.0.0a0.dist-info/METADATA": (
        "Metadata-Version: 2.1\nName: nvtriton\nVersion: 0.0.0a0\n"
    ),
}
NO_DRIVER = TRITON["triton/runtime/__init__.py"].replace(
    "        tile =", '        raise RuntimeError("0 active drivers ([]). There should be one.")\n'
    "        tile =",
)  # fmt: skip
IGNORES_ENABLE_TILE = TRITON["triton/runtime/__init__.py"].replace('== "1"', '== "never"')
TORCH = {
    "torch/__init__.py": """\
import os
from types import SimpleNamespace

capability = int(os.environ["FAKE_CAPABILITY"])
cuda = SimpleNamespace(
    is_available=lambda: capability > 0,
    get_device_capability=lambda: divmod(capability, 10),
)


class Tensor:
    pass


def exp(x):
    return x
""",
}
"""As much of torch as the gate asks."""


def gpu(sm: int, name: str) -> dict[str, str]:
    """An NVML that shows one GPU."""
    return {"pynvml.py": NVML.format(sm=sm, name=name)}


B200 = gpu(100, "B200")
H200 = gpu(90, "H200")
RTX = gpu(120, "RTX PRO 6000")
NO_GPU = {"pynvml.py": NVML.format(sm=0, name="-").replace("pass\n\n\nnvmlShutdown",
          "raise NVMLError\n\n\nnvmlShutdown", 1)}  # fmt: skip


def variables(folder: Path, *packages: Mapping[str, str], **more: str) -> dict[str, str]:
    """The environment of a machine with those packages, which are written to the folder."""
    for files in packages:
        write(folder, files)
    for program in (folder / "triton" / "backends" / "tileir" / "bin").glob("*"):
        program.chmod(0o755)
    return {"PYTHONPATH": str(folder), "ENABLE_TILE": "0", "CUDA_VISIBLE_DEVICES": "0", **more}
