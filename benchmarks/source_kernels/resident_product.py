import cuda.tile as ct
import torch

Const = ct.Constant[int]


@ct.kernel
def product_kernel(a, b, c, ROWS: Const, COLUMNS: Const, DEPTH: Const):
    across = ct.cdiv(c.shape[1], COLUMNS)
    total = ct.cdiv(c.shape[0], ROWS) * across
    for tile in range(ct.bid(0), total, ct.num_blocks(0)):
        i, j = tile // across, tile % across
        acc = ct.zeros((ROWS, COLUMNS), dtype=ct.float32)
        for k in range(ct.num_tiles(a, axis=1, shape=(ROWS, DEPTH))):
            left = ct.load(a, index=(i, k), shape=(ROWS, DEPTH), padding_mode=ct.PaddingMode.ZERO)
            right = ct.load(
                b, index=(k, j), shape=(DEPTH, COLUMNS), padding_mode=ct.PaddingMode.ZERO
            )
            acc = ct.mma(left, right, acc)
        ct.store(c, index=(i, j), tile=acc.astype(c.dtype))


def run(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    rows, columns, depth = 64, 64, 64
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    tiles = ct.cdiv(a.shape[0], rows) * ct.cdiv(b.shape[1], columns)
    grid = (min(sms, tiles), 1, 1)
    args = (a, b, c, rows, columns, depth)
    ct.launch(torch.cuda.current_stream(), grid, product_kernel, args)
    return c
