"""A kernel of the benchmark: a folder of its own under `benchmarks/<framework>/`.

    <name>/<name>.py       the kernel and its wrapper, a function that is called <name> too
    <name>/test_<name>.py  correctness, and `test_perf_...` with `tile_bench`
    <name>/reference.py    what both are compared with:

- `CONFIGS`: what is timed, each the arguments of `inputs`
- `inputs(*config)`: the wrapper's arguments, on the GPU, the same on every call
- `torch_version(*inputs)`: the same by PyTorch; with fp64 inputs, what is taken to be right
- `bytes_moved(*inputs)` or `flop(*inputs)`: the least work there is to do
- `EXPERTS`, which may be missing: what it is called -> a function of the inputs that imports an
  expert's version and returns a callable without arguments
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
FRAMEWORKS = ("cutile", "triton")

Launch = Callable[[], Any]


@dataclass(frozen=True)
class Spec:
    """A kernel's folder; nothing of it is imported until it is asked for."""

    framework: str
    name: str
    folder: Path

    @property
    def key(self) -> str:
        """Names it in the results."""
        return f"{self.framework}/{self.name}"

    @property
    def kernel(self) -> Path:
        """The file that a run optimizes."""
        return self.folder / f"{self.name}.py"

    def wrapper(self, file: Path) -> Callable[..., Any]:
        """The wrapper in a version of the kernel's file."""
        wrapper: Callable[..., Any] = getattr(load(file), self.name)
        return wrapper

    def reference(self) -> Reference:
        """What the kernel is timed on, and against."""
        return Reference(load(self.folder / "reference.py"))


@dataclass(frozen=True)
class Reference:
    """`reference.py`, imported."""

    module: ModuleType

    @property
    def configs(self) -> Sequence[tuple[Any, ...]]:
        """What is timed."""
        configs: Sequence[tuple[Any, ...]] = self.module.CONFIGS
        return configs

    def inputs(self, config: tuple[Any, ...]) -> tuple[Any, ...]:
        """The wrapper's arguments for a config."""
        inputs: tuple[Any, ...] = self.module.inputs(*config)
        return inputs

    @property
    def torch_version(self) -> Callable[..., Any]:
        """The same by PyTorch."""
        version: Callable[..., Any] = self.module.torch_version
        return version

    @property
    def experts(self) -> Mapping[str, Callable[..., Launch]]:
        """The experts' versions by name; each may fail where its package is not installed."""
        experts: Mapping[str, Callable[..., Launch]] = getattr(self.module, "EXPERTS", {})
        return experts

    def work(self, inputs: tuple[Any, ...]) -> tuple[float, str]:
        """How much there is to do, and its unit: 'FLOP' or 'B'."""
        if hasattr(self.module, "flop"):
            return float(self.module.flop(*inputs)), "FLOP"
        return float(self.module.bytes_moved(*inputs)), "B"


def describe(config: tuple[Any, ...]) -> str:
    """'16384 x 4096 bfloat16'."""
    sizes = [str(part) for part in config if isinstance(part, int)]
    others = [str(part).removeprefix("torch.") for part in config if not isinstance(part, int)]
    return " ".join([" x ".join(sizes), *others])


def find(wanted: Sequence[str], root: Path = HERE) -> list[Spec]:
    """The kernels of these names: 'softmax', 'cutile/softmax' or 'cutile'; all when none is given.

    Raises:
        ValueError: there is no such kernel; the message names those there are.
    """
    known = [
        Spec(framework, folder.name, folder)
        for framework in FRAMEWORKS
        for folder in sorted((root / framework).glob("*"))
        if (folder / "reference.py").is_file()
    ]
    found = [s for s in known if not wanted or {s.name, s.key, s.framework} & set(wanted)]
    for name in wanted:
        if not any(name in (s.name, s.key, s.framework) for s in found):
            raise ValueError(f"no kernel {name}; there are: {', '.join(s.key for s in known)}")
    return found


def load(file: Path) -> ModuleType:
    """Import a file under a name of its own, so that two versions of a kernel can be had at once.

    cuTile and Triton read the source of a kernel again, so the file has to stay.
    """
    name = f"_benchmark_{file.parent.name}_{file.stem}_{len(sys.modules)}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def replace_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all: the process may be ended at any time."""
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text)
    part.replace(path)
