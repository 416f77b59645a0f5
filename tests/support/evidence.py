"""Projects with a kernel and a perf test, and compile evidence of them."""

from __future__ import annotations

from pathlib import Path

from agent.evidence.model import Artifact
from agent.harness.compiling.artifacts import Evidence, Wanted, collect
from agent.harness.processes.worker_session import Checkout
from tests.support.repo import write
from tests.support.warm_python import warm_interpreter

TIMEOUT_S = 120.0

TEST = """\
import torch
from kernel import run


def test_perf_run(tile_bench):
    tile_bench(lambda: run())
"""
CUTILE = """\
import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def scale_kernel(x, y, TILE: ct.Constant[int]):
    tile = ct.load(x, index=(ct.bid(0),), shape=(TILE,))
    ct.store(y, index=(ct.bid(0),), tile=2 * tile)


def run():
    x = torch.ones(2**20, device="cuda")
    y = torch.empty_like(x)
    grid = (ct.cdiv(x.shape[0], TILE),)
    ct.launch(torch.cuda.current_stream(), grid, scale_kernel, (x, y, TILE))
"""
CUTILE_MATMUL = """\
import cuda.tile as ct
import torch

T = 64


@ct.kernel
def matmul_kernel(a, b, c):
    total = ct.full((T, T), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(T, T))):
        total = ct.mma(ct.load(a, (0, k), (T, T)), ct.load(b, (k, 0), (T, T)), total)
    ct.store(c, index=(0, 0), tile=ct.astype(total, c.dtype))


def run(dtype=torch.float32):
    a, b, c = (torch.ones(T, T, device="cuda", dtype=dtype) for _ in range(3))
    ct.launch(torch.cuda.current_stream(), (1,), matmul_kernel, (a, b, c))
"""
TRITON = """\
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


def run():
    x = torch.ones(2**20, device="cuda")
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    scale_kernel[grid](x, y, x.numel(), BLOCK=BLOCK)
    return y
"""


def evidence(
    folder: Path,
    text: str,
    *targets: int,
    test: str = TEST,
    python: str = "",
    timeout_s: float = TIMEOUT_S,
    **wanted: object,
) -> Evidence:
    """Compile what the test launches, with the tests' own interpreter where none is named."""
    write(folder, {"kernel.py": text, "test_kernel.py": test})
    checkout = Checkout(folder, (folder,), "kernel.py")
    settings = Wanted(
        "cutile" if "cuda.tile" in text else "triton",
        targets or (90,),
        python=python or warm_interpreter(),
        has_gpu=False,
        **wanted,  # type: ignore[arg-type]
    )
    return collect(checkout, ("test_kernel.py",) if test else (), settings, timeout_s)


def only(found: Evidence) -> Artifact:
    """The one artifact."""
    (artifact,) = found.artifacts
    assert not found.failures
    return artifact
