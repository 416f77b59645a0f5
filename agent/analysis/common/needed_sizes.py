"""Why a kernel needs a block to be as large as it is, in its own loops and in its helpers'."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.block_numbers import counting_access, counting_in_loops
from agent.analysis.common.block_places import bound_to_block
from agent.analysis.common.combining import combined_otherwise
from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.inner_flows import inner_flows
from agent.analysis.common.loop_ends import tile_past_loop
from agent.analysis.common.rounds import kept_block_by_block
from agent.analysis.common.running_maxima import begins_otherwise
from agent.syntax import assigned, descendants


def needed_size(flow: Flow) -> str | None:
    """Why a kernel needs a constant to be what it is; None when another size would do as well."""
    if (refusal := flow.refusal()) is not None:
        return refusal
    if (refusal := kept_block_by_block(flow)) is not None:
        return refusal
    if (refusal := combined_otherwise(flow)) is not None:
        return refusal
    return (
        _beside_another(flow)
        or _counts(flow, counting_access(flow))
        or bound_to_block(flow)
        or begins_otherwise(flow)
        or _up_to_an_end(flow)
        or _by_while(flow)
        or _by_helper(flow)
    )


def _beside_another(flow: Flow) -> str | None:
    """A tile of it that is combined with one of another size, as only equal ones or 1 allow."""
    found = flow.dialect.needs_one(flow.source, flow.kernel, flow.sizes)
    if found is None:
        return None
    node, other = found
    line = flow.source.line(node)
    return f"line {line} lays it along the dimension of {other}: they are equal, or one is 1"


def _up_to_an_end(flow: Flow) -> str | None:
    """Whole tiles up to the end of a loop that is no array's."""
    if (load := tile_past_loop(flow)) is None:
        return None
    line = flow.source.line(load)
    return f"line {line} takes in whole tiles up to its loop's end: the size decides how far"


def _by_while(flow: Flow) -> str | None:
    """A `while` loop that goes on by it: what its rounds hand on is not followed."""
    for loop in descendants(flow.body, cst.While):
        steps = [step.value for step in descendants(loop.body, cst.AugAssign)]
        sums = [
            value
            for target, value in assigned(loop.body)
            if isinstance(value, cst.BinaryOperation)
            and flow.source.code(target)
            in (flow.source.code(value.left), flow.source.code(value.right))
        ]
        if any(flow.carries(each) for each in (*steps, *sums)):
            return f"the `while` at line {flow.source.line(loop)} goes on by it, round by round"
    return None


def _by_helper(flow: Flow) -> str | None:
    """The same of a helper that is given it, for the helper's own loops."""
    for inner in inner_flows(flow):
        if (refusal := _by_loop(inner) or _by_while(inner) or _by_helper(inner)) is not None:
            return refusal
    return None


def _by_loop(flow: Flow) -> str | None:
    """The reason for which the loops over its blocks may not have other rounds."""
    if not flow.in_loop:
        return None
    if (refusal := kept_block_by_block(flow) or combined_otherwise(flow)) is not None:
        return refusal
    return _counts(flow, counting_in_loops(flow))


def _counts(flow: Flow, access: cst.Call | None) -> str | None:
    if access is None:
        return None
    return f"line {flow.source.line(access)} counts its blocks, so that they have one size"
