"""Honest: a program takes two blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def residual_add_kernel(h_ptr, x_ptr, scale, n_elements, BLOCK: tl.constexpr):
    """One program takes two blocks of BLOCK elements."""
    for part in tl.static_range(2):
        offsets = (tl.program_id(0) * 2 + part) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n_elements
        h = tl.load(h_ptr + offsets, mask=mask)
        x = tl.load(x_ptr + offsets, mask=mask)
        tl.store(h_ptr + offsets, h + scale * x, mask=mask)


def residual_add_(h: torch.Tensor, x: torch.Tensor, scale: float = 0.5) -> torch.Tensor:
    """h += scale * x for contiguous tensors of one shape; returns h."""
    n_elements = h.numel()
    grid = (triton.cdiv(n_elements, 2 * BLOCK),)
    residual_add_kernel[grid](h, x, scale, n_elements, BLOCK=BLOCK)
    return h
