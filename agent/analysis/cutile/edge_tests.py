"""Whether an `if` of a cuTile kernel is there for the tiles at an edge alone.

This file may not import the dialect, which asks it.
"""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.edge_tests import NumberReading, asks_for
from agent.analysis.cutile.index_ranges import holds_at, is_pure, run_of
from agent.analysis.cutile.names import CT
from agent.syntax import Source, positional

CHOOSE = f"{CT}where"
READING = NumberReading(run_of, holds_at, is_pure)


def is_edge_test(source: Source, line: cst.If) -> bool:
    """Whether an `if` masks a tile of which the mask removes nothing where the test fails."""
    last = line.body.body[-1] if isinstance(line.body, cst.IndentedBlock) else None
    match last:
        case cst.SimpleStatementLine(
            body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name() as target)], value=value)]
        ) if isinstance(value, cst.Call) and source.name(value.func) == CHOOSE:
            given = positional(value)
            is_itself = len(given) == 3 and source.code(given[1]) == target.value
            return is_itself and asks_for(source, line, given[0], READING)
    return False
