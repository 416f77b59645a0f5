import cuda.tile as ct
import torch


@ct.kernel
def row_norm_kernel(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, N), padding_mode=ct.PaddingMode.ZERO)
    tile = tile.astype(ct.float32)
    square = ct.sum(tile * tile, axis=1, keepdims=True) / x.shape[1]
    ct.store(y, index=(row, 0), tile=(tile * ct.rsqrt(square + 1e-6)).astype(y.dtype))


def run(x):
    y = torch.empty_like(x)
    n = 1 << (x.shape[1] - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), row_norm_kernel, (x, y, n))
    return y
