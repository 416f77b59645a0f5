"""How far the tiles of a constant reach: which sizes bound them, and what those were seen to be.

A tile twice as long as the longest row that is launched has no more to do than half of it has.
"""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from agent.analysis.common.derived_names import derived_names
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import Subject
from agent.analysis.triton.arguments import run_time
from agent.analysis.triton.dialect import TRITON
from agent.launches import power_of_two, values_of
from agent.syntax import Source, descendants, names_in, positional

SMALLEST = 16
"""Elements: smaller tiles than that are not asked for, however little there is to do."""


def bounding(source: Source, kernel: Kernel, constant: str) -> frozenset[str]:
    """The parameters that indices of a constant's tiles are compared with, or that loops run to."""
    body = kernel.function.node.body
    indices = _indices(source, kernel, constant)
    found: set[str] = set()
    for comparison in descendants(body, cst.Comparison):
        if _counts(source, comparison, constant) or names_in(comparison) & indices:
            found |= names_in(comparison)
    for loop in descendants(body, cst.For):
        given = positional(loop.iter) if isinstance(loop.iter, cst.Call) else ()
        if len(given) == 3 and source.code(given[2]) == constant:
            found |= names_in(given[1])
    tiles = {
        source.code(end)
        for call in TRITON.find(source, body, TRITON.iotas)
        if (end := TRITON.shapes["triton.language.arange"].of(call)) is not None
    }
    constants = {name for name in kernel.constants if name not in tiles}
    return frozenset(found & ({*run_time(kernel)} | constants))


def have_work(subject: Subject, kernel: Kernel, sizes: Mapping[str, int]) -> bool:
    """Whether no tile is twice as long as anything that tests were seen to launch it on.

    Args:
        subject: what was seen; where a size was not, it bounds nothing.
        kernel: whose constants these are.
        sizes: constant -> elements.
    """
    for constant, size in sizes.items():
        parameters = bounding(subject.source, kernel, constant)
        seen = [values_of(subject.launches, kernel.name, name) for name in parameters]
        longest = max((n for values in seen for n in values), default=0)
        if seen and all(seen) and size > max(power_of_two(longest), SMALLEST):
            return False
    return True


def _indices(source: Source, kernel: Kernel, constant: str) -> set[str]:
    """The names that hold places of the constant's tiles, not what is loaded from them."""

    def holds(value: cst.BaseExpression, names: set[str]) -> bool:
        counts = _counts(source, value, constant) or not names_in(value).isdisjoint(names)
        return counts and not TRITON.has(source, value, TRITON.loads)

    return derived_names(kernel.function.node.body, holds)


def _counts(source: Source, node: cst.CSTNode, constant: str) -> bool:
    """Whether `tl.arange` of the constant stands in an expression."""
    ends = (
        TRITON.shapes["triton.language.arange"].of(call)
        for call in TRITON.find(source, node, TRITON.iotas)
    )
    return any(end is not None and source.code(end) == constant for end in ends)
