"""Cases for TileGym's own operations."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as functional
from torch import Tensor

from tests.tile_cpu import tilegym_references as references
from tests.tile_cpu.tilegym_wheel import ALL, Case, half, internal, normal, operation

core = partial(operation, "core")
FP16 = 2e-2
ATTENTION_SCALE = 64**-0.5


def angles(length: int, width: int) -> tuple[Tensor, Tensor]:
    half_width = normal(length, width // 2)
    full = torch.cat((half_width, half_width), -1)
    return full.cos(), full.sin()


def rope_inputs() -> list[Tensor]:
    cos, sin = angles(16, 64)
    return [normal(2, 4, 16, 64), normal(2, 2, 16, 64), cos[None], sin[None]]


def normalized_inputs(rows: int, width: int) -> list[Tensor]:
    return [normal(rows, width), normal(width), normal(width + 1)[:width]]


def queries(length: int = 128, heads: int = 2, width: int = 64) -> Tensor:
    return half(1, heads, length, width)


def qkv() -> list[Tensor]:
    return [queries(), queries(length=127 + 1), queries().flip(2)]


def latent_inputs(length: int) -> list[Tensor]:
    return [half(1, 16, 64), half(1, 16, 32), half(1, length, 64), half(1, length, 32)]


def delta_inputs(length: int) -> list[Tensor]:
    shape = (1, length, 2, 64)
    return [
        functional.normalize(normal(*shape), dim=-1),
        functional.normalize(normal(*shape).flip(1), dim=-1),
        normal(*shape).flip(2),
        -normal(1, length, 2).abs(),
        torch.sigmoid(normal(1, length, 2)),
    ]


def lengths() -> Tensor:
    return torch.tensor([128], dtype=torch.int32, device="cuda")


def position(first: int) -> Tensor:
    return torch.tensor([first], dtype=torch.int32, device="cuda")


def fused_swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return core("get_swiglu")()(gate, up)


def labels() -> Tensor:
    return torch.tensor([1, 5, 7, 99, 0], device="cuda")


def expert_ids() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 4, (16, 2), dtype=torch.int32, generator=generator).to("cuda")


def sorted_experts(ids: Tensor) -> list[Tensor]:
    align = internal("ops.cutile.moe_align_block", "moe_align_block_size")
    tokens, owners, count, *_ = align(ids, 8, 4)
    used = int(count)
    return [tokens[:used].sort().values, owners[: used // 8], count]


SOFTMAX = [
    Case(f"softmax {name}", core("softmax", **options), partial(torch.softmax, dim=-1), inputs)
    for inputs in [lambda: [normal(5, 1000)]]
    for name, options in {
        "gather": {},
        "tma": {"use_tma": True},
        "chunked": {"use_chunked": True},
        "multi-wave": {"use_multi_wave": True},
    }.items()
]

RMS_NORM = [
    Case(
        f"rms_norm {mode}",
        lambda x, w, mode=mode: core("rms_norm", mode=mode)(x, (512,), w, 1e-6),
        references.rms_norm,
        lambda: [normal(6, 512), normal(512)],
        gradients=ALL if mode is None else 0,
    )
    for mode in (None, "static_persistent", "multi_wave_reload", "multi_wave_cached")
]

NORMS = [
    Case(
        "layer_norm",
        lambda x, w, b: core("layer_norm")(x, 1, 2, w, b, 1e-5),
        references.layer_norm,
        lambda: normalized_inputs(6, 512),
    ),
    Case(
        "layer_norm_legacy",
        lambda x, w, b: core("layer_norm_legacy")(x, (500,), w, b, 1e-5),
        references.layer_norm,
        lambda: normalized_inputs(6, 500),
    ),
    Case(
        "persistent_layer_norm",  # it rounds its result to bf16
        lambda x, w, b: core("persistent_layer_norm")(x, (512,), w, b, 1e-5)[0],
        references.layer_norm,
        lambda: normalized_inputs(6, 512),
        tolerance=2**-7,
    ),
]

ACTIVATIONS = [
    Case(
        "silu_and_mul",
        core("silu_and_mul"),
        references.silu_and_mul,
        lambda: [normal(5, 500)],
        gradients=ALL,
    ),
    Case(
        "swiglu",
        fused_swiglu,
        references.swiglu,
        lambda: [normal(2, 5, 100), normal(2, 5, 101)[..., :100].contiguous()],
        gradients=ALL,
    ),
    Case(
        "relu",
        internal("ops.cutile.activation.relu", "relu"),
        functional.relu,
        lambda: [normal(5, 100)],
    ),
    *(
        Case(
            f"gelu {kind}",  # its erf is an approximation, good to three digits
            internal("ops.cutile.activation.gelu", "gelu", approximate=kind),
            partial(functional.gelu, approximate=kind),
            lambda: [normal(5, 100)],
            tolerance=2e-3,
            gradients=ALL,
        )
        for kind in ("none", "tanh")
    ),
    *(
        Case(
            f"geglu {kind}",
            internal("ops.cutile.activation.geglu", "geglu", approximate=kind),
            lambda x, kind=kind: x[..., :64] * functional.gelu(x[..., 64:], approximate=kind),
            lambda: [normal(5, 128)],
            tolerance=4e-3,
            gradients=ALL,
        )
        for kind in ("none", "tanh")
    ),
    Case(
        "dropout of nothing",
        lambda x: core("dropout", p=0.0)(x, 5),
        lambda x: x,
        lambda: [normal(700)],
    ),
    Case("rope", core("apply_rope_base"), references.rope, rope_inputs),
]

PRODUCTS = [
    *(
        Case(
            f"{name} {kind}",
            core(name, **options),
            torch.matmul,
            inputs,
            tolerance=FP16,
        )
        for name, inputs in {
            "matmul": lambda: [half(100, 64), half(64, 48)],
            "bmm": lambda: [half(2, 100, 64), half(2, 64, 48)],
        }.items()
        for kind, options in {
            "persistent": {"static_persistent": True},
            "plain": {"static_persistent": False},
        }.items()
    ),
    Case("transpose", core("transpose"), torch.t, lambda: [normal(64, 48)]),
    Case(
        "group_gemm",
        lambda a, b, c, d: core("group_gemm")([a, c], [b, d]),
        lambda a, b, c, d: [a @ b, c @ d],
        lambda: [half(100, 64), half(64, 48), half(30, 64), half(64, 48)],
        tolerance=FP16,
    ),
    Case(
        "linear_gluact_linear",
        lambda x, a, b, c: core("linear_gluact_linear")(x, a, b, c),
        lambda x, a, b, c: (functional.silu(x @ a.T) * (x @ b.T)) @ c.T,
        lambda: [half(30, 64) / 8, half(48, 64), half(48, 64).flip(0), half(48, 48) / 8],
        tolerance=FP16,
    ),
    Case(
        "fused_linear_cross_entropy",
        lambda x, w: core("fused_linear_cross_entropy")(x, w, labels()),
        lambda x, w: functional.cross_entropy(x @ w.T, labels()),
        lambda: [normal(5, 32), normal(100, 32)],
    ),
    Case(
        "moe_align_block_size",
        sorted_experts,
        lambda ids: references.aligned_experts(ids, 8, 4),
        lambda: [expert_ids()],
        tolerance=0.0,
    ),
]

ATTENTION = [
    Case("fmha", core("fmha", is_causal=False), references.attention, qkv, FP16),
    Case("fmha causal", core("fmha"), references.causal_attention, qkv, FP16),
    Case(
        "fmha with gradients",
        lambda q, k, v: internal("ops.cutile.attention", "tile_fmha_with_backward")(
            q, k, v, ATTENTION_SCALE, True
        ),
        references.causal_attention,
        qkv,
        tolerance=3e-2,
        gradients=ALL,
    ),
    Case("fmha_variant", core("fmha_variant"), references.causal_attention, qkv, FP16),
    Case(
        "fmha_varlen",
        lambda q, k, v: core("fmha_varlen", q_lens=lengths(), kv_lens=lengths())(q, k, v),
        references.causal_attention,
        qkv,
        FP16,
    ),
    Case(
        "swa_attention",
        lambda q, k, v: core("swa_attention")(q, k, v, 1000),
        references.causal_attention,
        qkv,
        FP16,
    ),
    Case(
        "gemma_attention",
        core("gemma_attention", scaling=ATTENTION_SCALE),
        references.causal_attention,
        qkv,
        FP16,
    ),
    Case(
        "gemma_attention_decode",
        core("gemma_attention_decode", scaling=ATTENTION_SCALE),
        references.attention,
        lambda: [queries(1, heads=4), queries(), queries().flip(2)],
        FP16,
    ),
    Case(
        "fmha_decode",
        lambda q, k, v: core("fmha_decode")(q, k, v, ATTENTION_SCALE),
        references.attention,
        lambda: [queries(1, heads=4), queries(), queries().flip(2)],
        FP16,
    ),
    Case(
        "mla",
        lambda q, k, v, q_pe, k_pe: core("mla")(q, k, v, q_pe, k_pe, True, 96**-0.5),
        references.latent_attention,
        lambda: [*qkv(), queries(width=32), queries(heads=1, width=32)],
        FP16,
    ),
    Case(
        "mla_decoding",
        lambda *inputs: core("mla_decoding")(*inputs, 96**-0.5)[0],
        references.latent_decode,
        lambda: latent_inputs(128),
        FP16,
    ),
    Case(
        "mla_decoding_split_kv",
        lambda *inputs: core("mla_decoding_split_kv")(*inputs, 96**-0.5),
        references.latent_decode,
        lambda: latent_inputs(256),
        FP16,
    ),
    Case(
        "attention_sink",
        lambda *inputs: core("attention_sink", start_q=position(0))(*inputs),
        references.sink_attention,
        lambda: [half(1, 128, 2, 2, 64), half(1, 128, 2, 64), half(1, 128, 2, 64).flip(1), half(4)],
        FP16,
    ),
    Case(
        "attention_sink_decode",
        lambda *inputs: core("attention_sink_decode", start_q=position(127))(*inputs),
        references.sink_attention,
        lambda: [half(1, 1, 2, 2, 64), half(1, 128, 2, 64), half(1, 128, 2, 64).flip(1), half(4)],
        FP16,
    ),
    Case(
        "chunk_gated_delta_rule",
        lambda *inputs: core("chunk_gated_delta_rule")(*inputs)[0],
        references.gated_delta_rule,
        lambda: delta_inputs(64),
        FP16,
    ),
    *(
        Case(
            f"recurrent_gated_delta_rule {length}",
            lambda *inputs: core("recurrent_gated_delta_rule")(*inputs)[0],
            references.gated_delta_rule,
            lambda length=length: delta_inputs(length),
        )
        for length in (1, 8)
    ),
]

CASES = [*SOFTMAX, *RMS_NORM, *NORMS, *ACTIVATIONS, *PRODUCTS, *ATTENTION]
