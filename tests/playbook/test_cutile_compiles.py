"""Every cuTile example really compiles, before and after, for GPUs this machine need not have."""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agent.environment import probe
from agent.playbook import for_backend
from agent.playbook.base import Optimization

ct = pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

pytestmark = pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")

F16, F32 = "float16", "float32"
ARGUMENTS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "occupancy-hint": ("softmax_kernel", ((F32, 2), (F32, 2), 1024)),
    "autotune": ("gelu_kernel", ((F32, 2), (F32, 2), 1024)),
    "tile-sizes": ("matmul_kernel", ((F16, 2), (F16, 2), (F16, 2), 64, 64, 64)),
    "store-without-tma": ("scale_kernel", ((F32, 2), (F32, 2), 2.0, 1024)),
    "load-latency": ("row_sum_kernel", ((F32, 2), (F32, 1))),
    "num-ctas": ("matmul_kernel", ((F16, 2), (F16, 2), (F16, 2))),
    "gather-to-load": ("softmax_kernel", ((F32, 2), (F32, 2))),
    "persistent-blocks": ("double_kernel", ((F32, 2), (F32, 2))),
    "grouped-order": ("matmul_kernel", ((F16, 2), (F16, 2), (F16, 2))),
    "token-order": ("double_kernel", ((F32, 2), (F32, 2))),
    "tf32-guard": ("matmul_kernel", ((F32, 2), (F32, 2), (F32, 2))),
    "exp2": ("silu_kernel", ((F16, 2), (F16, 2), 1024)),
    "fast-math": ("normalize_kernel", ((F16, 2), (F16, 2), 1024)),
    "load-without-tma": ("rms_kernel", ((F32, 2), (F32, 2), 1e-6, 1024)),
    "store-latency": ("double_kernel", ((F32, 2), (F32, 2))),
    "worker-warps": ("center_kernel", ((F32, 2), (F32, 2), 1024)),
    "opt-level": ("rows_kernel", ((F32, 2), (F32, 1))),
    "static-shapes": ("scale_kernel", ((F32, 2), (F32, 2), 2.0)),
    "rows-per-block": ("softmax_kernel", ((F32, 2), (F32, 2), 1024)),
    "assume-divisible": ("copy_kernel", ((F32, 1), (F32, 1), "int32", 1024)),
    "check-bounds": ("double_kernel", ((F32, 2), (F32, 2))),
    "slices-per-block": ("scale_kernel", ((F32, 3), (F32, 2), (F32, 3))),
    "dead-parameters": ("negate_kernel", ((F32, 2), (F32, 2), "int32", 1024)),
}
"""Kernel and parameters of each example: (dtype, dimensions) of an array, or a constant; a
string is the type of a scalar. An array's third item are its extents, None for one not static."""
AFTER: dict[str, tuple[Any, ...]] = {
    "static-shapes": ((F32, 2, (None, 4096)), (F32, 2, (None, 4096)), 2.0),
    "assume-divisible": ((F32, 1), (F32, 1), "int32", 1024, 16),
    "check-bounds": ((F32, 2), (F32, 2), False),
    "dead-parameters": ((F32, 2), (F32, 2), 1024),
    "tile-sizes": ((F16, 2), (F16, 2), (F16, 2), 128, 128, 64),
    "persistent-blocks": ((F32, 2), (F32, 2), 4096),
}


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", "0")
    yield


entries = pytest.mark.parametrize("entry", for_backend("cutile"), ids=lambda entry: entry.name)


@entries
def test_after_compiles(entry: Optimization, tmp_path: Path) -> None:
    check_after(entry, "sm_90", tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("sm", ["sm_80", "sm_100"])
@entries
def test_after_compiles_for_other_generations(entry: Optimization, sm: str, tmp_path: Path) -> None:
    check_after(entry, sm, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("sm", ["sm_80", "sm_90", "sm_100"])
@entries
def test_before_compiles(entry: Optimization, sm: str, tmp_path: Path) -> None:
    module = load(tmp_path / "before.py", entry.before)
    assert compiled(module, *ARGUMENTS[entry.name], sm).startswith(b"\x7fELF")


def check_after(entry: Optimization, sm: str, folder: Path) -> None:
    kernel, parameters = ARGUMENTS[entry.name]
    module = load(folder / "after.py", entry.after)
    cubin = compiled(module, kernel, AFTER.get(entry.name, parameters), sm)
    assert cubin.startswith(b"\x7fELF")


def load(path: Path, text: str) -> ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.pop(path.stem, None)
    spec.loader.exec_module(module)
    return module


def compiled(module: ModuleType, kernel: str, parameters: tuple[Any, ...], sm: str) -> bytes:
    from cuda.tile.compilation import CallingConvention, KernelSignature, export_kernel

    constraints = [constraint(p) for p in parameters]
    signature = KernelSignature(constraints, CallingConvention.cutile_python_v2())
    cubin = io.BytesIO()
    export_kernel(getattr(module, kernel), [signature], cubin, gpu_code=sm, output_format="cubin")
    return cubin.getvalue()


def constraint(parameter: Any) -> Any:
    from cuda.tile.compilation import ScalarConstraint

    if isinstance(parameter, tuple):
        return array(*parameter)
    return ScalarConstraint(getattr(ct, parameter)) if isinstance(parameter, str) else parameter


def array(dtype: str, dimensions: int, extents: tuple[int | None, ...] | None = None) -> Any:
    """A contiguous, aligned array whose edges are multiples of 16."""
    from cuda.tile.compilation import ArrayConstraint

    return ArrayConstraint(
        getattr(ct, dtype),
        dimensions,
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=(*[None] * (dimensions - 1), 1),
        stride_divisible_by=(*[16] * (dimensions - 1), 1),
        shape_divisible_by=16,
        shape_constant=extents,
        base_addr_divisible_by=16,
    )
