"""What the operations of TileGym compute, in plain torch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as functional
from torch import Tensor


def rotate(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def rope(*inputs: Tensor) -> list[Tensor]:
    *rotated, cos, sin = inputs
    return [x * cos.unsqueeze(-3) + rotate(x) * sin.unsqueeze(-3) for x in rotated]


def rope_heads_last(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos[:, None] + rotate(x) * sin[:, None]


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return unit_rms(x) * weight


def unit_rms(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return rms_norm(x + residual, weight), x + residual


def modulated_rms_norm(x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return rms_norm(x, weight) * (1 + scale) + shift


def poly_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return sum(weight[i] * unit_rms(x ** (3 - i)) for i in range(3)) + bias


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


def dynamic_tanh(x: Tensor, alpha: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return torch.tanh(alpha * x) * gamma + beta


def silu_and_mul(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return functional.silu(gate) * up


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(gate) * up


def geglu(gate: Tensor, up: Tensor) -> Tensor:
    return functional.gelu(gate) * up


def geglu_tanh(gate: Tensor, up: Tensor) -> Tensor:
    return functional.gelu(gate, approximate="tanh") * up


def gated_backward(activation, upstream, gate, up):
    """What unsloth's backward kernels leave in place of their inputs: the result, and gradients of
    the second and the first factor."""
    gate = gate.detach().requires_grad_()
    (slope,) = torch.autograd.grad(activation(gate), gate, upstream * up)
    active = activation(gate.detach())
    return active * up, upstream * active, slope


def sparsemax(x: Tensor) -> Tensor:
    ordered = x.sort(-1, descending=True).values
    excess = ordered.cumsum(-1) - 1
    place = torch.arange(1, x.shape[-1] + 1, device=x.device)
    support = (place * ordered > excess).sum(-1, keepdim=True)
    return functional.relu(x - excess.gather(-1, support - 1) / support)


def jensen_shannon(x: Tensor, y: Tensor) -> Tensor:
    """Of log-probabilities, mean over rows."""
    middle = (0.5 * x.exp() + 0.5 * y.exp()).log()
    terms = 0.5 * y.exp() * (y - middle) + 0.5 * x.exp() * (x - middle)
    return terms.sum() / x.shape[0]


def linear_jensen_shannon(x: Tensor, w: Tensor, y: Tensor, v: Tensor) -> Tensor:
    return jensen_shannon(torch.log_softmax(x @ w.T, -1), torch.log_softmax(y @ v.T, -1))


def multi_token_attention(scores: Tensor, weight: Tensor) -> Tensor:
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    probabilities = torch.softmax(scores.masked_fill(~seen, -math.inf), -1)
    return functional.conv2d(probabilities, weight, padding=1).masked_fill(~seen, 0.0)


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    return (p - q).abs().sum() / 2 / p.shape[0]


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    return functional.scaled_dot_product_attention(q, k, v)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def latent_attention(q: Tensor, k: Tensor, v: Tensor, q_pe: Tensor, k_pe: Tensor) -> Tensor:
    k_pe = k_pe.expand(-1, k.shape[1], -1, -1)
    return causal_attention(torch.cat((q, q_pe), -1), torch.cat((k, k_pe), -1), v)


def latent_decode(q: Tensor, q_pe: Tensor, kv: Tensor, k_pe: Tensor) -> Tensor:
    scale = (q.shape[-1] + q_pe.shape[-1]) ** -0.5
    scores = (q @ kv.transpose(-1, -2) + q_pe @ k_pe.transpose(-1, -2)) * scale
    return torch.softmax(scores, -1) @ kv


def sink_attention(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor) -> Tensor:
    """Causal from the end; one more logit a head takes probability and gives no value."""
    batch, length, heads, groups, _ = q.shape
    scores = torch.einsum("bqhgd,bkhd->bhgqk", q, k) * 0.125
    seen = torch.ones(length, k.shape[1], dtype=torch.bool, device=q.device)
    scores = scores.masked_fill(~seen.tril(k.shape[1] - length), -math.inf)
    sink = sinks.reshape(1, heads, groups, 1, 1).expand(batch, -1, -1, length, -1)
    weights = torch.softmax(torch.cat((scores, sink), -1), -1)[..., :-1]
    return torch.einsum("bhgqk,bkhd->bqhgd", weights, v).reshape(batch, length, -1)


def gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    steps = []
    for t in range(q.shape[1]):
        state = state * g[:, t, :, None, None].exp()
        seen = (state * k[:, t, :, :, None]).sum(-2)
        change = (v[:, t] - seen) * beta[:, t, :, None]
        state = state + k[:, t, :, :, None] * change[:, :, None, :]
        steps.append((state * (q[:, t] * q.shape[-1] ** -0.5)[..., None]).sum(-2))
    return torch.stack(steps, 1)


def aligned_experts(ids: Tensor, block: int, experts: int) -> list[Tensor]:
    """Tokens sorted by expert, each expert's padded to whole blocks with one past the last."""
    flat = ids.flatten().tolist()
    tokens, owners = [], []
    for expert in range(experts):
        mine = [i for i, e in enumerate(flat) if e == expert]
        mine += [len(flat)] * (-len(mine) % block)
        tokens += mine
        owners += [expert] * (len(mine) // block)
    return [torch.tensor(x, device=ids.device) for x in (sorted(tokens), owners, [len(tokens)])]
