"""Compute exponentials to the base two, which is what the hardware does.

When: a cuTile kernel that takes `ct.exp` of float32 tiles, such as softmax, SiLU or attention.
Do: multiply by log2(e), a constant, and call `ct.exp2` with `flush_to_zero=True`.
    A tile that an operand of the caller's may make float64 flushes nothing then:
    `flush_to_zero=x.dtype != ct.float64`.
Risk: changes rounding: the relative error grows with the size of the exponent, to about 1e-5 for
    an argument of 100, and a result below 1.2e-38 becomes zero.
Source: TileGym's cuTile playbook, item H, which names 1 to 5 % and says that `ct.exp` takes no
    `flush_to_zero`; that still holds in cuda-tile 1.7. Compiled there, a float32 SiLU of 1024
    columns falls from 354 to 302 instructions for sm_80 and from 381 to 331 for sm_90, all of it
    arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from math import e, log2
from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.divisors import divided_by
from agent.analysis.cutile.element_types import ElementTypes
from agent.analysis.cutile.maybe_float64 import MaybeFloat64, unless_float64
from agent.analysis.cutile.spelling import tile_module
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import F16, TileTrial
from agent.rewriting.common.insertion import free_name
from agent.rewriting.cutile.insertion import after_imports
from agent.syntax import Source, positional

ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)
"""Expressions that need no parentheses to be multiplied."""


class Exp2(Optimization):
    """`ct.exp(x)` -> `ct.exp2(x * LOG2_E, flush_to_zero=True)`."""

    name = "exp2"
    title = "exponentials to the base two"
    backend = "cutile"
    family = "arithmetic"
    priority: ClassVar = {
        KernelClass.MEMORY: 100,
        KernelClass.BALANCED: 40,
        KernelClass.COMPUTE: 20,
    }
    expected = "1 to 5 % (TileGym); nothing where memory is the limit"
    hypothesis = (
        "The base-two exponential is one instruction; the natural one is corrected around it."
    )
    changes_rounding = REORDERED
    example: ClassVar[Params] = {}
    before = """\
import cuda.tile as ct
import torch


@ct.kernel
def silu_kernel(x, y, TILE: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    tile = ct.astype(ct.load(x, index=(row, column), shape=(1, TILE)), ct.float32)
    result = tile / (1.0 + ct.exp(-tile))  # x * sigmoid(x)
    ct.store(y, index=(row, column), tile=ct.astype(result, y.dtype))


def silu(x):
    y = torch.empty_like(x)
    grid = (x.shape[0], ct.cdiv(x.shape[1], 1024))
    ct.launch(torch.cuda.current_stream(), grid, silu_kernel, (x, y, 1024))
    return y
"""
    after = before.replace(
        "    result = tile / (1.0 + ct.exp(-tile))  # x * sigmoid(x)\n",
        """\
    # x * sigmoid(x)
    result = tile / (1.0 + ct.exp2(-tile * LOG2_E, flush_to_zero=True))
""",
    ).replace("import torch\n", f"import torch\n\nLOG2_E = {log2(e)}\n")

    trial = TileTrial(kernel="silu_kernel", arguments=((F16, 2), (F16, 2), 1024))

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Change every exponential of a tile that is certainly float32."""
        source = subject.source
        calls, skipped = _exponentials(source)
        if not calls:
            raise NotApplicable(
                f"none of the {skipped} ct.exp is of a tile that is certainly float32"
                if skipped
                else "no launched kernel calls ct.exp"
            )
        tile, constant = tile_module(source), free_name(source, "LOG2_E")
        edits: dict[cst.CSTNode, Callable[..., cst.CSTNode]] = {
            call: _in_base_two(tile, constant, unless_float64(tile, names))
            for call, names in calls.items()
        }
        edits[source.module] = after_imports(source, f"{constant} = {log2(e)}\n")
        return source.rewrite(edits)


def _exponentials(source: Source) -> tuple[dict[cst.Call, tuple[str, ...]], int]:
    """Those of a float32 tile that leave the rounding open, with what may make it float64.

    Each once; and how many others.
    """
    found: dict[cst.Call, tuple[str, ...] | None] = {}
    for kernel in CUTILE.chosen(source):
        for function in CUTILE.reached(source, kernel):
            types, larger = ElementTypes(source, function), MaybeFloat64(source, function)
            for call in CUTILE.find(source, function.node.body, (f"{CT}exp",)):
                values = positional(call)
                plain = len(values) == len(call.args) == 1
                is_ours = plain and types.is_float32(values[0])
                is_ours = is_ours and not divided_by(source, function, call)
                found[call] = larger.names(values[0]) if is_ours else None
    calls = {call: names for call, names in found.items() if names is not None}
    return calls, len(found) - len(calls)


def _in_base_two(tile: str, constant: str, flushes: str) -> Callable[[cst.Call], cst.Call]:
    return lambda exp: _with_exponent(exp, tile, constant, flushes)


def _with_exponent(exp: cst.Call, tile: str, constant: str, flushes: str) -> cst.Call:
    operand = exp.args[0].value
    is_minus = isinstance(operand, cst.UnaryOperation) and isinstance(operand.operator, cst.Minus)
    if not isinstance(operand, ATOMS) and not is_minus and not operand.lpar:
        operand = operand.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    scaled = cst.BinaryOperation(operand, cst.Multiply(), cst.Name(constant))
    flush = cst.Arg(
        cst.parse_expression(flushes),
        keyword=cst.Name("flush_to_zero"),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    first = exp.args[0].with_changes(value=scaled)
    if not isinstance(first.comma, cst.Comma):
        first = first.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
    return exp.with_changes(func=cst.parse_expression(f"{tile}.exp2"), args=[first, flush])
