"""SiLU of one half of a row times the other half, in cuTile: the gate of a SwiGLU layer."""

import cuda.tile as ct
import torch

BLOCK = 1024


@ct.kernel
def silu_and_mul_kernel(x, y, BLOCK: ct.Constant[int]):
    """One block computes BLOCK columns of one row."""
    row = ct.bid(0)
    columns = ct.bid(1) * BLOCK + ct.arange(BLOCK, dtype=ct.int32)
    gate = ct.gather(x, (row, columns))
    up = ct.gather(x, (row, columns + y.shape[1]))
    gate = gate.astype(ct.float32)
    up = up.astype(ct.float32)
    result = gate / (1.0 + ct.exp(-gate)) * up
    ct.scatter(y, (row, columns), result.astype(y.dtype))


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(x[:, :N]) * x[:, N:] for a matrix of shape (M, 2 * N)."""
    n_rows, n_cols = x.shape[0], x.shape[1] // 2
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    grid = (n_rows, ct.cdiv(n_cols, BLOCK))
    ct.launch(torch.cuda.current_stream(), grid, silu_and_mul_kernel, (x, y, BLOCK))
    return y
