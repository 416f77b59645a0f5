"""Root-mean-square normalization over the rows of a matrix, in cuTile."""

import cuda.tile as ct
import torch


@ct.kernel
def rms_norm_kernel(x, weight, y, eps, TILE_N: ct.Constant[int]):
    """One block normalizes one row, which it holds whole in a tile of TILE_N columns."""
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, TILE_N), padding_mode=ct.PaddingMode.ZERO)
    tile = tile.astype(ct.float32)
    mean_square = ct.sum(tile * tile, axis=1, keepdims=True) / x.shape[1]
    scale = ct.load(weight, index=(0,), shape=(TILE_N,), padding_mode=ct.PaddingMode.ZERO)
    result = tile * ct.rsqrt(mean_square + eps) * scale.astype(ct.float32)
    ct.store(y, index=(row, 0), tile=result.astype(y.dtype))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalize the last dimension of an (M, N) matrix; `weight` has shape (N,)."""
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    tile_n = 1 << (n_cols - 1).bit_length()  # a tile's dimensions are powers of two
    ct.launch(torch.cuda.current_stream(), (n_rows,), rms_norm_kernel, (x, weight, y, eps, tile_n))
    return y
