"""Kernels that are launched by another name: `f = a if fast else b`, then `f[grid](...)`."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable
from agent.syntax import Source, descendants

MOST_MENTIONS = 200
"""Of a kernel, and of what holds it."""


def not_launched(source: Source, kernel: Kernel) -> NotApplicable:
    """Why nothing is known of the launches of a kernel of which none was found."""
    mentions = list(source.mentions(kernel.function))
    direct = len(mentions)
    for place, mention in enumerate(mentions):  # it grows
        for name in _given_to(source, mention):
            for assignment in source.assignments(name):
                for use in source.uses(assignment):
                    if _is_launched(source, use):
                        line, name_of = source.line(use), kernel.name
                        what = (
                            f"line {line} launches {name_of} as `{use.value}`, which"
                            if place < direct
                            else f"line {line} launches `{use.value}`, which may be {name_of} and"
                        )
                        return NotApplicable(
                            f"{what} is not followed: give each of its kernels a launch by its name"
                        )
                    if use not in mentions and len(mentions) < MOST_MENTIONS:
                        mentions.append(use)  # of a table of kernels, perhaps
    return NotApplicable(f"this file does not launch {kernel.name}")


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


def _is_launched(source: Source, use: cst.Name) -> bool:
    inner, around, *_ = source.ancestors(use)
    if not isinstance(around, cst.Call):
        return False
    if isinstance(inner, cst.Arg):
        called = around.func.attr if isinstance(around.func, cst.Attribute) else around.func
        return isinstance(called, cst.Name) and called.value == "launch"
    return isinstance(inner, cst.Subscript) and inner.value is use and around.func is inner
