"""Kernels that are launched by another name: `f = a if fast else b`, then `f[grid](...)`."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.hand_overs import first_hand_over
from agent.analysis.common.subject import NotApplicable
from agent.syntax import Source, descendants

MOST_MENTIONS = 200
"""Of a kernel, and of what holds it."""
SOURCE_TEXT = frozenset({"src", "_unsafe_update_src"})
"""What Triton's kernels keep their text in, and replace it by."""


def not_launched(source: Source, kernel: Kernel) -> NotApplicable:
    """Why nothing is known of the launches of a kernel of which none was found."""
    if (line := _rebuilt_at(source, kernel)) is not None:
        return NotApplicable(
            f"line {line} takes the source of {kernel.name} to put another together when it runs: "
            "what is launched does not stand in this file"
        )
    mentions = list(source.mentions(kernel.function))
    direct = len(mentions)
    for place, mention in enumerate(mentions):  # it grows
        for name in _given_to(source, mention):
            for assignment in source.assignments(name):
                for use in source.uses(assignment):
                    if (launched := _launched(source, use)) is not None:
                        line, name_of = source.line(use), kernel.name
                        code = source.code(launched)
                        what = (
                            f"line {line} launches {name_of} as `{code}`, which"
                            if place < direct
                            else f"line {line} launches `{code}`, which may be {name_of} and"
                        )
                        return NotApplicable(
                            f"{what} is not followed: give each of its kernels a launch by its name"
                        )
                    if use not in mentions and len(mentions) < MOST_MENTIONS:
                        mentions.append(use)  # of a table of kernels, perhaps
    return (
        _handed_on(source, kernel, mentions[:direct])
        or _handed_on(source, kernel, mentions[direct:])
        or NotApplicable(f"this file does not launch {kernel.name}")
    )


def _handed_on(
    source: Source, kernel: Kernel, mentions: Iterable[cst.Name]
) -> NotApplicable | None:
    """Who is handed a kernel by code of the host, or what may be the kernel, and may launch it."""
    found = first_hand_over(source, (n for n in mentions if not _is_device(source, kernel, n)))
    if found is None:
        return None
    line, call = source.line(found.use), found.call
    if source.function_of(found.use) is not kernel.function:
        return NotApplicable(
            f"line {line} hands `{source.code(found.argument.value)}`, which may be {kernel.name}, "
            f"to `{source.code(call.func)}`, whose launches are not followed"
        )
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "launch":
        return NotApplicable(
            f"line {line} launches {kernel.name} among others, which is not followed: "
            "give each of its kernels a launch by its name"
        )
    return NotApplicable(
        f"line {line} hands {kernel.name} to `{source.code(call.func)}`, whose launches are not "
        "followed"
    )


def _is_device(source: Source, kernel: Kernel, mention: cst.Name) -> bool:
    """Whether a mention is in another kernel, which calls it or hands it to a scan."""
    around = source.enclosing(mention)
    decorator = kernel.decorator.decorator
    name = source.name(decorator.func if isinstance(decorator, cst.Call) else decorator)
    return around is not None and source.decorator(around, name or "") is not None


def _rebuilt_at(source: Source, kernel: Kernel) -> int | None:
    """The line that takes a kernel's function or text where another text is made of it."""
    for mention in source.mentions(kernel.function):
        taken = next(source.ancestors(mention))
        if not (isinstance(taken, cst.Attribute) and taken.attr.value in ("fn", *SOURCE_TEXT)):
            continue
        host = source.enclosing(mention)
        scope = host.node.body if host is not None else source.module
        attributes = {a.attr.value for a in descendants(scope, cst.Attribute)}
        called = {source.name(call.func) for call in descendants(scope, cst.Call)}
        if attributes & SOURCE_TEXT or "builtins.exec" in called:
            return source.line(mention)
    return None


def _given_to(source: Source, mention: cst.Name) -> list[cst.Name]:
    """The names that are assigned what a mention is part of."""
    for around in source.ancestors(mention):
        if isinstance(around, cst.Assign):
            targets = [target.target for target in around.targets]
            return [name for target in targets for name in descendants(target, cst.Name)]
        if isinstance(around, cst.AnnAssign):
            return list(descendants(around.target, cst.Name))
        if isinstance(around, cst.BaseStatement):
            break
    return []


def _launched(source: Source, use: cst.Name) -> cst.BaseExpression | None:
    """A name that is launched, or the entry of it that is, as `table[key]`; None for other uses."""
    launched: cst.BaseExpression = use
    inner, around, *others = source.ancestors(use)
    if isinstance(inner, cst.Subscript) and inner.value is use and not _is_called(inner, around):
        launched, inner, (around, *others) = inner, around, others
    if isinstance(inner, cst.Attribute) and inner.attr.value == "replace_hints":
        inner, around, *others = others if _is_called(inner, around) else (inner, around)
    if not isinstance(around, cst.Call):
        return None
    if isinstance(inner, cst.Arg):
        called = around.func.attr if isinstance(around.func, cst.Attribute) else around.func
        is_launch = isinstance(called, cst.Name) and called.value == "launch"
    else:
        is_subscript = isinstance(inner, cst.Subscript) and inner.value is launched
        is_launch = is_subscript and _is_called(inner, around)
    return launched if is_launch else None


def _is_called(node: cst.CSTNode, around: cst.CSTNode) -> bool:
    return isinstance(around, cst.Call) and around.func is node
