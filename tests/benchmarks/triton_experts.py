"""Calls the experts' versions of the Triton kernels in a process of their own, without a GPU.

    python -m tests.benchmarks.triton_experts interpret | launch [KERNEL/EXPERT ...]

`interpret` runs them in Triton's interpreter on small inputs, and tells how far each is off.
`launch` runs them on tensors without storage, for the real configs, as far as their launches, and
tells those. Prints JSON: kernel -> expert -> an error, the kernels launched, or why there is none.
Of all experts, or of those that are named: to import a package for one takes seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Container, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support.warm_python import warm_interpreter

PACKAGES = (
    *("liger-kernel==0.8.5", "fla-core==0.6.0", "conch-triton-kernels==1.3", "flag-gems==5.0.2"),
    *("einops==0.8.2", "SQLAlchemy==2.1.9", "PyYAML==6.0.3"),
)
"""The experts' packages, and what they import besides PyTorch and Triton."""
HOPPER = 90
ROOT = Path(__file__).parents[2]

Call = Callable[..., Callable[[], Any]]


def folder() -> Path:
    """Where the packages are, installed once a machine; skips the test where there is no index."""
    name = f"experts-{sha256(repr((PACKAGES, sys.version_info)).encode()).hexdigest()[:12]}"
    target = Path(tempfile.gettempdir()) / f"tile-agent-tests-{os.getuid()}" / name
    if not target.is_dir():
        target.parent.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--no-deps",
                "--only-binary",
                ":all:",
            ]
            command += ["--no-compile", "--target", f"{work}/installed", *PACKAGES]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"the packages cannot be had: {done.stderr.strip()[-200:]}")
            Path(work, "installed").rename(target)
    return target


def called(
    mode: str, home: Path, wanted: Iterable[tuple[str, str]] = ()
) -> dict[str, dict[str, Any]]:
    """What this file prints, as a script, of those kernels and experts."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{folder()}",
        "HOME": str(home),
        "TRITON_INTERPRET": str(int(mode == "interpret")),
        "GEMS_VENDOR": "nvidia",  # else FlagGems asks the machine, which has no GPU
    }
    names = [f"{kernel}/{label}" for kernel, label in wanted]
    command = [warm_interpreter(), "-m", "tests.benchmarks.triton_experts", mode, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=home)
    assert done.returncode == 0, done.stderr
    answer: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answer


def each(call: Callable[[Any, Call], Any], wanted: Container[str]) -> dict[str, dict[str, Any]]:
    """Apply a function of the kernel and the expert to those that are named; to all if none is."""
    from benchmarks.side_by_side import one_line
    from benchmarks.spec import find

    found: dict[str, dict[str, Any]] = {}
    for spec in find(["triton"]):
        for label, expert in spec.reference().experts.items():
            if wanted and f"{spec.name}/{label}" not in wanted:
                continue
            try:
                answer = call(spec, expert)
            except Exception as problem:  # whatever stops one, the others are told of
                answer = one_line(problem)
            found.setdefault(spec.name, {})[label] = answer
    return found


def interpret(wanted: Container[str]) -> dict[str, dict[str, Any]]:
    """How far each is off on small inputs, as `benchmarks.side_by_side` measures it."""
    import torch

    from benchmarks.agreement import copied, error, right

    small: dict[str, tuple[int, ...]] = {
        "softmax": (8, 256),
        "layer_norm": (16, 1024),
        "rms_norm": (16, 1024),
        "matmul": (128, 128, 64),
        "bmm": (2, 128, 128, 64),
        "attention": (1, 2, 256, 64),
        "gelu_and_mul": (4, 512),
        "embedding": (200, 30, 256),
        "transpose": (64, 96),
        "cross_entropy": (8, 1000),
        "qk_norm": (4, 8, 128),
        "group_quant": (40, 256),
    }

    def call(spec: Any, expert: Call) -> float:
        reference = spec.reference()
        inputs = reference.inputs((*small[spec.name], torch.float16))
        return error(expert(*map(copied, inputs))(), right(reference, inputs))

    return each(call, wanted)


def launch(wanted: Container[str]) -> dict[str, dict[str, Any]]:
    """The kernels that each launches for its first config."""
    from benchmarks.agreement import tensors
    from tile_agent_pytest.record_triton import recording
    from tile_agent_pytest.storageless import storageless

    def call(spec: Any, expert: Call) -> list[str]:
        reference, recorder = spec.reference(), Everything()
        inputs = reference.inputs(reference.configs[0])
        with recording(recorder, sm=HOPPER):
            result = expert(*inputs)()
        expected = reference.torch_version(*inputs)
        shapes = [[t.shape for t in tensors(found)] for found in (result, expected)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"{shapes[0]} instead of {shapes[1]}")
        return recorder.kernels

    with storageless(HOPPER):
        return each(call, wanted)


class Everything:
    """A recorder that takes the kernels of all files."""

    def __init__(self) -> None:
        self.kernels: list[str] = []

    def covers(self, function: Any) -> bool:
        """It does."""
        return True

    def add(self, launch: Any) -> None:
        """Keep the kernel's name."""
        self.kernels.append(launch.kernel)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the packages' own are not ours to mend
    print(json.dumps({"interpret": interpret, "launch": launch}[sys.argv[1]](sys.argv[2:])))
