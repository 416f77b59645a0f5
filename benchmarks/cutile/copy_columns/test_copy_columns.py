"""Correctness and speed of the copy of columns."""

import pytest
import torch

pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")
from copy_columns import copy_columns
from reference import CONFIGS, inputs, torch_version

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="cuTile kernels run on an NVIDIA GPU only"
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("m", "n"), [(1, 16), (3, 1024), (4, 1000), (5, 2500)])
def test_copy_columns_cutile(m, n, dtype):
    arguments = inputs(m, n, dtype)
    assert torch.equal(copy_columns(*arguments), torch_version(*arguments))


@pytest.mark.parametrize("first_column", [0, 1, 7, 100])
def test_copy_columns_cutile_from_any_column(first_column):
    x, _, _ = inputs(3, 500, torch.float16)
    actual = copy_columns(x, first_column, 1100)
    assert torch.equal(actual, torch_version(x, first_column, 1100))


@pytest.mark.parametrize(("m", "n", "dtype"), CONFIGS, ids=str)
def test_perf_copy_columns_cutile(m, n, dtype, tile_bench):
    arguments = inputs(m, n, dtype)
    tile_bench(lambda: copy_columns(*arguments))
