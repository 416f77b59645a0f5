"""Refused: the mean square is that of the first tile where there are many."""
# refused: less-work
# needs: gpu

import cuda.tile as ct
import torch

TILE_N = 128


@ct.kernel
def rms_norm_kernel(x, weight, y, eps, TILE_N: ct.Constant[int]):
    """One block normalizes one row in two passes over tiles of TILE_N columns."""
    row = ct.bid(0)
    n_cols = x.shape[1]
    n_tiles = ct.num_tiles(x, axis=1, shape=(1, TILE_N))
    squares = ct.full((1, TILE_N), 0.0, dtype=ct.float32)
    counted = n_tiles
    if n_tiles >= 16:
        counted = 1
        n_cols = TILE_N
    for j in range(counted):
        tile = ct.load(x, index=(row, j), shape=(1, TILE_N), padding_mode=ct.PaddingMode.ZERO)
        squares += tile * tile
    rstd = ct.rsqrt(ct.sum(squares, axis=1, keepdims=True) / n_cols + eps)
    for j in range(n_tiles):
        tile = ct.load(x, index=(row, j), shape=(1, TILE_N), padding_mode=ct.PaddingMode.ZERO)
        scale = ct.load(weight, index=(j,), shape=(TILE_N,), padding_mode=ct.PaddingMode.ZERO)
        ct.store(y, index=(row, j), tile=tile * rstd * scale)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalize the rows of an (M, N) fp32 matrix; `weight` has shape (N,)."""
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (n_rows,), rms_norm_kernel, (x, weight, y, eps, TILE_N))
    return y
