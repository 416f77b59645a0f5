"""What a host computes from how many multiprocessors the GPU has: the same at every launch."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.dialect import Launch
from agent.analysis.common.reaching_definitions import traced
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import ROUNDING
from agent.analysis.triton.host import HostView
from agent.syntax import Source

COUNTS = ("multi_processor_count", "multiprocessor_count")
"""What PyTorch calls them, and Triton's driver."""
COMPUTING = ("builtins.max", "builtins.min", "builtins.int", *ROUNDING)


def follows_gpu(source: Source, expression: cst.BaseExpression) -> bool:
    """Whether a number is computed from that of the multiprocessors, and from nothing else."""
    return _counts(source, expression) is True


def grid_follows_gpu(source: Source, launch: Launch) -> bool:
    """Whether a launch has as many programs as the GPU decides, whatever it works on."""
    try:
        extents = HostView(source, launch).grid.extents
    except NotApplicable:
        return False
    found = [_counts(source, extent) for extent in extents]
    return None not in found and True in found


def _counts(
    source: Source, expression: cst.BaseExpression, seen: frozenset[cst.CSTNode] = frozenset()
) -> bool | None:
    """Whether multiprocessors are counted in an expression that holds integers besides, if any.

    None for one that holds something else.
    """
    behind = traced(source, expression)
    if behind in seen:
        return None
    parts: list[cst.BaseExpression]
    match behind:
        case cst.Integer():
            return False
        case cst.BinaryOperation(left=left, right=right):
            parts = [left, right]
        case cst.Call() if source.name(behind.func) in COMPUTING:
            parts = [argument.value for argument in behind.args]
        case _:
            return True if _is_count(behind) else None
    found = [_counts(source, part, seen | {behind}) for part in parts]
    return None if None in found else True in found


def _is_count(node: cst.CSTNode) -> bool:
    """`get_device_properties(device).multi_processor_count`, or an item of that name."""
    match node:
        case cst.Attribute(attr=cst.Name(value=name)):
            return name in COUNTS
        case cst.Subscript(
            slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString() as text))]
        ):
            return text.raw_value in COUNTS
    return False
