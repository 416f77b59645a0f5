"""Masks in the loops of a cuTile kernel that remove something of a few tiles only."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.edge_tests import EdgeMask, asked_in, edge_tests, keeps_its_name, loop_of
from agent.analysis.common.index_runs import IndexRange, NotRegular
from agent.analysis.common.seen_types import narrow_array
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.cutile.edge_tests import CHOOSE, READING
from agent.analysis.cutile.element_types import ElementTypes
from agent.analysis.cutile.index_ranges import same_constant
from agent.analysis.cutile.positive import constant_number
from agent.analysis.cutile.tile_shapes import Edges, edges_of
from agent.syntax import Source, descendants, positional

LOOKED_FOR = "looks for float32 tiles of a loop that are masked by their number, as at a diagonal"
"""What a refusal begins with."""


def edge_masks(subject: Subject, kernel: Kernel) -> list[EdgeMask]:
    """The masks of a kernel's own loops that do nothing in some of the steps.

    Raises:
        NotApplicable: there are none, with the reason of each.
    """
    source = subject.source
    masks = [
        (loop, call)
        for call in descendants(kernel.function.node.body, cst.Call)
        if source.name(call.func) == CHOOSE and (loop := loop_of(source, call))
    ]
    return of_each(
        masks,
        lambda mask: _of_mask(subject, kernel, *mask),
        f"{LOOKED_FOR}, and {kernel.name} has none",
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
    if constant_number(source, fill) is None or not ElementTypes(
        source, kernel.function
    ).is_float32(kept):
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
    starts = [start for test in tests for run in test.runs for start in run.starts]
    if narrow := narrow_array(source, subject.launches, kernel.name, starts):
        raise NotApplicable(f"the mask of {at} counts in numbers of {narrow}")
    texts = tuple(test.text for test in tests)
    others = [mask, *map(cst.parse_expression, texts)]
    if source.code(kept) != target and not keeps_its_name(target, others):
        raise NotApplicable(f"{at} gives the name of what it masks by")
    condition, _, otherwise = call.args[:3]
    named = cst.Arg(cst.Name(target), comma=call.args[1].comma)
    again = call.with_changes(args=[condition, named, otherwise])
    return EdgeMask(line, mask, target, kept, again, texts)


def _check_covered(source: Source, run: IndexRange, edges: Edges) -> None:
    """The masked tile is as long as the mask, so that it needs no broadcast."""
    if run.length is not None and not (
        run.rank <= len(edges)
        and same_constant(source, edges[len(edges) - 1 - run.place], run.length)
    ):
        raise NotRegular("it may be larger than what it masks")
