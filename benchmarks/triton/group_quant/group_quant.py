"""Quantization to fp8 with a scale for each group of columns, in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def group_quant_kernel(x_ptr, quantized_ptr, scale_ptr, group_size, BLOCK: tl.constexpr):
    """One program quantizes one group, which it holds whole; e4m3 ends at 448."""
    group = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < group_size
    x = tl.load(x_ptr + group * group_size + cols, mask=mask, other=0.0).to(tl.float32)
    amax = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10)  # zeros have a scale too
    scale = amax / 448.0
    quantized = tl.clamp(x / scale, -448.0, 448.0)
    tl.store(quantized_ptr + group * group_size + cols, quantized, mask=mask)
    tl.store(scale_ptr + group, scale)


def group_quant(x: torch.Tensor, group_size: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize a contiguous tensor whose last dimension consists of whole groups.

    Returns float8_e4m3fn of its shape and fp32 scales of shape (..., n // group_size), so that x
    is quantized * scale.
    """
    quantized = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    shape = (*x.shape[:-1], x.shape[-1] // group_size)
    scale = torch.empty(shape, dtype=torch.float32, device=x.device)
    n_groups = scale.numel()
    block = triton.next_power_of_2(group_size)  # as tl.arange wants it
    group_quant_kernel[(n_groups,)](x, quantized, scale, group_size, BLOCK=block)
    return quantized, scale
