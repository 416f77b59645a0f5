"""Cases for the operations that TileGym keeps for other libraries."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from tests.tile_cpu import tilegym_references as references
from tests.tile_cpu.tilegym_core import FP16, angles, labels, normalized_inputs, rope_inputs
from tests.tile_cpu.tilegym_wheel import ALL, Case, half, normal, operation

liger = partial(operation, "liger")
unsloth = partial(operation, "unsloth")
flashinfer = partial(operation, "flashinfer")

FP8 = 2**-3
"""Rounding to three mantissa bits is off by 2**-4 of the value at most."""


def pair(*shape: int) -> list[Tensor]:
    return [normal(*shape), normal(*shape).flip(-1)]


def probabilities(*shape: int) -> list[Tensor]:
    return [torch.softmax(x, -1) for x in pair(*shape)]


def log_probabilities(*shape: int) -> list[Tensor]:
    return [torch.log_softmax(x, -1) for x in pair(*shape)]


def fp8(rows: int, columns: int) -> Tensor:
    return normal(rows, columns).to(torch.float8_e4m3fn)


def dequantized(quantized: Tensor, scale: Tensor, group: int = 128) -> Tensor:
    return quantized.double() * scale.double().repeat_interleave(group, -1)


def block_product(a_scale: Tensor, b_scale: Tensor) -> Tensor:
    a = dequantized(fp8(64, 256), a_scale)
    return a @ dequantized(fp8(128, 256), b_scale.repeat_interleave(128, 0)).T


def masked_product(a: Tensor, b: Tensor) -> list[Tensor]:
    rows = torch.tensor([30, 100], dtype=torch.int32, device="cuda")
    product = flashinfer("masked_bmm")(a, b, rows)
    return [product[0, :30], product[1]]


def ragged_product(a: Tensor, b: Tensor) -> Tensor:
    starts = torch.tensor([0, 30, 100], dtype=torch.int32, device="cuda")
    return flashinfer("ragged_bmm")(a, b, starts, 70)


def gated_backward(name: str, activation: Any) -> Case:
    return Case(
        f"unsloth {name}",
        unsloth(name),
        partial(references.gated_backward, activation),
        lambda: [normal(10, 100), *pair(10, 100)],
    )


def loss_inputs() -> list[Tensor]:
    return [normal(5, 32), normal(100, 32), normal(5, 32).flip(0), normal(100, 32).flip(0)]


LIGER = [
    Case("liger rope", liger("rope"), references.rope, rope_inputs),
    *(
        case
        for width in (1024, 1000)
        for case in (
            Case(
                f"liger swiglu {width}",
                liger("swiglu"),
                references.swiglu,
                partial(pair, 5, width),
                gradients=ALL,
            ),
            Case(
                f"liger relu_squared {width}",
                liger("relu_squared"),
                lambda x: functional.relu(x) ** 2,
                lambda width=width: [normal(5, width)],
                gradients=ALL,
            ),
            Case(
                f"liger tvd {width}",
                liger("tvd"),
                references.total_variation,
                partial(probabilities, 5, width),
            ),
            Case(
                f"liger rms_norm {width}",
                lambda x, w: liger("rms_norm")(x, w, 1e-6),
                references.rms_norm,
                lambda width=width: [normal(5, width), normal(width)],
                gradients=ALL,
            ),
        )
    ),
    *(
        Case(
            f"liger softmax {width}",
            liger("softmax"),
            partial(torch.softmax, dim=-1),
            lambda width=width: [normal(2, width)],
            gradients=ALL,
        )
        for width in (1000, 33000)
    ),
    Case(
        "liger geglu",
        liger("geglu"),
        references.geglu_tanh,
        partial(pair, 5, 100),
        gradients=ALL,
    ),
    Case(
        "liger sparsemax",
        liger("sparsemax"),
        references.sparsemax,
        lambda: [normal(5, 100)],
        gradients=ALL,
    ),
    Case(
        "liger layer_norm",
        lambda x, w, b: liger("layer_norm")(x, w, b, 1e-5),
        references.layer_norm,
        lambda: normalized_inputs(6, 200),
        gradients=ALL,
    ),
    Case(
        "liger group_norm",
        lambda x, w, b: liger("group_norm")(x, 8, 4, w, b),
        lambda x, w, b: functional.group_norm(x, 4, w, b, 1e-5),
        lambda: [normal(2, 8, 20), normal(8), normal(9)[:8]],
        gradients=ALL,
    ),
    Case(
        "liger dyt",
        liger("dyt"),
        references.dynamic_tanh,
        lambda: [normal(6, 200), normal(1), normal(200), normal(201)[:200]],
        gradients=ALL,
    ),
    Case(
        "liger kl_div",
        liger("kl_div"),
        partial(functional.kl_div, reduction="batchmean"),
        lambda: [log_probabilities(5, 100)[0], probabilities(5, 100)[1]],
        gradients=1,
    ),
    Case(
        "liger kl_div none",
        liger("kl_div", reduction="none"),
        partial(functional.kl_div, reduction="none"),
        lambda: [log_probabilities(5, 100)[0], probabilities(5, 100)[1]],
    ),
    Case("liger jsd", liger("jsd"), references.jensen_shannon, partial(log_probabilities, 5, 100)),
    Case(
        "liger cross_entropy",
        lambda x: liger("cross_entropy")(x, labels()),
        lambda x: functional.cross_entropy(x, labels()),
        lambda: [normal(5, 100)],
        gradients=ALL,
    ),
    Case(
        "liger fused_add_rms_norm",
        liger("fused_add_rms_norm"),
        references.add_rms_norm,
        lambda: [*pair(5, 100), normal(100)],
        gradients=ALL,
    ),
    Case(
        "liger modulated_rms_norm",
        liger("modulated_rms_norm"),
        references.modulated_rms_norm,
        lambda: [normal(5, 100), normal(100), *pair(5, 100)],
        gradients=ALL,
    ),
    Case(
        "liger poly_norm",
        liger("poly_norm"),
        references.poly_norm,
        lambda: [normal(5, 100), normal(3), normal(1)],
        tolerance=1e-3,
        gradients=ALL,
    ),
    Case(
        "liger multi_token_attention",
        lambda scores, weight: liger("multi_token_attention", padding=1)(scores, weight),
        references.multi_token_attention,
        lambda: [normal(2, 4, 16, 16), normal(4, 4, 3, 3)],
        gradients=ALL,
    ),
    Case(
        "liger fused_linear_cross_entropy",
        lambda x, w: liger("fused_linear_cross_entropy")(x, w, labels()),
        lambda x, w: functional.cross_entropy(x @ w.T, labels()),
        lambda: loss_inputs()[:2],
    ),
    Case(
        "liger fused_linear_jsd",
        liger("fused_linear_jsd"),
        references.linear_jensen_shannon,
        loss_inputs,
    ),
]

UNSLOTH = [
    Case("unsloth swiglu", unsloth("swiglu_fg"), references.swiglu, partial(pair, 2, 5, 100)),
    Case(
        "unsloth geglu exact",
        unsloth("geglu_exact_forward"),
        references.geglu,
        partial(pair, 2, 5, 100),
    ),
    Case(
        "unsloth geglu approx",
        unsloth("geglu_approx_forward"),
        references.geglu_tanh,
        partial(pair, 2, 5, 100),
    ),
    gated_backward("swiglu_bwd", functional.silu),
    gated_backward("geglu_exact_backward", functional.gelu),
    gated_backward("geglu_approx_backward", partial(functional.gelu, approximate="tanh")),
    Case(
        "unsloth rms_layernorm",
        unsloth("rms_layernorm"),
        references.rms_norm,
        lambda: [normal(2, 5, 100), normal(100)],
        gradients=1,
    ),
    Case(
        "unsloth layernorm",
        lambda x, w, b: unsloth("layernorm")(x, w, b, 1e-5),
        references.layer_norm,
        lambda: normalized_inputs(10, 100),
        gradients=1,
    ),
    *(
        Case(
            f"unsloth cross_entropy_loss {words}",
            lambda x: unsloth("cross_entropy_loss")(x, labels()[None]),
            lambda x: functional.cross_entropy(x[0], labels()),
            lambda words=words: [normal(1, 5, words)],
            gradients=ALL,
        )
        for words in (100, 66000)
    ),
    Case(
        "unsloth rope_embedding",
        unsloth("rope_embedding"),
        references.rope_heads_last,
        lambda: [normal(2, 16, 4, 64), *angles(16, 64)],
    ),
    Case(
        "unsloth rope_embedding_qk",
        unsloth("rope_embedding_qk"),
        references.rope,
        lambda: [normal(2, 4, 16, 64), normal(2, 2, 16, 64), *angles(16, 64)],
    ),
    Case(
        "unsloth act_quant",
        lambda x: dequantized(*unsloth("act_quant")(x, 128)),
        lambda x: x,
        lambda: [normal(6, 256)],
        tolerance=FP8,
    ),
    Case(
        "unsloth weight_dequant",  # to bf16
        lambda scale: unsloth("weight_dequant")(fp8(128, 256), scale),
        lambda scale: dequantized(fp8(128, 256), scale),
        lambda: [normal(1, 2).abs()],
        tolerance=2**-7,
    ),
    Case(
        "unsloth w8a8_block_fp8_matmul",
        lambda s, t: unsloth("w8a8_block_fp8_matmul")(
            fp8(64, 256), fp8(128, 256), s, t, [128, 128]
        ),
        block_product,
        lambda: [normal(64, 2).abs(), normal(1, 2).abs()],
    ),
]

CORE = [
    Case(
        "w8a8_block_fp8_matmul",
        lambda s, t: operation(
            "core",
            "w8a8_block_fp8_matmul",
            block_size=[128, 128],
            output_dtype=torch.float16,
        )(fp8(64, 256), fp8(128, 256), s, t),
        block_product,
        lambda: [normal(64, 2).abs(), normal(1, 2).abs()],
        tolerance=FP16,
    ),
]

FLASHINFER = [
    Case(
        "flashinfer gemm_alpha_beta",
        lambda a, b, c: flashinfer("gemm_alpha_beta", alpha=2.0, beta=0.5)(a, b, c.clone()),
        lambda a, b, c: 2 * a @ b.T + 0.5 * c,
        lambda: [half(100, 64), half(48, 64), half(100, 48)],
        tolerance=FP16,
    ),
    Case(
        "flashinfer masked_bmm",
        masked_product,
        lambda a, b: [(a[0] @ b[0])[:30], a[1] @ b[1]],
        lambda: [half(2, 100, 64), half(2, 64, 48)],
        tolerance=FP16,
    ),
    Case(
        "flashinfer ragged_bmm",
        ragged_product,
        lambda a, b: torch.cat((a[:30] @ b[0].T, a[30:] @ b[1].T)),
        lambda: [half(100, 64), half(2, 48, 64)],
        tolerance=FP16,
    ),
    *(
        Case(
            f"flashinfer per_token_group_quant_8bit {name}",
            lambda x, options=options: dequantized(
                *flashinfer("per_token_group_quant_8bit", **options)(x, 64), group=64
            ),
            lambda x: x,
            lambda: [normal(6, 128)],
            tolerance=FP8,
        )
        for name, options in {
            "by rows": {},
            "by columns": {"column_major_scales": True},
        }.items()
    ),
]

CASES = [*CORE, *LIGER, *UNSLOTH, *FLASHINFER]
