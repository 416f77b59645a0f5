"""The arrays of a launch: cuTile takes none of them for None, and no two for the same memory."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from agent.analysis.common.absent import may_be_none
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.purity import is_pure
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.triton.aliasing import may_share
from agent.analysis.triton.arguments import does_without
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
    context: Context, kernel: Kernel, launch: Launch, given: Mapping[str, str], done: Translated
) -> dict[str, str]:
    """Parameter -> what is passed; for an array that may be None, which a kernel does not touch
    then, another one: rather one that is only read. One that it touches in any case is none."""
    source, found = context.source, dict(given)
    arrays = [name for name, value in done.values.items() if isinstance(value, Pointer)]
    doubtful = [
        name
        for name in arrays
        if does_without(source, kernel, name) and _is_doubtful(source, launch, name)
    ]
    others = [n for n in arrays if n not in doubtful]
    others.sort(key=lambda name: name in done.stored)
    for name in doubtful if others else ():
        node, instead = launch.arguments[name], given[others[0]]
        text = given[name] if isinstance(node, cst.Name) else f"({given[name]})"
        found[name] = f"{text} if {text} is not None else {instead}"
        if text == "None":
            asks = name not in done.stored or _only_under_conditions(source, launch, name)
            found[name] = instead if asks else text
    return found


def _is_doubtful(source: Source, launch: Launch, parameter: str) -> bool:
    """Whether what is given for an array may be None, and no condition around the launch asks."""
    node = launch.arguments.get(parameter)
    if isinstance(node, cst.IfExp):
        return may_be_none(source, node) and repeatable(source, node)
    if not isinstance(node, cst.Name):
        return False
    if not may_be_none(source, node) and not _is_optional(source, launch, parameter, node):
        return False
    tests = [a.test for a in source.ancestors(launch.node) if isinstance(a, cst.If)]
    named = {name.value for test in tests for name in descendants(test, cst.Name)}
    return node.value not in named


def _is_optional(source: Source, launch: Launch, parameter: str, given: cst.Name) -> bool:
    """Whether a kernel has an array only where a condition holds, and the host hands it on unseen.

    A caller of the host's function may give None then, though nothing of that function says so.
    """
    host = launch.function
    if host is None or not isinstance(value_of(source, given), cst.Name):
        return False
    read = [each.value for each in descendants(host.node.body, cst.Attribute)]
    read += [each.value for each in descendants(host.node.body, cst.Subscript)]
    if any(isinstance(each, cst.Name) and each.value == given.value for each in read):
        return False
    return _only_under_conditions(source, launch, parameter)


def _only_under_conditions(source: Source, launch: Launch, parameter: str) -> bool:
    """Whether a kernel has a parameter in branches alone."""
    names = descendants(launch.kernel.node.body, cst.Name)
    uses = (name for name in names if name.value == parameter)
    return all(any(isinstance(a, cst.If) for a in source.ancestors(use)) for use in uses)


def apart(
    context: Context,
    kernel: Kernel,
    launch: Launch,
    given: Mapping[str, str],
    done: Translated,
) -> list[str]:
    """The check that arrays do not overlap, where the source does not show it.

    Args:
        context: of the file.
        kernel: it.
        launch: one of its launches.
        given: parameter -> what the origin passes; None overlaps nothing.
        done: the kernel's translation.

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
    tables = [
        ", ".join(f'"{n}": {given[n]}' for n in arrays if n in doubtful and (n in stored) is wanted)
        for wanted in (True, False)
    ]
    stores, loads = (f"{{{each}}}" for each in tables)
    called = context.helper("apart")
    return [f'{called}("{kernel.function.node.name.value}", {stores}, {loads})']


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
