"""What the quantization of groups is timed on, and against."""

from collections.abc import Callable

import torch

CONFIGS = [(16384, 7168, torch.bfloat16)]
GROUP_SIZE = 128
LARGEST = 448.0  # that e4m3 holds
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

Quantized = tuple[torch.Tensor, torch.Tensor]


def inputs(m: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor]:
    """x of shape (m, n), standard normal."""
    torch.manual_seed(0)
    return (torch.randn(m, n, device=DEVICE, dtype=dtype),)


def torch_version(x: torch.Tensor, group_size: int = GROUP_SIZE) -> Quantized:
    """PyTorch's own, in fp32, or in fp64 where x is."""
    groups = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (-1, group_size))
    scale = groups.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / LARGEST
    quantized = (groups / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return quantized.view(x.shape), scale.squeeze(-1)


def bytes_moved(x: torch.Tensor) -> int:
    """x is read; a byte for each element and four for each group are written."""
    return x.nbytes + x.numel() + 4 * x.numel() // GROUP_SIZE


def flag_gems_act(x: torch.Tensor) -> Callable[[], Quantized]:
    """FlagGems' kernel after DeepSeek's, 32 rows of a group a program; amax is 1e-4 at least."""
    from flag_gems.ops import act_quant_triton

    return lambda: act_quant_triton(x, GROUP_SIZE)


def flag_gems_group(x: torch.Tensor) -> Callable[[], Quantized]:
    """FlagGems' kernel after vLLM's, a group and a warp a program; amax is 1e-10 at least.

    The type is named since FlagGems may otherwise take fp32, as it does for GPUs before Hopper.
    """
    from flag_gems.ops import per_token_group_quant_fp8

    return lambda: per_token_group_quant_fp8(x, GROUP_SIZE, dtype=torch.float8_e4m3fn)


EXPERTS = {
    "FlagGems act_quant_triton": flag_gems_act,
    "FlagGems per_token_group_quant_fp8": flag_gems_group,
}
