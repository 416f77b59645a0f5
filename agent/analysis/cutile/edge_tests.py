"""Whether an `if` of a cuTile kernel is there for the tiles at an edge alone.

This file may not import the dialect, which asks it.
"""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.edge_tests import EITHER, Reading, edge_tests, loop_of
from agent.analysis.common.index_runs import NotRegular
from agent.analysis.cutile.index_ranges import holds_at, run_of
from agent.analysis.cutile.names import CT
from agent.syntax import Source, positional

CHOOSE = f"{CT}where"
READING = Reading(run_of, holds_at)


def is_edge_test(source: Source, line: cst.If) -> bool:
    """Whether an `if` masks a tile of which the mask removes nothing where the test fails.

    That is what follows from its own text, so that it holds for tiles of any size.
    """
    last = line.body.body[-1] if isinstance(line.body, cst.IndentedBlock) else None
    match last:
        case cst.SimpleStatementLine(
            body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as target)], value=value)]
        ) if isinstance(value, cst.Call) and source.name(value.func) == CHOOSE:
            given, loop = positional(value), loop_of(source, value)
            is_itself = source.code(given[1]) == target.value if len(given) == 3 else False
        case _:
            return False
    if line.orelse is not None or loop is None or not is_itself:
        return False
    try:
        tests = [each.text for each in edge_tests(source, loop, last, given[0], READING)]
    except NotRegular:
        return False
    return source.code(line.test) == EITHER.join(tests)
