"""Row softmax in Triton. PAD further programs repeat the first rows: wasted loads."""

import torch
import triton
import triton.language as tl

PAD = 0


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0) % n_rows
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n_cols + cols, numerator / tl.sum(numerator, axis=0), mask=mask)


def make(device="cuda"):
    """A launch on fixed inputs."""
    x = torch.randn(16384, 4096, device=device, dtype=torch.bfloat16)
    y = torch.empty_like(x)

    def launch():
        softmax_kernel[(x.shape[0] + PAD,)](x, y, x.shape[0], x.shape[1], BLOCK=4096)

    return launch
