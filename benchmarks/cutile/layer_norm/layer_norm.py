"""Layer normalization over the rows of a matrix, in cuTile."""

import cuda.tile as ct
import torch

TILE_N = 1024


@ct.kernel
def layer_norm_kernel(x, weight, bias, y, eps, TILE_N: ct.Constant[int]):
    """One block normalizes one row in three passes over tiles of TILE_N columns."""
    row = ct.bid(0)
    n_cols = x.shape[1]
    n_tiles = ct.num_tiles(x, axis=1, shape=(1, TILE_N))

    total = ct.full((1, TILE_N), 0.0, dtype=ct.float32)
    for j in range(n_tiles):
        tile = ct.load(x, index=(row, j), shape=(1, TILE_N), padding_mode=ct.PaddingMode.ZERO)
        total += tile.astype(ct.float32)
    mean = ct.sum(total, axis=1, keepdims=True) / n_cols

    squares = ct.full((1, TILE_N), 0.0, dtype=ct.float32)
    for j in range(n_tiles):
        tile = ct.load(x, index=(row, j), shape=(1, TILE_N), padding_mode=ct.PaddingMode.ZERO)
        columns = j * TILE_N + ct.arange(TILE_N, dtype=ct.int32)
        centered = ct.where(columns < n_cols, tile.astype(ct.float32) - mean, 0.0)
        squares += centered * centered
    rstd = ct.rsqrt(ct.sum(squares, axis=1, keepdims=True) / n_cols + eps)

    for j in range(n_tiles):
        tile = ct.load(x, index=(row, j), shape=(1, TILE_N), padding_mode=ct.PaddingMode.ZERO)
        scale = ct.load(weight, index=(j,), shape=(TILE_N,), padding_mode=ct.PaddingMode.ZERO)
        shift = ct.load(bias, index=(j,), shape=(TILE_N,), padding_mode=ct.PaddingMode.ZERO)
        result = (tile.astype(ct.float32) - mean) * rstd
        result = result * scale.astype(ct.float32) + shift.astype(ct.float32)
        ct.store(y, index=(row, j), tile=result.astype(y.dtype))


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    """Normalize the last dimension of an (M, N) matrix; `weight` and `bias` have shape (N,)."""
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    arguments = (x, weight, bias, y, eps, TILE_N)
    ct.launch(torch.cuda.current_stream(), (n_rows,), layer_norm_kernel, arguments)
    return y
