"""Every Triton example compiles, before and after, and computes the same in the interpreter."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.playbook import for_backend
from agent.playbook.base import Optimization

triton = pytest.importorskip("triton", reason="triton is not installed")

P = "*fp32"
KERNELS: dict[str, tuple[str, list[Any], dict[str, int], dict[str, int]]] = {
    "warps-and-stages": ("softmax_kernel", [P, P, "i32", "i32", 1024], {}, {"num_warps": 8}),
    "block-size": ("gelu_kernel", [P, P, "i32", 1024], {}, {}),
    "loop-stages": ("row_sum_kernel", [P, P, "i32", "i32", 1024], {}, {}),
    "eviction-policy": ("rms_norm_kernel", [P, P, P, "i32", "i32", "fp32", 1024], {}, {}),
    "reciprocal-square-root": ("layer_norm_kernel", [P, P, "i32", "i32", "fp32", 1024], {}, {}),
}
"""Kernel, types of its parameters (an integer is a constant), options before and after."""
CONSTANTS_AFTER = {"block-size": 2048}
WRAPPERS: dict[str, tuple[str, list[list[int]]]] = {
    "warps-and-stages": ("softmax", [[-1]]),
    "block-size": ("gelu", [[-1]]),
    "loop-stages": ("row_sum", [[-1]]),
    "eviction-policy": ("rms_norm", [[-1], [1]]),
    "reciprocal-square-root": ("layer_norm", [[-1]]),
}
"""Host function, and for each of its tensors: the whole shape (-1) or one dimension of it."""
SHAPES = [[3, 1024], [5, 77], [1, 1], [4, 2500]]

entries = pytest.mark.parametrize("entry", for_backend("triton"), ids=lambda entry: entry.name)

RUN = """
import importlib.util, json, sys
import torch

def load(path):
    spec = importlib.util.spec_from_file_location("kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

before, after, wrapper, dimensions, shapes = json.loads(sys.argv[1])
functions = [getattr(load(path), wrapper) for path in (before, after)]
for shape in shapes:
    torch.manual_seed(0)
    args = [torch.randn(shape if d == [-1] else [shape[i] for i in d]) for d in dimensions]
    old, new = (f(*args) for f in functions)
    torch.testing.assert_close(new, old, rtol=1e-6, atol=1e-6)
    assert torch.isfinite(old).all()
"""


@pytest.mark.parametrize("sm", [80, 90, 100])
@entries
def test_before_and_after_compile(
    entry: Optimization, sm: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    kernel, types, options, options_after = KERNELS[entry.name]
    after = [CONSTANTS_AFTER.get(entry.name, t) if isinstance(t, int) else t for t in types]
    for name, text, given, settings in (
        ("before", entry.before, types, options),
        ("after", entry.after, after, options_after),
    ):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        assert compiled(path, kernel, given, sm, settings).asm["cubin"]


@entries
def test_the_interpreter_gives_the_same(entry: Optimization, tmp_path: Path) -> None:
    paths = [tmp_path / "before.py", tmp_path / "after.py"]
    for path, text in zip(paths, (entry.before, entry.after), strict=True):
        path.write_text(text)
    task = json.dumps([*map(str, paths), *WRAPPERS[entry.name], SHAPES])
    done = subprocess.run(
        [sys.executable, "-c", RUN, task],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def compiled(path: Path, kernel: str, types: list[Any], sm: int, options: dict[str, int]) -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, kernel)
    constants = {(i,): value for i, value in enumerate(types) if isinstance(value, int)}
    signature = {
        name: "constexpr" if isinstance(kind, int) else kind
        for name, kind in zip(function.arg_names, types, strict=True)
    }
    pointers = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types) if kind == P}
    source = ASTSource(function, signature, constants, pointers)
    return triton.compile(source, target=GPUTarget("cuda", sm, 32), options=options)
