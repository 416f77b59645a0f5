"""What the embedding is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(16384, 128256, 4096, torch.bfloat16)]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def inputs(m: int, v: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """m indices and a table of shape (v, n), standard normal."""
    torch.manual_seed(0)
    table = torch.randn(v, n, device=DEVICE, dtype=dtype)
    return torch.randint(v, (m,), device=DEVICE), table


def torch_version(indices: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """PyTorch's own."""
    return torch.nn.functional.embedding(indices, table)


def bytes_moved(indices: torch.Tensor, table: torch.Tensor) -> int:
    """Each index and its row are read, the row is written."""
    return indices.nbytes + 2 * indices.numel() * table.shape[1] * table.element_size()


def liger(indices: torch.Tensor, table: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Liger's kernel, of its experimental ones."""
    from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction

    return lambda: LigerEmbeddingFunction.apply(table, indices)


def flag_gems(indices: torch.Tensor, table: torch.Tensor) -> Callable[[], torch.Tensor]:
    """FlagGems' kernel, a row a program."""
    from flag_gems.ops import embedding

    return lambda: embedding(table, indices)


EXPERTS = {"Liger embedding": liger, "FlagGems embedding": flag_gems}
