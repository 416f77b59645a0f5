"""Correctness and speed of the rope, with the fixed config and with the search."""

import pytest
import torch

pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")
import rope_fixed
import rope_tuned

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="cuTile kernels run on an NVIDIA GPU only"
)

BOTH = [rope_fixed, rope_tuned]
# The kernel computes in fp32 and rounds once, an error of half a unit in the last place; one whole
# unit is allowed.
RTOL = {torch.float16: 2**-10, torch.bfloat16: 2**-7}
# The two products may nearly cancel: each is rounded once in fp32, at magnitudes below 32.
ATOL = 2**-18


def make_inputs(batches, heads, positions, dim, dtype):
    """x of standard normal values, the same on every call, and the angles of its positions."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batches, heads, positions, dim, generator=generator).to("cuda", dtype)
    frequency = 10000.0 ** (-torch.arange(0, dim, 2, device="cuda") / dim)
    angle = torch.arange(positions, device="cuda")[:, None] * frequency
    return x, angle.cos(), angle.sin()


@pytest.mark.parametrize("module", BOTH, ids=lambda module: module.__name__)
@pytest.mark.parametrize("dtype", RTOL, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1, 16), (2, 3, 100, 64), (1, 8, 513, 128)], ids=str)
def test_rope_cutile(shape, dtype, module):
    """Twice in place: a search that touched the array would show in the first result."""
    x, cos, sin = make_inputs(*shape, dtype)
    for _ in range(2):
        low, high = x.double().chunk(2, dim=-1)
        expected = torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)
        actual = module.rope_(x, cos, sin)
        assert actual is x
        torch.testing.assert_close(x.double(), expected, rtol=RTOL[dtype], atol=ATOL)


def test_rope_cutile_searches_on_the_first_call_only(monkeypatch):
    inputs = make_inputs(*(1, 2, 64, 32), torch.float16)
    rope_tuned.rope_(*inputs)

    def fail(*_, **__):
        raise AssertionError("searched again")

    monkeypatch.setattr(rope_tuned, "exhaustive_search", fail)
    rope_tuned.rope_(*inputs)


def test_rope_cutile_without_a_search(monkeypatch):
    """The fixed config, bit for bit."""
    monkeypatch.setenv("DISABLE_AUTOTUNE", "1")
    monkeypatch.setattr(rope_tuned, "exhaustive_search", None)
    monkeypatch.setattr(rope_tuned, "_ROPE_CACHE", {})
    actual = rope_tuned.rope_(*make_inputs(*(1, 2, 64, 32), torch.float16))
    expected = rope_fixed.rope_(*make_inputs(*(1, 2, 64, 32), torch.float16))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("module", BOTH, ids=lambda module: module.__name__)
@pytest.mark.parametrize("shape", [(4, 32, 4096, 128), (1, 32, 2048, 128)], ids=str)
def test_perf_rope_cutile(shape, module, tile_bench):
    inputs = make_inputs(*shape, torch.bfloat16)
    tile_bench(lambda: module.rope_(*inputs))
