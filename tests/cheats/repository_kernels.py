"""The Triton kernels of the examples and of the benchmarks, as targets: with tests that are short.

Their own tests take shapes that are made for a GPU. The inputs and the reference are the
benchmarks'; `group_quant` is left out, as Triton's interpreter rounds wrongly to its type.
"""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST = '''\
"""Correctness and speed of {name} on small inputs."""

import torch
from {name} import {name}
from reference import inputs, torch_version

DTYPE = torch.{dtype}


def test_{name}():
    arguments = inputs(*{tested}, DTYPE)
    wide = [x.double() if x.is_floating_point() else x for x in arguments]
    actual = {name}(*arguments).double()
    torch.testing.assert_close(actual, torch_version(*wide).double(), rtol=4e-3, atol=4e-3)


def test_perf_{name}(tile_bench):
    arguments = inputs(*{timed}, DTYPE)
    tile_bench(lambda: {name}(*arguments))
'''
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "attention": ((1, 1, 40, 16), (1, 1, 128, 16), "float16"),
    "bmm": ((1, 20, 33, 40), (1, 64, 128, 64), "float16"),
    "cross_entropy": ((3, 100), (2, 1500), "float32"),
    "embedding": ((3, 10, 77), (3, 16, 600), "float32"),
    "gelu_and_mul": ((2, 100), (2, 1200), "float32"),
    "layer_norm": ((2, 100), (2, 1500), "float32"),
    "matmul": ((20, 33, 40), (64, 64, 64), "float16"),
    "qk_norm": ((3, 2, 16), (3, 4, 32), "float32"),
    "rms_norm": ((2, 100), (3, 700), "float32"),
    "softmax": ((2, 100), (3, 700), "float32"),
    "transpose": ((33, 20), (60, 40), "float32"),
}
"""Kernel -> arguments of `inputs` that are tested, those that are timed, and the type."""


def kernels() -> tuple[Path, ...]:
    """The files."""
    files = (
        *ROOT.glob("examples/triton_*/*.py"),
        *ROOT.glob("benchmarks/triton/*/*.py"),
    )
    return tuple(sorted(f for f in files if f.stem in SHAPES and f.parent.name.endswith(f.stem)))


def make_target(kernel: Path, folder: Path) -> Path:
    """A folder with the kernel, the benchmarks' reference of it, and tests."""
    target = folder / f"{kernel.parent.parent.name}-{kernel.stem}"
    if not target.exists():
        tested, timed, dtype = SHAPES[kernel.stem]
        (target / "tests").mkdir(parents=True)
        shutil.copy(kernel, target)
        shutil.copy(ROOT / "benchmarks" / "triton" / kernel.stem / "reference.py", target)
        text = TEST.format(name=kernel.stem, tested=tested, timed=timed, dtype=dtype)
        (target / "tests" / f"test_{kernel.stem}.py").write_text(text, encoding="utf-8")
    return target
