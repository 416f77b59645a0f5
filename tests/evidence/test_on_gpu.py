"""What is said without a GPU, held against what a GPU says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.environment import probe
from agent.evidence.cubin import resources
from agent.evidence.occupancy import occupancy
from agent.harness.compiling.artifacts import Evidence, Wanted, collect
from agent.harness.processes.script import run_tool
from agent.harness.processes.worker_session import Checkout
from tests.support.evidence import CUTILE, CUTILE_MATMUL, TEST, TRITON
from tests.support.repo import write
from tile_agent_pytest.artifacts import find_tool

ENVIRONMENT = probe()
GPU = ENVIRONMENT.gpu

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPU is None, reason="needs an NVIDIA GPU, and NVML sees none"),
]
cutile = pytest.mark.skipif(
    ENVIRONMENT.versions["cuda-tile"] is None, reason="cuda-tile is not installed"
)
VIEWS = (
    "torch.empty(4096)",
    "torch.empty(4097)[1:]",
    "torch.empty(100, 70)",
    "torch.empty(128, 64).T",
    "torch.empty(64, 64)[::2, ::2]",
    "torch.empty(1, 512)",
    "torch.empty(512, 1)",
    "torch.empty(1)",
    "torch.empty(1, 1)",
    "torch.empty(64).expand(16, 64)",
    "torch.empty(2, 3, 4, 5, 16)",
    "torch.empty(2, 2, 2, 2, 2, 16)",
    "torch.empty(256, dtype=torch.bfloat16)[8:]",
    "torch.empty(256, dtype=torch.int64)",
    "torch.empty(256, dtype=torch.bool)",
)


def compiled(folder: Path, text: str, *, has_gpu: bool) -> Evidence:
    assert GPU is not None
    write(folder, {"kernel.py": text, "test_kernel.py": TEST})
    language = "cutile" if "cuda.tile" in text else "triton"
    wanted = Wanted(language, (GPU.sm,), python=sys.executable, has_gpu=has_gpu)
    return collect(Checkout(folder, (folder,), "kernel.py"), ("test_kernel.py",), wanted, 300.0)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(CUTILE, marks=cutile, id="cutile"),
        pytest.param(CUTILE_MATMUL, marks=cutile, id="cutile-matmul"),
        pytest.param(TRITON, id="triton"),
    ],
)
def test_the_launch_is_the_same_that_runs(text: str, tmp_path: Path) -> None:
    real = compiled(tmp_path / "real", text, has_gpu=True)
    pretended = compiled(tmp_path / "pretended", text, has_gpu=False)
    assert not real.failures
    assert [r.launch for r in real.results] == [r.launch for r in pretended.results]
    assert real.digests == pretended.digests
    assert len(real.digests) == 1


@cutile
@pytest.mark.parametrize("made", VIEWS)
def test_arrays_are_specialized_as_at_a_launch(made: str) -> None:
    import torch

    from tile_agent_pytest.compile_cutile import Compiler
    from tile_agent_pytest.record_cutile import ConstraintRules

    compiler = Compiler.installed()

    def kernel(x):  # type: ignore[no-untyped-def]
        pass

    with torch.device("cuda"):
        tensor = eval(made)
    decorated = compiler.tile.kernel(kernel)
    (theirs,) = compiler.from_arguments(decorated, (tensor,)).parameters
    leaf = SimpleNamespace(constant=False, scalar=None, array=None, list=None)
    assert ConstraintRules(compiler).constraint(tensor, leaf) == theirs


@cutile
def test_scalars_are_specialized_as_at_a_launch() -> None:
    from tile_agent_pytest.compile_cutile import Compiler
    from tile_agent_pytest.record_cutile import ConstraintRules

    compiler = Compiler.installed()

    def kernel(a, b, c):  # type: ignore[no-untyped-def]
        pass

    arguments = (3, 2.5, True)
    theirs = compiler.from_arguments(compiler.tile.kernel(kernel), arguments).parameters
    leaf = SimpleNamespace(constant=False, scalar=None, array=None, list=None)
    rules = ConstraintRules(compiler)
    assert tuple(rules.constraint(value, leaf) for value in arguments) == theirs


DRIVER = """
import ctypes, json, sys
import torch

torch.cuda.init()
torch.zeros(1, device="cuda")
cuda = ctypes.CDLL("libcuda.so.1")

def check(code):
    assert code == 0, code

found = []
for path, threads, dynamic in json.loads(sys.argv[1]):
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuModuleLoad(ctypes.byref(module), path.encode()))
    check(cuda.cuModuleEnumerateFunctions(ctypes.byref(function), 1, module))
    value, blocks = ctypes.c_int(), ctypes.c_int()
    check(cuda.cuFuncGetAttribute(ctypes.byref(value), 4, function))
    check(cuda.cuFuncSetAttribute(function, 8, dynamic))
    check(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(blocks), function, threads, ctypes.c_size_t(dynamic)))
    found.append([value.value, blocks.value])
print(json.dumps(found))
"""
"""Registers, and blocks a multiprocessor, as the driver has them."""


def test_occupancy_is_the_drivers(tmp_path: Path) -> None:
    """Over kernels that are limited by registers, by shared memory and by warps."""
    import triton

    from tile_agent_pytest.stand_in_driver import gpu_target

    assert GPU is not None
    write(tmp_path, {"kernel.py": SOURCES})
    sys.path.insert(0, str(tmp_path))
    try:
        import kernel  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    cases: list[list[Any]] = []
    ours = []
    for number, (block, stages, warps) in enumerate(CASES):
        source = triton.compiler.ASTSource(
            kernel.kernel, dict(kernel.SIGNATURE), {(3,): block}, kernel.ALIGNED
        )
        options = {"num_warps": warps, "num_stages": stages}
        made = triton.compile(source, target=gpu_target(GPU.sm), options=options)
        path = tmp_path / f"{number}.cubin"
        path.write_bytes(made.asm["cubin"])
        cuobjdump = find_tool("cuobjdump")
        assert cuobjdump is not None
        needs = resources(
            run_tool([cuobjdump, "--dump-resource-usage", str(path)], 60),
            run_tool([cuobjdump, "-elf", str(path)], 60),
            GPU.sm,
        )
        needs = replace(needs, shared_bytes=needs.shared_bytes + made.metadata.shared)
        assert needs.threads == 32 * warps
        found = occupancy(GPU.sm, needs.registers, needs.threads, needs.shared_bytes)
        assert found is not None
        ours.append([needs.registers, found.blocks])
        cases.append([str(path), needs.threads, made.metadata.shared])
    end = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(cases)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
    )
    assert end.returncode == 0, end.stderr
    assert json.loads(end.stdout) == ours


CASES = [(64, 2, 4), (64, 4, 4), (128, 2, 4), (128, 3, 8), (32, 2, 1), (32, 2, 2), (64, 2, 8)]
SOURCES = """\
import triton
import triton.language as tl

SIGNATURE = {"a": "*fp16", "c": "*fp32", "K": "i32", "T": "constexpr"}
ALIGNED = {(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]],
           (2,): [["tt.divisibility", 16]]}


@triton.jit
def kernel(a, c, K, T: tl.constexpr):
    i = tl.arange(0, T)
    total = tl.zeros((T, T), dtype=tl.float32)
    for k in range(0, K, T):
        x = tl.load(a + i[:, None] * K + (k + i)[None, :])
        y = tl.load(a + (k + i)[:, None] * T + i[None, :])
        total = tl.dot(x, y, total)
    tl.store(c + i[:, None] * T + i[None, :], total)
"""
