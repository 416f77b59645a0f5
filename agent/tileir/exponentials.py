"""`tl.exp` as `tl.exp2` of a product, and `tl.sigmoid` written out, as Tile IR's documents ask.

The Tile IR compiler of CUDA 13.1 does not make `ex2` and a multiplication of an exponential, as
PTX's does of every `tl.exp`; so the kernel says it. The result rounds as PTX's did.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.operations import operations_of
from agent.syntax import Source

LOG2_E = "1.4426950408889634"
EXP, SIGMOID = "exp", "sigmoid"
MODULES = ("triton.language", "triton.language.math")
"""Whose functions are meant; libdevice's are compiled by other means."""


def in_base_two(source: Source, kernels: Iterable[Kernel]) -> tuple[str, tuple[str, ...]]:
    """The text with exponentials in base two in those kernels and their helpers, and what changed.

    A name that was imported by itself, as by `from triton.language import exp`, is left alone.
    """
    edits: dict[Any, Callable[[Any], cst.CSTNode]] = {}
    changes: list[str] = []
    for kernel in kernels:
        lines: dict[str, list[int]] = {}
        for function, call, operation in operations_of(source, kernel).calls:
            edit = _EDITS.get(operation or "") if _is_meant(source, call) else None
            if edit is None:
                continue
            assert operation is not None
            edits[call] = edit(as_method=not TRITON.owns(source.name(call.func)))
            lines.setdefault(operation, []).append(source.line(call))
            del function
        changes += [f"{kernel.name}: {_told(op, numbers)}" for op, numbers in lines.items()]
    return (source.rewrite(edits) if edits else source.text), tuple(changes)


def _is_meant(source: Source, call: cst.Call) -> bool:
    if not isinstance(call.func, cst.Attribute):
        return False
    named = source.name(call.func)
    if TRITON.owns(named):
        return (named or "").rpartition(".")[0] in MODULES and len(call.args) == 1
    return not call.args


def _told(operation: str, lines: Collection[int]) -> str:
    where = f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}"
    became = "tl.exp2" if operation == EXP else "1 / (1 + tl.exp2)"
    return f"{where}: tl.{operation} is {became} of a multiple by log2(e)"


def _exp(*, as_method: bool) -> Callable[[cst.Call], cst.CSTNode]:
    return lambda call: _exp2(call, LOG2_E, as_method=as_method)


def _sigmoid(*, as_method: bool) -> Callable[[cst.Call], cst.CSTNode]:
    def edit(call: cst.Call) -> cst.CSTNode:
        power = _exp2(call.with_changes(lpar=(), rpar=()), f"-{LOG2_E}", as_method=as_method)
        written = cst.ensure_type(
            cst.parse_expression("(1.0 / (1.0 + POWER))"), cst.BinaryOperation
        )
        return written.with_deep_changes(
            cst.ensure_type(written.right, cst.BinaryOperation), right=power
        )

    return edit


def _exp2(call: cst.Call, factor: str, *, as_method: bool) -> cst.Call:
    func = cst.ensure_type(call.func, cst.Attribute)
    if as_method:
        product = _times(func.value, factor).with_changes(
            lpar=[cst.LeftParen()], rpar=[cst.RightParen()]
        )
        return call.with_changes(func=func.with_changes(value=product, attr=cst.Name("exp2")))
    (given,) = call.args
    return call.with_changes(
        func=func.with_changes(attr=cst.Name("exp2")),
        args=[given.with_changes(value=_times(given.value, factor))],
    )


def _times(value: cst.BaseExpression, factor: str) -> cst.BinaryOperation:
    tight = isinstance(
        value, cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Integer | cst.Float
    )
    minus = isinstance(value, cst.UnaryOperation) and isinstance(value.operator, cst.Minus)
    if not (tight or minus or value.lpar):
        value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.BinaryOperation(value, cst.Multiply(), cst.parse_expression(factor))


_EDITS = {EXP: _exp, SIGMOID: _sigmoid}
