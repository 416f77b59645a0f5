"""Atomic operations. Those with a mask go through the array's raw memory, which takes one."""

from __future__ import annotations

from functools import partial

import libcst as cst

from agent.porting.arguments import Arguments
from agent.porting.context import TL
from agent.porting.expressions import Expressions, Handler
from agent.porting.operations.memory import converted
from agent.porting.terms import Phrase, atom
from agent.porting.values import number, token

ORDERS = {"relaxed": "RELAXED", "acquire": "ACQUIRE", "release": "RELEASE", "acq_rel": ""}
SCOPES = {"gpu": "", "cta": "BLOCK", "sys": "SYS"}
"""Triton's words -> cuTile's; empty for the default of both."""


def _update(
    name: str, to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None
) -> Phrase:
    given = Arguments(to.context, call, ("pointer", "val", "mask", "sem", "scope"), receiver)
    base, index, _ = to.pointer(given["pointer"])
    to.stored.add(base)
    parts = [index, converted(to, given["val"], base)]
    mask = given.get("mask")
    if isinstance(mask, cst.Name) and mask.value == "True":
        mask = None
    ct = to.context.tile
    if mask is None:
        text = f"{ct}.atomic_{name}({base}, {', '.join(parts)}, check_bounds=False"
    else:
        parts.append(f"mask={to.number(mask).text}")
        text = f"{base}.get_raw_memory().atomic_{name}_offset({', '.join(parts)}"
    return atom(f"{text}{_ordering(to, call, given)})", number(token(base)))


def _compare_and_swap(
    to: Expressions, call: cst.Call, receiver: cst.BaseExpression | None
) -> Phrase:
    given = Arguments(to.context, call, ("pointer", "cmp", "val", "sem", "scope"), receiver)
    base, index, _ = to.pointer(given["pointer"])
    to.stored.add(base)
    parts = [base, index, *(converted(to, given[name], base) for name in ("cmp", "val"))]
    text = f"{to.context.tile}.atomic_cas({', '.join(parts)}, check_bounds=False"
    return atom(f"{text}{_ordering(to, call, given)})", number(token(base)))


def _ordering(to: Expressions, call: cst.Call, given: Arguments) -> str:
    ct, found = to.context.tile, ""
    for name, words, keyword, kind in (
        ("sem", ORDERS, "memory_order", "MemoryOrder"),
        ("scope", SCOPES, "memory_scope", "MemoryScope"),
    ):
        word = given.word(name)
        if word is None:
            continue
        if word not in words:
            raise to.context.refuse(call, f"`{name}={word!r}` of an atomic", "name a known one")
        if words[word]:
            found += f", {keyword}={ct}.{kind}.{words[word]}"
    return found


OPERATIONS: dict[str, Handler] = {
    **{
        f"{TL}atomic_{name}": partial(_update, name)
        for name in ("add", "and", "max", "min", "or", "xchg", "xor")
    },
    f"{TL}atomic_cas": _compare_and_swap,
}
