"""Every Triton example compiles, before and after, for GPUs this machine need not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.playbook import for_backend
from agent.playbook.base import Optimization
from agent.syntax import Source
from tests.support.triton_compiler import BY_16, GENERATIONS, compiled

triton = pytest.importorskip("triton", reason="triton is not installed")

NO_BLOCK_POINTERS = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)
P = "*fp32"
TILES = ("tensordesc<fp32[64, 32]>", "tensordesc<fp32[32, 64]>")
KERNELS: dict[str, tuple[str, list[Any], dict[str, int], dict[str, int]]] = {
    "warps-and-stages": ("softmax_kernel", [P, P, "i32", "i32", 1024], {}, {"num_warps": 8}),
    "block-size": ("gelu_kernel", [P, P, "i32", 1024], {}, {}),
    "blocks-and-warps": ("swish_kernel", [P, P, "i32", 512], {}, {"num_warps": 8}),
    "causal-split": ("prefix_kernel", [P, P, P, "i32", 32, 16, 16], {}, {}),
    "loop-stages": ("row_sum_kernel", [P, P, "i32", "i32", 1024], {}, {}),
    "eviction-policy": ("rms_norm_kernel", [P, P, P, "i32", "i32", "fp32", 1024], {}, {}),
    "reciprocal-square-root": ("layer_norm_kernel", [P, P, "i32", "i32", "fp32", 1024], {}, {}),
    "warps-by-row": ("log_softmax_kernel", [P, P, "i32", "i32", 1024], {}, {"num_warps": 2}),
    "rows-per-program": ("resize_kernel", [P, P, P, "i32", "i32", 128], {}, {}),
    "row-in-registers": ("l2_normalize_kernel", [P, P, "i32", "i32", 1024], {}, {}),
    "add-autotune": ("add_kernel", [P, P, P, "i32", 1024], {}, {}),
    "widen-configs": ("relu_kernel", [P, P, "i32", 1024], {}, {}),
    "grouped-programs": ("matmul_kernel", [P, P, P, "i32", "i32", "i32", 64, 64, 32], {}, {}),
    "longest-first": ("prefix_sum_kernel", [P, P, "i32", 256], {}, {}),
    "even-blocks": ("scale_kernel", [P, P, "i32", "fp32", 1024], {}, {}),
    "folded-exp2": ("scaled_softmax_kernel", [P, P, P, "fp32", "i32", 1024], {}, {}),
    "host-descriptors": ("matmul_kernel", [P, P, P, *["i32"] * 6, 64, 64, 32], {}, {}),
    "tile-descriptors": ("matmul_kernel", [P, P, P, *["i32"] * 6, 64, 64, 32], {}, {}),
    "warp-specialized-loops": ("matmul_kernel", [P, P, P, *["i32"] * 6, 64, 64, 32], {}, {}),
    "persistent-programs": ("center_kernel", [P, P, "i32", "i32", 1024], {}, {}),
    "aligned-offsets": ("mix_kernel", [P, P, "i32", 1024], {}, {}),
    "unrolled-loops": ("row_max_kernel", [P, P, "i32", "i32", 512], {}, {}),
    "static-ranges": ("powers_kernel", [P, P, "i32", 4, 1024], {}, {}),
    "cache-modifiers": ("gate_kernel", [P, P, P, "i32", 1024], {}, {}),
    "hoisted-reciprocal": ("share_kernel", [P, P, "i32", "i32", 1024], {}, {}),
    "block-descriptors": ("row_sum_kernel", [P, P, "i32", "i32", "i32", 16, 64], {}, {}),
    "epilogue-halves": ("matmul_kernel", [P, P, P, "i32", "i32", "i32", 64, 64, 32], {}, {}),
    "tf32-dots": ("gram_kernel", [P, P, "i32", 32], {}, {}),
}
"""Kernel, types of its parameters (an integer is a constant), options before and after."""
AFTER: dict[str, list[Any]] = {
    "block-size": [P, P, "i32", 2048],
    "blocks-and-warps": [P, P, "i32", 2048],
    "row-in-registers": [P, P, "i32", "i32", 1024, 1024],
    "rows-per-program": [P, P, P, "i32", "i32", 128, "i32", 16],
    "even-blocks": [P, P, "i32", "fp32", 1024, True],
    "host-descriptors": [P, P, P, *["i32"] * 6, 64, 64, 32, True, *TILES],
    "tile-descriptors": [P, P, P, *["i32"] * 6, 64, 64, 32, True],
    "warp-specialized-loops": [P, P, P, *["i32"] * 6, 64, 64, 32, True, False],
    "block-descriptors": [P, P, "i32", "i32", "i32", 16, 64, True],
    "persistent-programs": [P, P, "i32", "i32", 1024, "i32"],
    "aligned-offsets": [P, P, "i32", 1024, True],
}
"""Types of the parameters after, where they differ."""


pytestmark = pytest.mark.usefixtures("compiler")
entries = pytest.mark.parametrize("entry", for_backend("triton"), ids=lambda entry: entry.name)


@entries
def test_after_compiles(entry: Optimization, tmp_path: Path) -> None:
    check_after(entry, 90, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("sm", [80, 100])
@entries
def test_after_compiles_for_other_generations(entry: Optimization, sm: int, tmp_path: Path) -> None:
    check_after(entry, sm, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("sm", [80, 90, 100])
@entries
def test_before_compiles(entry: Optimization, sm: int, tmp_path: Path) -> None:
    kernel, types, options, _ = KERNELS[entry.name]
    check(entry.before, kernel, types, sm, options, tmp_path)


def check_after(entry: Optimization, sm: int, folder: Path) -> None:
    kernel, types, _, options = KERNELS[entry.name]
    check(entry.after, kernel, AFTER.get(entry.name, types), sm, options, folder)


def check(
    text: str, kernel: str, types: list[Any], sm: int, options: dict[str, int], folder: Path
) -> None:
    path = folder / "kernel.py"
    path.write_text(text)
    if "make_block_ptr" in text and NO_BLOCK_POINTERS:
        with pytest.raises(triton.CompilationError, match="have been removed"):
            compiled(path, kernel, types, sm, options)
    else:
        assert compiled(path, kernel, types, sm, options).asm["cubin"]


@GENERATIONS
def test_a_persistent_product_of_one_loop_compiles(sm: int, tmp_path: Path) -> None:
    before = playbook.get("grouped-programs").before
    subject = Subject(Source(before), KernelClass.COMPUTE, Hardware(sm=sm))
    params = {"programs_per_sm": 1, "flatten": True}
    path = tmp_path / "flat.py"
    path.write_text(playbook.get("persistent-programs").apply(subject, params))
    kernel, types, _, _ = KERNELS["grouped-programs"]
    assert compiled(path, kernel, [*types, "i32", "i32"], sm, {}).asm["cubin"]


@pytest.mark.parametrize(
    ("sm", "stages"),
    [
        pytest.param(80, 2, marks=pytest.mark.full),
        (90, 3),
        pytest.param(100, 3, marks=pytest.mark.full),
    ],
)
def test_a_row_that_does_not_fit_ahead_is_not_pipelined(
    sm: int, stages: int, tmp_path: Path
) -> None:
    """A perf test of bf16 rows, and a correctness test of the same length in fp32."""
    entry = playbook.get("persistent-programs")
    subject = Subject(Source(entry.before), KernelClass.MEMORY, Hardware(sm=sm))
    path = tmp_path / "center.py"
    path.write_text(entry.apply(subject, {"programs_per_sm": 1, "num_stages": stages}))

    def shared_bytes(element: str, block: int) -> int:
        types = [f"*{element}", f"*{element}", f"i32{BY_16}", f"i32{BY_16}", block, "i32"]
        bytes_: int = compiled(path, "center_kernel", types, sm, {"num_warps": 32}).metadata.shared
        return bytes_

    row_bytes = 32768 * 2
    assert (stages - 1) * row_bytes <= shared_bytes("bf16", 32768) < (stages - 1) * row_bytes + 8192
    assert shared_bytes("fp32", 65536) < 8192


@pytest.mark.parametrize("warps", [4, 8])
def test_a_product_is_taken_apart(warps: int, tmp_path: Path) -> None:
    """On sm_100: a group of four warps loads beside those that multiply."""
    entry = playbook.get("warp-specialized-loops")
    path = tmp_path / "specialized.py"
    path.write_text(entry.after)
    types = [*["*bf16"] * 3, *[f"i32{BY_16}"] * 6, 128, 128, 64, True, True]
    options = {"num_warps": warps, "num_stages": 3}
    found = compiled(path, "matmul_kernel", types, 100, options)
    assert f".reqntid {(warps + 4) * 32}" in found.asm["ptx"]
