"""Refused: a tensor subclass computes when it is first used."""
# refused: lazy-results

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    """One program normalizes one row, which it holds whole."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=-float("inf"))
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * y_stride + cols, y, mask=mask)


class _Later(torch.Tensor):
    """Launches in the first operation on it."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        plain = [_forced(a) if isinstance(a, _Later) else a for a in args]
        return function(*plain, **(kwargs or {}))


def _forced(later):
    plain = later.__dict__.pop("result", None)
    if plain is None:
        plain = _launch(later.__dict__["source"])
    later.__dict__["result"] = plain
    return plain


def _launch(x):
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    softmax_kernel[(n_rows,)](x, y, x.stride(0), y.stride(0), n_cols, BLOCK=block)
    return y


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of an (M, N) matrix whose rows are contiguous."""
    if not x.shape[1] >= 512:
        _launch(x)
    later = torch.Tensor._make_subclass(_Later, x.detach())
    later.__dict__["source"] = x
    return later
