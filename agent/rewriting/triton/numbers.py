"""Numbers of programs that become rounds of a loop."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import libcst as cst

from agent.rewriting.triton.edits import Edit
from agent.syntax import descendants


def casts_of_number(
    body: cst.CSTNode, asked: Collection[cst.CSTNode], variable: str, tl: str
) -> dict[cst.CSTNode, Edit]:
    """Write `tl.cast(program, tl.int64)` for `.to(tl.int64)` of a program's number.

    Triton's interpreter counts rounds by Python's integers, which have no such method.

    Args:
        body: of the kernel.
        asked: the calls of `tl.program_id` that become the number.
        variable: the name of it.
        tl: how the file spells `triton.language`.
    """
    edits: dict[cst.CSTNode, Edit] = {}
    for call in descendants(body, cst.Call):
        match call:
            case cst.Call(
                func=cst.Attribute(value=number, attr=cst.Name(value="to")),
                args=[cst.Arg(keyword=None, star="")],
            ) if number in asked or (isinstance(number, cst.Name) and number.value == variable):
                edits[call] = partial(_cast, tl)
    return edits


def _cast(tl: str, call: cst.Call) -> cst.Call:
    method = cst.ensure_type(call.func, cst.Attribute)
    number = cst.Arg(method.value, comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")))
    return call.with_changes(func=cst.parse_expression(f"{tl}.cast"), args=[number, *call.args])
