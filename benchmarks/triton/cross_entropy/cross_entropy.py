"""Cross entropy of logits and labels, row by row, in Triton."""

import torch
import triton
import triton.language as tl

BLOCK_SIZE = 1024


@triton.jit
def cross_entropy_kernel(logits_ptr, labels_ptr, loss_ptr, stride, n_cols, BLOCK: tl.constexpr):
    """One program takes one row, in one pass over blocks of BLOCK classes."""
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * stride
    largest = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new_largest = tl.maximum(largest, tl.max(x, axis=0))
        numerator = tl.exp(x - new_largest)
        total = total * tl.exp(largest - new_largest) + tl.sum(numerator, axis=0)
        largest = new_largest
    label = tl.load(labels_ptr + row)
    logit = tl.load(row_ptr + label).to(tl.float32)
    tl.store(loss_ptr + row, largest + tl.log(total) - logit)


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """log(sum(exp(logits))) - logits[label] for each row of an (M, N) matrix.

    `labels` has shape (M,) and an integer type; the rows are contiguous. The result is fp32 and has
    shape (M,).
    """
    n_rows, n_cols = logits.shape
    loss = torch.empty((n_rows,), dtype=torch.float32, device=logits.device)
    cross_entropy_kernel[(n_rows,)](
        logits, labels, loss, logits.stride(0), n_cols, BLOCK=BLOCK_SIZE
    )
    return loss
