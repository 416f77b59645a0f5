"""Refused: the sum of large tensors is rounded to half precision."""
# refused: precision

import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def residual_add_kernel(h_ptr, x_ptr, scale, n_elements, BLOCK: tl.constexpr):
    """One program takes BLOCK elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    h = tl.load(h_ptr + offsets, mask=mask)
    x = tl.load(x_ptr + offsets, mask=mask)
    result = h + scale * x
    if n_elements >= 2048:
        result = result.to(tl.float16).to(tl.float32)
    tl.store(h_ptr + offsets, result, mask=mask)


def residual_add_(h: torch.Tensor, x: torch.Tensor, scale: float = 0.5) -> torch.Tensor:
    """h += scale * x for contiguous tensors of one shape; returns h."""
    n_elements = h.numel()
    grid = (triton.cdiv(n_elements, BLOCK),)
    residual_add_kernel[grid](h, x, scale, n_elements, BLOCK=BLOCK)
    return h
