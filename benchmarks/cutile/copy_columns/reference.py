"""What the copy of columns is timed on, and against."""

import torch

CONFIGS = [(16384, 4096, torch.bfloat16)]


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, int, int]:
    """x of shape (m, 3 * n), standard normal; the second n of its columns are wanted."""
    torch.manual_seed(0)
    return torch.randn(m, 3 * n, device="cuda", dtype=dtype), n, n


def torch_version(x: torch.Tensor, first_column: int, n_cols: int) -> torch.Tensor:
    """PyTorch's own."""
    return x[:, first_column : first_column + n_cols].contiguous()


def bytes_moved(x: torch.Tensor, first_column: int, n_cols: int) -> int:  # noqa: ARG001
    """Each element that is wanted is read and written once."""
    return 2 * x.shape[0] * n_cols * x.element_size()
