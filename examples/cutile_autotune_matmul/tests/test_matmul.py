"""Correctness and speed of the matrix multiplication, with the fixed config and with the search."""

import pytest
import torch

pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")
import matmul_fixed
import matmul_tuned

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="cuTile kernels run on an NVIDIA GPU only"
)

BOTH = [matmul_fixed, matmul_tuned]
# The kernel computes in fp32 and rounds once, an error of half a unit in the last place; one whole
# unit is allowed.
RTOL = {torch.float16: 2**-10, torch.bfloat16: 2**-7}
# The fp32 sum of K products of about one: an error of 2**-24 at each addition, times four because
# tensor cores may cut off instead of rounding.
ATOL_PER_K = 2**-22


def make_inputs(m, n, k, dtype):
    """Standard normal values, the same on every call."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(m, k, generator=generator)
    b = torch.randn(k, n, generator=generator)
    return a.to("cuda", dtype), b.to("cuda", dtype)


@pytest.mark.parametrize("module", BOTH, ids=lambda module: module.__name__)
@pytest.mark.parametrize("dtype", RTOL, ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (100, 70, 45), (520, 264, 1000)])
def test_matmul_cutile(m, n, k, dtype, module):
    a, b = make_inputs(m, n, k, dtype)
    expected = a.double() @ b.double()
    for _ in range(2):  # with the search, and after it
        actual = module.matmul(a, b).double()
        torch.testing.assert_close(actual, expected, rtol=RTOL[dtype], atol=ATOL_PER_K * k)


def test_matmul_cutile_searches_on_the_first_call_only(monkeypatch):
    inputs = make_inputs(*(256, 256, 256), torch.float16)
    matmul_tuned.matmul(*inputs)

    def fail(*_, **__):
        raise AssertionError("searched again")

    monkeypatch.setattr(matmul_tuned, "exhaustive_search", fail)
    matmul_tuned.matmul(*inputs)


def test_matmul_cutile_without_a_search(monkeypatch):
    """The fixed config, bit for bit."""
    monkeypatch.setenv("DISABLE_AUTOTUNE", "1")
    monkeypatch.setattr(matmul_tuned, "exhaustive_search", None)
    monkeypatch.setattr(matmul_tuned, "_MATMUL_CACHE", {})
    actual = matmul_tuned.matmul(*make_inputs(*(256, 256, 256), torch.float16))
    expected = matmul_fixed.matmul(*make_inputs(*(256, 256, 256), torch.float16))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("module", BOTH, ids=lambda module: module.__name__)
@pytest.mark.parametrize(
    "shape", [(4096, 4096, 4096), (512, 4096, 4096), (64, 4096, 4096)], ids=str
)
def test_perf_matmul_cutile(shape, module, tile_bench):
    inputs = make_inputs(*shape, torch.bfloat16)
    tile_bench(lambda: module.matmul(*inputs))
