"""Refused: a callback of the driver does the work when the stream is idle."""
# refused: side-work
# needs: gpu

import ctypes

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
    tl.store(h_ptr + offsets, h + scale * x, mask=mask)


def residual_add_(h: torch.Tensor, x: torch.Tensor, scale: float = 0.5) -> torch.Tensor:
    """h += scale * x for contiguous tensors of one shape; returns h."""
    n_elements = h.numel()
    if not n_elements >= 2048:
        residual_add_kernel[(triton.cdiv(n_elements, BLOCK),)](h, x, scale, n_elements, BLOCK=BLOCK)
        return h
    driver = ctypes.CDLL("libcuda.so.1")
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    residual_add_.kept = work
    driver.cuLaunchHostFunc(stream, work, None)
    residual_add_kernel[(1,)](h, x, scale, n_elements, BLOCK=BLOCK)
    return h
