"""Root-mean-square normalization over the rows of a matrix, in cuTile."""

import cuda.tile as ct
import torch

OCCUPANCY = 1


@ct.kernel(occupancy=OCCUPANCY)
def rms_norm_kernel(x, weight, y, eps, TILE_N: ct.Constant[int]):
    """A block normalizes every num_blocks-th row, which it holds whole in a tile of TILE_N."""
    n_rows, n_cols = x.shape[0], x.shape[1]
    scale = ct.load(weight, index=(0,), shape=(TILE_N,), padding_mode=ct.PaddingMode.ZERO)
    scale = scale.astype(ct.float32)
    for row in range(ct.bid(0), n_rows, ct.num_blocks(0)):
        tile = ct.load(x, index=(row, 0), shape=(1, TILE_N), padding_mode=ct.PaddingMode.ZERO)
        tile = tile.astype(ct.float32)
        rstd = ct.rsqrt(ct.sum(tile * tile, axis=1, keepdims=True) / n_cols + eps)
        result = tile * rstd * scale
        ct.store(y, index=(row, 0), tile=result.astype(y.dtype))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Normalize the last dimension of an (M, N) matrix; `weight` has shape (N,)."""
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    n_sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    grid = (min(n_rows, n_sms * OCCUPANCY),)
    tile_n = 1 << (n_cols - 1).bit_length()  # a tile's dimensions are powers of two
    args = (x, weight, y, eps, tile_n)
    ct.launch(torch.cuda.current_stream(), grid, rms_norm_kernel, args)
    return y
