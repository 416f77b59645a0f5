"""Triton kernels that `tileir apply` has more to do for than to write configs."""

from __future__ import annotations

from tests.tileir.kernels import HEAD

PROJECTION = (
    HEAD
    + """\
@triton.jit
def gate(x):
    return x * tl.sigmoid(x)


@triton.jit
def projection_kernel(
    inp, weight, result, rows, features, depth, in_stride, w_stride, out_stride,
    TILE_R: tl.constexpr, TILE_F: tl.constexpr, TILE_D: tl.constexpr,
):
    r = tl.program_id(0) * TILE_R + tl.arange(0, TILE_R)
    f = tl.program_id(1) * TILE_F + tl.arange(0, TILE_F)
    total = tl.zeros((TILE_R, TILE_F), dtype=tl.float32)
    for start in range(0, depth, TILE_D):
        d = start + tl.arange(0, TILE_D)
        x_mask = (r[:, None] < rows) & (d[None, :] < depth)
        x = tl.load(inp + r[:, None] * in_stride + d[None, :], mask=x_mask, other=0.0)
        w_mask = (d[:, None] < depth) & (f[None, :] < features)
        w = tl.load(weight + d[:, None] * w_stride + f[None, :], mask=w_mask, other=0.0)
        total = tl.dot(x, w, total)
    mask = (r[:, None] < rows) & (f[None, :] < features)
    tl.store(result + r[:, None] * out_stride + f[None, :], gate(total), mask=mask)


def project(x, w):
    rows, depth = x.shape
    features = w.shape[1]
    y = torch.empty((rows, features), device=x.device, dtype=torch.float32)
    R, F = 64, 128
    grid = (triton.cdiv(rows, R), triton.cdiv(features, F))
    projection_kernel[grid](
        x, w, y, rows, features, depth, x.stride(0), w.stride(0), y.stride(0),
        TILE_R=R, TILE_F=F, TILE_D=32, num_warps=8,
    )
    return y
"""
)
"""A product with a SiLU in a helper, launched plainly."""
BLOCKS = (
    HEAD
    + """\
@triton.jit
def mix_kernel(
    left, right, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):
    row, col = tl.program_id(0) * M, tl.program_id(1) * N
    a_at = tl.make_block_ptr(left, (m, k), (k, 1), (row, 0), (M, K), (1, 0))
    b_at = tl.make_block_ptr(right, (k, n), (n, 1), (0, col), (K, N), (1, 0))
    total = tl.zeros((M, N), dtype=tl.float32)
    for _ in range(0, k, K):
        a = tl.load(a_at, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_at, boundary_check=(0, 1), padding_option="zero")
        total = tl.dot(a, b, total)
        a_at = tl.advance(a_at, (0, K))
        b_at = tl.advance(b_at, (K, 0))
    rows, cols = row + tl.arange(0, M), col + tl.arange(0, N)
    mask = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(out + rows[:, None] * n + cols[None, :], total, mask=mask)


def mix(x, w):
    (m, k), n = x.shape, w.shape[1]
    y = torch.empty((m, n), device=x.device, dtype=torch.float32)
    mix_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](x, w, y, m, n, k, M=32, N=32, K=32)
    return y
"""
)
"""A product through block pointers, which Triton 3.9 has no more."""
SHIFTED = PROJECTION.replace("range(0, depth, TILE_D)", "range(8, depth, TILE_D)")
"""Its loop begins in the middle of a tile."""
