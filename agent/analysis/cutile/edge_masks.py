"""Masks in the loops of a cuTile kernel that remove something of a few tiles only."""

from __future__ import annotations

from functools import partial

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.edge_masks import EdgeMask, MaskForm, edge_mask, masks_in_loops
from agent.analysis.common.edge_tests import asked_in, edge_tests
from agent.analysis.common.index_runs import IndexRange, NotRegular
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.cutile.edge_tests import CHOOSE, READING
from agent.analysis.cutile.element_types import ElementTypes
from agent.analysis.cutile.index_ranges import same_constant
from agent.analysis.cutile.positive import constant_number
from agent.analysis.cutile.tile_shapes import Edges, edges_of
from agent.syntax import Source, positional

LOOKED_FOR = "looks for float32 tiles of a loop that are masked by their number, as at a diagonal"
"""What a refusal begins with."""


def edge_masks(subject: Subject, kernel: Kernel) -> list[EdgeMask]:
    """The masks of a kernel's own loops that do nothing in some of the steps.

    Raises:
        NotApplicable: there are none, with the reason of each.
    """
    return masks_in_loops(
        subject.source, kernel, CHOOSE, partial(_of_mask, subject, kernel), LOOKED_FOR
    )


def _of_mask(subject: Subject, kernel: Kernel, loop: cst.For, call: cst.Call) -> EdgeMask:
    source = subject.source
    at = f"line {source.line(call)}"
    line = next(a for a in source.ancestors(call) if isinstance(a, cst.SimpleStatementLine))
    match line.body:
        case [cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=target))], value=value)]:
            is_alone = value is call and len(positional(call)) == 3
        case _:
            is_alone = False
    if not is_alone:
        raise NotApplicable(f"{at} does more than to mask a tile")
    if tested := asked_in(source, loop, line):
        raise NotApplicable(f"{at} is masked under a condition already, that of line {tested}")
    mask, kept, fill = positional(call)
    is_float32 = ElementTypes(source, kernel.function).is_float32(kept)
    if constant_number(source, fill) is None or not is_float32:
        raise NotApplicable(f"{at} masks what may not be float32, or by more than a number")
    edges = edges_of(source, kept)
    if edges is None:
        raise NotApplicable(f"{at} masks a tile whose shape does not follow from the text")
    try:
        tests = edge_tests(source, loop, line, mask, READING)
        for run in (run for test in tests for run in test.runs):
            _check_covered(source, run, edges)
    except NotRegular as reason:
        raise NotApplicable(f"the mask of {at}: {reason}") from None
    condition, _, otherwise = call.args[:3]
    named = cst.Arg(cst.Name(target), comma=call.args[1].comma)
    again = call.with_changes(args=[condition, named, otherwise])
    return edge_mask(subject, kernel, line, MaskForm(target, kept, again), [mask, fill], tests)


def _check_covered(source: Source, run: IndexRange, edges: Edges) -> None:
    """The masked tile is as long as the mask, so that it needs no broadcast."""
    if run.length is not None and not (
        run.rank <= len(edges)
        and same_constant(source, edges[len(edges) - 1 - run.place], run.length)
    ):
        raise NotRegular("it may be larger than what it masks")
