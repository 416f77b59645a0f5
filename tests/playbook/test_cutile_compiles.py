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
from agent.playbook.trial import TileTrial

ct = pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

pytestmark = pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")


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
@entries
def test_before_compiles(entry: Optimization, tmp_path: Path) -> None:
    """For one generation: what comes of it is compiled for all."""
    module = load(tmp_path / "before.py", entry.before)
    trial = trial_of(entry)
    assert compiled(module, trial.kernel, trial.arguments, "sm_90").startswith(b"\x7fELF")


def trial_of(entry: Optimization) -> TileTrial:
    assert isinstance(entry.trial, TileTrial)
    return entry.trial


def check_after(entry: Optimization, sm: str, folder: Path) -> None:
    trial = trial_of(entry)
    module = load(folder / "after.py", entry.after)
    arguments = trial.arguments_after or trial.arguments
    assert compiled(module, trial.kernel, arguments, sm).startswith(b"\x7fELF")


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
    from cuda.tile.compilation import ListConstraint, ScalarConstraint

    if isinstance(parameter, tuple):
        return array(*parameter)
    if isinstance(parameter, list):
        return ListConstraint(array(*parameter), alias_groups=(), elements_may_alias=False)
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
