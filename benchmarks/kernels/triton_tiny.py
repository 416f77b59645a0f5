"""A softmax of some microseconds in Triton. PAD turns of a loop multiply by one."""

import torch
import triton
import triton.language as tl

PAD = 0


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, one, pad, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    for _ in range(pad):
        numerator = numerator * one
    tl.store(y_ptr + row * n_cols + cols, numerator / tl.sum(numerator, axis=0), mask=mask)


def make(device="cuda"):
    """A launch on fixed inputs."""
    x = torch.randn(256, 1024, device=device, dtype=torch.bfloat16)
    y = torch.empty_like(x)

    def launch():
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], 1.0, PAD, BLOCK=1024)

    return launch
