"""What processes tell of a GPU becomes shares of kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.evidence.peaks import PEAKS
from agent.profiled import CommandProfile, profile_of

H200 = PEAKS["H200"]
NORM = """\
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets))
"""
PRODUCT = """\
import triton
import triton.language as tl


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(c_ptr + offsets, tl.dot(tl.load(a_ptr + offsets), tl.load(b_ptr + offsets)))
"""


def launches(file: Path, kernel: str, count: int, *tensors: Any, symbol: str = "") -> Any:
    return {
        "file": str(file),
        "kernel": kernel,
        "symbol": symbol or kernel,
        "tensors": [list(tensor) for tensor in tensors],
        "count": count,
        "wall_ms": 1.0,
    }


def told(kinds: list[Any], gpu: dict[str, float], gave_way: bool = False) -> Any:
    times = {name: {"count": 1, "total_ms": ms} for name, ms in gpu.items()}
    return {
        "launches": kinds,
        "gpu": times,
        "on_gpu": True,
        "gave_way": gave_way,
        "main": "train.py",
        "callable": sorted({kind["file"] for kind in kinds}),
    }


def profiled(root: Path, *messages: Any) -> CommandProfile:
    return profile_of(messages, "python train.py", root, H200)


@pytest.fixture
def norm(tmp_path: Path) -> Path:
    (tmp_path / "norm.py").write_text(NORM)
    return tmp_path / "norm.py"


def test_shares_are_of_all_that_the_gpu_does(tmp_path: Path, norm: Path) -> None:
    message = told(
        [launches(norm, "norm_kernel", 10)], {"norm_kernel": 3.0, "gemm": 6.0, "Memcpy HtoD": 1.0}
    )
    found = profiled(tmp_path, message, message)
    (kernel,) = found.kernels
    assert (kernel.launches, kernel.total_ms, found.total_ms) == (20, 6.0, 20.0)
    assert kernel.share == pytest.approx(0.3)
    assert kernel.whole_if_halved == pytest.approx(1 / 0.85)
    assert found.others == (("gemm", pytest.approx(0.6)), ("Memcpy HtoD", pytest.approx(0.1)))
    assert found.files == {"norm.py": kernel.share}


def test_the_roof_is_the_memorys_by_the_bytes_of_the_launches(tmp_path: Path, norm: Path) -> None:
    bytes_each = 48 * 10**6  # 10 us at 4.8 TB/s
    tensors = [("float32", (1200, 10000), bytes_each)] * 2
    kinds = [launches(norm, "norm_kernel", 5, *tensors)]
    (kernel,) = profiled(tmp_path, told(kinds, {"norm_kernel": 0.2})).kernels
    assert kernel.least_ms == pytest.approx(5 * 0.02)
    assert kernel.of_the_roof == pytest.approx(0.5)


def test_the_roof_of_a_product_is_the_tensor_cores(tmp_path: Path) -> None:
    file = tmp_path / "product.py"
    file.write_text(PRODUCT)
    n = 4096
    tensors = [("bfloat16", (n, n), 2 * n * n)] * 3
    kinds = [launches(file, "product_kernel", 1, *tensors)]
    (kernel,) = profiled(tmp_path, told(kinds, {"product_kernel": 0.3})).kernels
    assert kernel.least_ms == pytest.approx(2 * n**3 / 989.4e12 * 1e3)
    odd = [launches(file, "product_kernel", 1, *tensors[:2])]
    (unknown,) = profiled(tmp_path, told(odd, {"product_kernel": 0.3})).kernels
    assert unknown.of_the_roof is None


def test_the_names_that_cutile_makes_are_those_of_its_functions(tmp_path: Path) -> None:
    file = tmp_path / "norm.py"
    kinds = [launches(file, "norm", 4)]
    found = profiled(tmp_path, told(kinds, {"norm_K1_A2f": 1.0, "norm_K1_A2h": 2.0, "x_K": 1.0}))
    assert found.kernels[0].total_ms == pytest.approx(3.0)
    assert found.others == (("x_K", pytest.approx(0.25)),)


def test_a_name_of_two_files_is_divided_by_launches(tmp_path: Path) -> None:
    kinds = [
        launches(tmp_path / "a.py", "kernel", 1),
        launches(tmp_path / "b.py", "kernel", 3),
        launches(tmp_path / "b.py", "other", 1, symbol="other_bf16"),
    ]
    found = profiled(tmp_path, told(kinds, {"kernel": 4.0, "other_bf16": 1.0}))
    assert {(k.file, k.kernel): k.total_ms for k in found.kernels} == {
        ("a.py", "kernel"): 1.0,
        ("b.py", "kernel"): 3.0,
        ("b.py", "other"): 1.0,
    }
    assert [*found.files] == ["b.py", "a.py"]
    assert any("2 files have a kernel kernel" in note for note in found.notes)


def test_installed_files_are_not_the_users(tmp_path: Path) -> None:
    file = tmp_path / ".venv/lib/python3.12/site-packages/liger/norm.py"
    found = profiled(tmp_path, told([launches(file, "norm_kernel", 1)], {"norm_kernel": 1.0}))
    assert not found.kernels[0].own
    assert not found.files


def test_what_ran_beside_the_commands_own_profiler_is_said_to_be_missing(tmp_path: Path) -> None:
    kinds = [launches(tmp_path / "a.py", "kernel", 1)]
    found = profiled(tmp_path, told(kinds, {"kernel": 1.0}, gave_way=True))
    assert any("profiles itself" in note for note in found.notes)
