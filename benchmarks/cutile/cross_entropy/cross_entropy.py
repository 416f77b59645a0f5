"""Cross entropy of logits and labels, row by row, in cuTile."""

import math

import cuda.tile as ct
import torch

TILE_N = 1024


@ct.kernel
def cross_entropy_kernel(logits, labels, loss, TILE_N: ct.Constant[int]):
    """One block takes one row, in one pass over tiles of TILE_N classes."""
    row = ct.bid(0)
    largest = ct.full((1, 1), -math.inf, dtype=ct.float32)
    total = ct.full((1, 1), 0.0, dtype=ct.float32)
    for j in range(ct.num_tiles(logits, axis=1, shape=(1, TILE_N))):
        tile = ct.load(
            logits, index=(row, j), shape=(1, TILE_N), padding_mode=ct.PaddingMode.NEG_INF
        )
        tile = tile.astype(ct.float32)
        new_largest = ct.maximum(largest, ct.max(tile, axis=1, keepdims=True))
        numerator = ct.exp(tile - new_largest)
        total = total * ct.exp(largest - new_largest) + ct.sum(numerator, axis=1, keepdims=True)
        largest = new_largest
    label = ct.gather(labels, (row,))
    logit = ct.gather(logits, (row, label)).astype(ct.float32)
    result = largest + ct.log(total) - logit
    ct.store(loss, index=(row,), tile=ct.reshape(result, (1,)))


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """log(sum(exp(logits))) - logits[label] for each row of an (M, N) matrix.

    `labels` has shape (M,) and an integer type. The result is fp32 and has shape (M,).
    """
    n_rows = logits.shape[0]
    loss = torch.empty((n_rows,), dtype=torch.float32, device=logits.device)
    arguments = (logits, labels, loss, TILE_N)
    ct.launch(torch.cuda.current_stream(), (n_rows,), cross_entropy_kernel, arguments)
    return loss
