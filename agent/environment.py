"""What this machine is, read without a CUDA context and without importing torch or Triton."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "triton", "cuda-tile", "nvidia-cuda-tileiras", "pytest")


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

    @property
    def gpu(self) -> Gpu | None:
        """The GPU a run uses: the first visible one."""
        return self.gpus[0] if self.gpus else None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def probe() -> Environment:
    """Look at this machine."""
    return Environment(
        gpus=_gpus(),
        versions={name: _version(name) for name in PACKAGES},
        tileiras=_tileiras(),
        python=platform.python_version(),
        system=platform.platform(),
    )


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


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _tileiras() -> str | None:
    """Where cuda.tile would find its compiler: the pip package, PATH, then CUDA_HOME."""
    try:
        files = metadata.files("nvidia-cuda-tileiras") or []
    except metadata.PackageNotFoundError:
        files = []
    places = [Path(str(f.locate())) for f in files if f.name == "tileiras"]
    if home := os.environ.get("CUDA_HOME"):
        places.append(Path(home) / "bin" / "tileiras")
    for place in places:
        if os.access(place, os.X_OK):
            return str(place)
    return shutil.which("tileiras")


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
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
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


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
