"""Kernels that are launched by another name: `f = a if fast else b`, then `f[grid](...)`."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable
from agent.syntax import Source, descendants


def not_launched(source: Source, kernel: Kernel) -> NotApplicable:
    """Why nothing is known of the launches of a kernel of which none was found."""
    for mention in source.mentions(kernel.function):
        for name in _given_to(source, mention):
            for assignment in source.assignments(name):
                for use in source.uses(assignment):
                    if _is_launched(source, use):
                        return NotApplicable(
                            f"line {source.line(use)} launches {kernel.name} as `{use.value}`, "
                            "which is not followed: give each of its kernels a launch by its name"
                        )
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
