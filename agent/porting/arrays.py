"""The arrays of a launch: cuTile takes none of them for None, and no two for the same memory."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from agent.analysis.common.absent import may_be_none
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.purity import is_pure
from agent.analysis.triton.aliasing import may_share
from agent.analysis.triton.dialect import ROUNDING
from agent.porting.context import Context
from agent.porting.functions import Translated
from agent.porting.values import Pointer
from agent.syntax import Source, descendants

PURE = (*ROUNDING, "len", "builtins.len")
VIEWS = (
    "contiguous", "detach", "expand", "flatten", "float", "half", "permute", "reshape", "squeeze",
    "t", "to", "transpose", "unsqueeze", "view",
)  # fmt: skip
"""Methods of a tensor that may be called twice: views of its memory, or copies of their own."""


def with_stand_ins(
    context: Context, launch: Launch, given: Mapping[str, str], done: Translated
) -> dict[str, str]:
    """Parameter -> what is passed; for an array that may be None, which a kernel does not touch
    then, another one that is only read."""
    source, found = context.source, dict(given)
    arrays = [name for name, value in done.values.items() if isinstance(value, Pointer)]
    doubtful = [n for n in arrays if _is_doubtful(source, launch, launch.arguments.get(n))]
    others = [n for n in arrays if n not in doubtful and n not in done.stored]
    for name in doubtful:
        if others and name not in done.stored:
            found[name] = f"{given[name]} if {given[name]} is not None else {given[others[0]]}"
    return found


def _is_doubtful(source: Source, launch: Launch, node: cst.BaseExpression | None) -> bool:
    """Whether a variable may be None at a launch, and no condition around that asks."""
    if not isinstance(node, cst.Name) or not may_be_none(source, node):
        return False
    tests = [a.test for a in source.ancestors(launch.node) if isinstance(a, cst.If)]
    named = {name.value for test in tests for name in descendants(test, cst.Name)}
    return node.value not in named


def apart(
    context: Context,
    kernel: Kernel,
    launch: Launch,
    given: Mapping[str, str],
    done: Translated,
) -> list[str]:
    """The check that arrays do not overlap, where the source does not show it.

    Raises:
        NotPortable: they are the same, or cannot be named twice.
    """
    source, stored = context.source, done.stored
    arrays = [name for name, value in done.values.items() if isinstance(value, Pointer)]
    alone = Kernel(kernel.function, kernel.decorator, kernel.constants, (launch,))
    doubtful: list[str] = []
    for place, one in enumerate(arrays):
        for other in arrays[place + 1 :]:
            if one not in stored and other not in stored:
                continue
            if given[one] == given[other]:
                raise context.refuse(
                    launch.node, "the same tensor given twice, and stored to",
                    "cuTile takes arrays to be distinct: store to another one",
                    f"{one} and {other}",
                )  # fmt: skip
            if may_share(source, alone, one, other):
                doubtful += [one, other]
    for name in doubtful:
        node = launch.arguments.get(name)
        if node is not None and not repeatable(source, node):
            raise context.refuse(
                launch.node, "an array that is computed within the launch",
                "compute it before the launch", name,
            )  # fmt: skip
    if not doubtful:
        return []
    lists = [
        ", ".join(given[n] for n in arrays if n in doubtful and (n in stored) is wanted)
        for wanted in (True, False)
    ]
    stores, loads = (f"({each},)" if each else "()" for each in lists)
    return [f"{context.helper('apart')}({stores}, {loads})"]


def repeatable(source: Source, node: cst.BaseExpression) -> bool:
    """Whether an expression may be evaluated twice."""
    if isinstance(node, cst.IfExp):
        return all(repeatable(source, each) for each in (node.test, node.body, node.orelse))
    method = node.func if isinstance(node, cst.Call) else None
    if isinstance(node, cst.Call) and isinstance(method, cst.Attribute):
        if method.attr.value not in VIEWS:
            return is_pure(source, node, PURE)
        return repeatable(source, method.value) and all(
            repeatable(source, each.value) for each in node.args
        )
    if isinstance(node, cst.Subscript):  # with slices
        return repeatable(source, node.value)
    return is_pure(source, node, PURE)
