"""Programs of one expression on tiles of edge values."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Sequence
from typing import Any

import cuda.tile as ct
import torch
from torch import Tensor

from tests.tile_cpu.programs import (
    SIZE,
    Program,
    bf16,
    divisors,
    f16,
    f32,
    filled,
    floats,
    i8,
    i32,
    i64,
    integers,
    small_floats,
    u8,
)


def kernel_of(expression: str, *, stored: bool = True) -> Any:
    """A kernel whose source cuda.tile can read: tiles `a` and `b` are loaded, the result stored."""
    body = f"ct.store(result, (0,), {expression})" if stored else expression
    used = {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}
    names = [name for name in ("a", "b") if name in used]
    parameters = [f"{name}_array" for name in names] + ["result"] * stored
    lines = [
        "@ct.kernel",
        f"def kernel({', '.join(parameters)}):",
        *(f"    {name} = ct.load({name}_array, (0,), ({SIZE},))" for name in names),
        f"    {body}",
    ]
    source = "".join(f"{line}\n" for line in lines)
    file = f"{__file__}-{expression}"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"ct": ct}
    exec(compile(source, file, "exec"), namespace)
    return namespace["kernel"]


def elementwise(
    name: str,
    expression: str,
    reference: Callable[..., Tensor],
    inputs: Callable[[], Sequence[Tensor]],
    result: torch.dtype,
    tolerance: float = 0.0,
) -> Program:
    return Program(
        name, kernel_of(expression), inputs, filled(result), reference, tolerance=tolerance
    )


def truncated(x: Tensor, low: int, high: int) -> Tensor:
    return x.double().trunc().clamp(low, high).to(torch.int64)


MATH = [
    elementwise(
        f"{name} {dtype}", expression, reference, lambda d=dtype: [small_floats(d)], dtype, t
    )
    for name, expression, reference in (
        ("exp", "ct.exp(a)", torch.exp),
        ("exp2", "ct.exp2(a)", torch.exp2),
        ("tanh", "ct.tanh(a)", torch.tanh),
        ("sin", "ct.sin(a)", torch.sin),
        ("floor", "ct.floor(a)", torch.floor),
        ("ceil", "ct.ceil(a)", torch.ceil),
        ("abs", "abs(a)", torch.abs),
        ("negative", "-a", torch.neg),
        ("log of abs", "ct.log(ct.abs(a))", lambda x: x.abs().log()),
        ("sqrt of abs", "ct.sqrt(ct.abs(a))", lambda x: x.abs().sqrt()),
        ("rsqrt of abs", "ct.rsqrt(ct.abs(a))", lambda x: x.abs().rsqrt()),
    )
    for dtype, t in ((f32, 1e-5), (f16, 1e-2))
]

PROMOTIONS = [
    elementwise(
        "fp16 plus a constant stays fp16",
        "a + 0.1",
        lambda x: x + torch.tensor(0.1, dtype=f16),
        lambda: [small_floats(f16)],
        f16,
    ),
    elementwise(
        "fp16 plus fp32 is fp32",
        "a + b",
        lambda a, b: a.float() + b,
        lambda: [small_floats(f16), small_floats()],
        f32,
    ),
    elementwise(
        "bf16 times int32 is bf16",
        "a * b",
        lambda a, b: a * b.to(bf16),
        lambda: [small_floats(bf16), integers()],
        bf16,
    ),
    elementwise(
        "int32 over int32 is fp32",
        "a / b",
        lambda a, b: a.float() / b.float(),
        lambda: [integers(), divisors()],
        f32,
        1e-6,
    ),
    elementwise(
        "int8 plus int32 is int32",
        "a + b",
        lambda a, b: a.to(i32) + b,
        lambda: [integers(i8), divisors()],
        i32,
    ),
    elementwise(
        "exp of int32 is fp32",
        "ct.exp(a)",
        lambda x: x.float().exp(),
        lambda: [divisors()],
        f32,
        1e-5,
    ),
    elementwise(
        "where promotes",
        "ct.where(b > 0, a, b)",
        lambda a, b: torch.where(b > 0, a.float(), b),
        lambda: [integers(), small_floats()],
        f32,
    ),
]

INTEGER = [
    elementwise(
        f"{name} {dtype}",
        expression,
        reference,
        lambda d=dtype: [integers(d), divisors(d)],
        dtype,
    )
    for name, expression, reference in (
        ("add", "a + b", torch.add),
        ("mul", "a * b", torch.mul),
        ("sub", "a - b", torch.sub),
        ("floordiv", "a // b", torch.floor_divide),
        ("mod", "a % b", torch.remainder),
        ("cdiv", "ct.cdiv(a, b)", lambda a, b: -torch.floor_divide(-a, b)),
        ("minimum", "ct.minimum(a, b)", torch.minimum),
        ("maximum", "max(a, b)", torch.maximum),
        ("and", "a & b", torch.bitwise_and),
        ("xor", "a ^ b", torch.bitwise_xor),
    )
    for dtype in (i32, i8, i64, u8)
    if not (name in ("cdiv", "floordiv") and dtype is u8)
] + [
    elementwise("shift left", "a << 3", lambda a: a << 3, lambda: [integers()], i32),
    elementwise("shift right", "a >> 2", lambda a: a >> 2, lambda: [integers()], i32),
    elementwise("invert", "~a", torch.bitwise_not, lambda: [integers()], i32),
    elementwise(
        "invert a boolean",
        "ct.astype(~(a > 2), ct.int32)",
        lambda a: (a <= 2).to(i32),
        lambda: [integers()],
        i32,
    ),
    elementwise(
        "int32 wraps",
        "a * 2147483647",
        lambda a: a * 2147483647,
        lambda: [integers()],
        i32,
    ),
]

CASTS = [
    elementwise(
        "fp32 to fp16", "ct.astype(a, ct.float16)", lambda x: x.half(), lambda: [floats()], f16
    ),
    elementwise(
        "fp32 to bf16",
        "ct.astype(a, ct.bfloat16)",
        lambda x: x.to(bf16),
        lambda: [floats()],
        bf16,
    ),
    elementwise(
        "fp32 to int32 truncates and saturates",
        "ct.astype(a, ct.int32)",
        lambda x: truncated(x, -(2**31), 2**31 - 1).to(i32),
        lambda: [floats()],
        i32,
    ),
    elementwise(
        "int32 to int8 wraps",
        "ct.astype(a * 3, ct.int8)",
        lambda x: (x * 3).to(i8),
        lambda: [integers()],
        i8,
    ),
    elementwise(
        "fp32 to e4m3 saturates",
        "ct.astype(ct.astype(a, ct.float8_e4m3fn), ct.float32)",
        lambda x: x.clamp(-448, 448).to(torch.float8_e4m3fn).float(),
        lambda: [floats()],
        f32,
    ),
    elementwise(
        "fp32 to e5m2 saturates",
        "ct.astype(ct.astype(a, ct.float8_e5m2), ct.float32)",
        lambda x: x.clamp(-57344, 57344).to(torch.float8_e5m2).float(),
        lambda: [floats()],
        f32,
    ),
    elementwise(
        "bitcast",
        "ct.bitcast(a, ct.int32)",
        lambda x: x.view(i32),
        lambda: [floats()],
        i32,
    ),
    elementwise(
        "boolean to fp32",
        "ct.astype(a > 0, ct.float32)",
        lambda x: (x > 0).float(),
        lambda: [floats()],
        f32,
    ),
]

PROGRAMS = [*MATH, *PROMOTIONS, *INTEGER, *CASTS]
