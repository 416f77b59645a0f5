import cuda.tile as ct
import torch

ROWS, COLUMNS, DEPTH = 16, 64, 128


@ct.kernel
def few_rows_kernel(a, b, c):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((ROWS, COLUMNS), dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(ROWS, DEPTH))):
        left = ct.load(a, (row, k), (ROWS, DEPTH), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, (k, column), (DEPTH, COLUMNS), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(c, index=(row, column), tile=total.astype(c.dtype))


def run(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(a.shape[0], ROWS), ct.cdiv(b.shape[1], COLUMNS))
    ct.launch(torch.cuda.current_stream(), grid, few_rows_kernel, (a, b, c))
    return c
