"""Correctness and speed of the rms norm, with the fixed config and with the search."""

import pytest
import torch

pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")
import rms_norm_fixed
import rms_norm_tuned

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="cuTile kernels run on an NVIDIA GPU only"
)

BOTH = [rms_norm_fixed, rms_norm_tuned]
# The kernel computes in fp32 and rounds once, an error of half a unit in the last place; one whole
# unit is allowed.
RTOL = {torch.float16: 2**-10, torch.bfloat16: 2**-7}
# Products near zero are subnormal in fp16, and 2**-24 apart.
ATOL = 2**-24


def make_inputs(m, n, dtype):
    """x and a weight of standard normal values, the same on every call."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(m, n, generator=generator)
    weight = torch.randn(n, generator=generator)
    return x.to("cuda", dtype), weight.to("cuda", dtype)


@pytest.mark.parametrize("module", BOTH, ids=lambda module: module.__name__)
@pytest.mark.parametrize("dtype", RTOL, ids=str)
@pytest.mark.parametrize(("m", "n"), [(2, 16), (1000, 1024), (3, 1000), (700, 2500)])
def test_rms_norm_cutile(m, n, dtype, module):
    x, weight = make_inputs(m, n, dtype)
    wide = x.double()
    rstd = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + 1e-6)
    expected = wide * rstd * weight.double()
    for _ in range(2):  # with the search, and after it
        actual = module.rms_norm(x, weight).double()
        torch.testing.assert_close(actual, expected, rtol=RTOL[dtype], atol=ATOL)


def test_rms_norm_cutile_searches_on_the_first_call_only(monkeypatch):
    inputs = make_inputs(*(300, 512), torch.float16)
    rms_norm_tuned.rms_norm(*inputs)

    def fail(*_, **__):
        raise AssertionError("searched again")

    monkeypatch.setattr(rms_norm_tuned, "exhaustive_search", fail)
    rms_norm_tuned.rms_norm(*inputs)


def test_rms_norm_cutile_without_a_search(monkeypatch):
    """The fixed config, bit for bit."""
    monkeypatch.setenv("DISABLE_AUTOTUNE", "1")
    monkeypatch.setattr(rms_norm_tuned, "exhaustive_search", None)
    monkeypatch.setattr(rms_norm_tuned, "_RMS_NORM_CACHE", {})
    actual = rms_norm_tuned.rms_norm(*make_inputs(*(300, 512), torch.float16))
    expected = rms_norm_fixed.rms_norm(*make_inputs(*(300, 512), torch.float16))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("module", BOTH, ids=lambda module: module.__name__)
@pytest.mark.parametrize("shape", [(16384, 4096), (4096, 8192)], ids=str)
def test_perf_rms_norm_cutile(shape, module, tile_bench):
    inputs = make_inputs(*shape, torch.bfloat16)
    tile_bench(lambda: module.rms_norm(*inputs))
