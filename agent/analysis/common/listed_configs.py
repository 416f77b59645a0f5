"""What a file does with the configs of a tuner, besides handing them to it."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from agent.analysis.common.subject import NotApplicable
from agent.syntax import Source

COPIES = ("builtins.list", "builtins.tuple")


def taken_by_number(
    source: Source,
    configs: cst.BaseExpression,
    kernel: str,
    is_tuner: Callable[[cst.Call], bool],
) -> int:
    """How many of the first configs have to stay: the file takes some by their number.

    Args:
        source: the file.
        configs: the list as it is written out, or a call of the generator that yields them.
        kernel: the name of the kernel that is tuned, for the reason.
        is_tuner: whether a call is given configs to tune this kernel with.

    Raises:
        NotApplicable: whatever else the file does with the configs, another tuner included, would
            find others.
    """
    function = source.function_of(configs.func) if isinstance(configs, cst.Call) else None
    pending = list(source.mentions(function)) if function is not None else [configs]
    counted = 0
    for place in pending:
        around = _around(source, place)
        match around:
            case cst.Subscript(
                slice=[cst.SubscriptElement(slice=cst.Index(value=cst.Integer() as number))]
            ):
                counted = max(counted, number.evaluated_value + 1)
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as target)]):
                uses = [use for a in source.assignments(target) for use in source.uses(a)]
                pending += [use for use in uses if use not in pending]
            case cst.Call() if is_tuner(around):
                pass
            case _:
                line = source.line(place)
                raise NotApplicable(f"line {line} uses the configs of {kernel} otherwise")
    return counted


def _around(source: Source, place: cst.BaseExpression) -> cst.CSTNode:
    """What takes the configs: a call that copies them, or that makes the generator, does not."""
    child: cst.CSTNode = place
    for parent in source.ancestors(place):
        match parent:
            case cst.Arg() if parent.star == "":
                continue
            case cst.Call() if child is parent.func and child is place:
                pass
            case cst.Call() if source.name(parent.func) in COPIES:
                pass
            case _:
                return parent
        child = parent
    return source.module
