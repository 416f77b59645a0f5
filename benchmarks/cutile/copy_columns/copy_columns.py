"""Copies some columns of a matrix into a matrix of their own, in cuTile.

So are the queries taken out of a projection that holds queries, keys and values side by side.
"""

import cuda.tile as ct
import torch

BLOCK = 1024


@ct.kernel
def copy_columns_kernel(x, y, first_column, BLOCK: ct.Constant[int]):
    """One block copies BLOCK columns of one row."""
    row = ct.bid(0)
    columns = ct.bid(1) * BLOCK + ct.arange(BLOCK, dtype=ct.int32)
    tile = ct.gather(x, (row, first_column + columns))
    ct.scatter(y, (row, columns), tile)


def copy_columns(x: torch.Tensor, first_column: int, n_cols: int) -> torch.Tensor:
    """x[:, first_column : first_column + n_cols], contiguous."""
    n_rows = x.shape[0]
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    grid = (n_rows, ct.cdiv(n_cols, BLOCK))
    ct.launch(torch.cuda.current_stream(), grid, copy_columns_kernel, (x, y, first_column, BLOCK))
    return y
