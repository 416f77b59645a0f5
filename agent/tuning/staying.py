"""A search over kernels whose blocks stay: its grid, and the extents that such a kernel is told.

A kernel that is launched with a block for each tile has a grid that follows from the tile sizes.
One whose blocks go from tile to tile is told that grid, and launched with as many blocks as the
multiprocessors hold. Both follow from the config, so that a search can try tile sizes, several
blocks a tile and blocks that stay together: one by one none of them gains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from agent.syntax import Edits
from agent.tuning.grid import GridFunction
from agent.tuning.plan import NUM_CTAS, OCCUPANCY, SearchPlan, hint_of
from agent.tuning.templates import NotTunable
from agent.tuning.text import INDENT

TILES = "tiles"
"""The function of the config that gives the old grid."""


@dataclass(frozen=True)
class Staying:
    """How a kernel is changed whose blocks are to stay."""

    edits: Edits
    """Those of the kernel."""
    extents: tuple[str, ...]
    """The parameters that it takes behind its own: the extents of the old grid, fastest first."""


def tiles_of(plan: SearchPlan, grid: GridFunction, staying: Staying) -> list[cst.BaseExpression]:
    """The expressions of the old grid that the kernel is told.

    Raises:
        NotTunable: the grid does not follow from the sizes that are searched, or hides its extents.
    """
    if not grid.varies or not {OCCUPANCY, NUM_CTAS} <= set(plan.hints):
        raise NotTunable(f"no tile size that the grid of {plan.kernel} follows is searched")
    for hint, value in zip(plan.dimensions, plan.fixed, strict=True):
        if hint in (OCCUPANCY, NUM_CTAS) and value is None and hint_of(plan.form, hint) is not None:
            raise NotTunable(f"{hint} of {plan.kernel} is no integer that a grid could follow")
    expression = grid.expression
    elements = expression.elements if isinstance(expression, cst.Tuple) else ()
    shown = [e.value for e in elements if isinstance(e, cst.Element)]
    if len(shown) < max(len(elements), len(staying.extents)):
        raise NotTunable(
            f"the grid of {plan.kernel} does not show its {len(staying.extents)} extents"
        )
    return shown[: len(staying.extents)]


def held_grid(staying: Staying, torch: str) -> Iterator[str]:
    """The lines of the function that gives the new grid."""
    properties = f"{torch}.cuda.get_device_properties({torch}.cuda.current_device())"
    extents = [f"n_{axis}" for axis in range(len(staying.extents))]
    inner = INDENT * 2
    yield f"\n{INDENT}def grid(config):\n"
    yield f"{inner}{', '.join(extents)}{',' * (len(extents) == 1)} = {TILES}(config)\n"
    yield f"{inner}n_sms = {properties}.multi_processor_count\n"
    yield f"{inner}held = n_sms // (config.{NUM_CTAS} or 1) * (config.{OCCUPANCY} or 1)\n"
    yield f"{inner}return (min(held, {' * '.join(extents)}),)\n"
