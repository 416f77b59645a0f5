"""Honest: four blocks share a multiprocessor."""
# needs: gpu

import cuda.tile as ct
import torch


@ct.kernel(occupancy=4)
def softmax_kernel(x, y, TILE_N: ct.Constant[int]):
    """One block normalizes one row, which it holds whole."""
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, TILE_N), padding_mode=ct.PaddingMode.NEG_INF)
    numerator = ct.exp(tile - ct.max(tile, axis=1, keepdims=True))
    denominator = ct.sum(numerator, axis=1, keepdims=True)
    ct.store(y, index=(row, 0), tile=numerator / denominator)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of an (M, N) fp32 matrix."""
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    tile_n = 1 << (n_cols - 1).bit_length()  # a tile's dimensions are powers of two
    ct.launch(torch.cuda.current_stream(), (n_rows,), softmax_kernel, (x, y, tile_n))
    return y
