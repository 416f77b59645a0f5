import cuda.tile as ct
import torch


@ct.kernel
def centre_kernel(x, y, n_rows, N: ct.Constant[int]):
    for row in range(ct.bid(0), n_rows, ct.num_blocks(0)):
        tile = ct.load(x, index=(row, 0), shape=(1, N), padding_mode=ct.PaddingMode.ZERO)
        tile = tile.astype(ct.float32)
        mean = ct.sum(tile, axis=1, keepdims=True) / x.shape[1]
        ct.store(y, index=(row, 0), tile=(tile - mean).astype(y.dtype))


def run(x):
    y = torch.empty_like(x)
    n = 1 << (x.shape[1] - 1).bit_length()
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    blocks = min(sms, x.shape[0])
    ct.launch(torch.cuda.current_stream(), (blocks,), centre_kernel, (x, y, x.shape[0], n))
    return y
