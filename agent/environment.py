"""What this machine is, read without a CUDA context and without importing torch or Triton."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tile_agent_pytest.facts import facts

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
OLDEST_TRITON, ITS_TORCH = "3.4", "2.8"
"""Older ones lack what is asked of Triton. Each torch brings one: this the oldest that will do."""


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU, as NVML tells it."""

    name: str
    uuid: str
    sm: int
    """Compute capability times ten: 90 is Hopper."""
    memory_mib: int
    driver: str


@dataclass(frozen=True)
class Environment:
    """The machine a run happens on. A resumed run compares it with the one it began on."""

    gpus: tuple[Gpu, ...]
    versions: dict[str, str | None]
    """Distribution name -> installed version, None when it is not installed."""
    tileiras: str | None
    """Path of the Tile IR compiler."""
    python: str
    system: str
    tile_ir: Mapping[str, str | None] = field(default_factory=dict)
    """Which Triton there is, and its Tile IR backend: `tile_agent_pytest.tile_ir.installed`."""
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    """How far workers can be confined here: `tile_agent_pytest.sandbox.probe`."""

    executable: str = ""
    """The interpreter that has these packages."""

    @property
    def old_triton(self) -> str | None:
        """That its Triton is too old for tile-agent, with the mend; None where it is not."""
        return too_old(self.versions.get("triton"), self.executable)

    @property
    def gpu(self) -> Gpu | None:
        """The GPU a run uses: the first visible one."""
        return self.gpus[0] if self.gpus else None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def too_old(triton: str | None, python: str = "") -> str | None:
    """That a version of Triton is too old, with the mend; None where it is not, or there is none.

    Args:
        triton: the version.
        python: the interpreter that has it, where it is known.
    """
    if triton is None or _major_minor(triton) >= _major_minor(OLDEST_TRITON):
        return None
    return (
        f"{python or 'the interpreter of the tests'} has triton {triton}, and tile-agent needs "
        f"{OLDEST_TRITON} or newer: install torch {ITS_TORCH} or newer there"
    )


def probe() -> Environment:
    """Look at this machine and at the interpreter that runs tile-agent."""
    return assemble(facts())


def assemble(interpreter: Mapping[str, Any]) -> Environment:
    """This machine with what an interpreter said of itself, by `tile_agent_pytest.facts`."""
    return Environment(gpus=_gpus(), system=platform.platform(), **interpreter)


def generation(sm: int) -> str:
    """What NVIDIA calls the architecture of a compute capability times ten."""
    if sm == 89:
        return "Ada"
    names = {7: "Volta", 8: "Ampere", 9: "Hopper", 10: "Blackwell", 11: "Blackwell",
             12: "Blackwell"}  # fmt: skip
    return "Turing" if sm == 75 else names.get(sm // 10, f"sm_{sm}")


def describe(environment: Mapping[str, Any]) -> str:
    """A machine in one line, from `Environment.to_json()`: the GPU and the versions that matter."""
    gpus = environment["gpus"]
    where = f"{gpus[0]['name']}, driver {gpus[0]['driver']}" if gpus else "no GPU"
    versions = [
        f"{name} {version}"
        for name, version in environment["versions"].items()
        if version and name in ("torch", "triton", "cuda-tile")
    ]
    return "; ".join([where, *versions])


def describe_sandbox(sandbox: Mapping[str, Any], *, off: bool = False) -> str:
    """How workers are confined, in one line.

    Args:
        sandbox: what the machine can do, from `Environment.to_json()`.
        off: whether the user wants none of it.
    """
    means = ("limits and variables only", "files and other processes", "files and system calls")
    if off:
        return f"tier 0, {means[0]} (--sandbox off)"
    tier = sandbox.get("tier", 0)
    return f"tier {tier}, {means[tier]} ({sandbox.get('why', 'not looked at')})"


def _gpus() -> tuple[Gpu, ...]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
            found.append(
                Gpu(
                    name=_text(pynvml.nvmlDeviceGetName(handle)),
                    uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
                    sm=major * 10 + minor,
                    memory_mib=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // 2**20,
                    driver=driver,
                )
            )
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()
    return _visible(tuple(found))


def _visible(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Keep what CUDA_VISIBLE_DEVICES leaves, in its order; it names indices or UUID prefixes."""
    chosen = os.environ.get(VISIBLE_GPUS)
    if chosen is None:
        return gpus
    kept: list[Gpu] = []
    for name in (part.strip() for part in chosen.split(",")):
        if name.isdigit() and int(name) < len(gpus):
            kept.append(gpus[int(name)])
        elif match := [gpu for gpu in gpus if name and gpu.uuid.startswith(name)]:
            kept.append(match[0])
        else:
            break
    return tuple(kept)


def _major_minor(version: str) -> tuple[int, ...]:
    """(3, 4) of '3.4.0+git1'; what cannot be read is newer than all."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, found.groups())) if found else (sys.maxsize,)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
