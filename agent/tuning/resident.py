"""The grid of a kernel whose blocks stay: as many as the multiprocessors hold at a time.

A search of the occupancy that launches one block a multiprocessor whatever the hint says times the
hint's cost, fewer registers, without what it is for. So where the grid is computed from the number
of multiprocessors, it follows the config: `min(sms // num_ctas, tiles) * occupancy` for a product,
`min(sms * occupancy, rows)` for others, as TileGym's recipes have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.strides import takes_any_grid
from agent.syntax import Untraceable, descendants, keyword
from agent.tuning.form import Form, local_assignments
from agent.tuning.grid import GridFunction, grid_of, removed
from agent.tuning.plan import NUM_CTAS, OCCUPANCY, SearchPlan, hint_of
from agent.tuning.templates import RESIDENT_OCCUPANCIES, NotTunable

MULTIPROCESSORS = "multi_processor_count"
PRODUCT = "T4"
SCALED = ("T1", "T2", PRODUCT)
"""A grouped product keeps one block a multiprocessor: its recipe searches the hint alone."""


def resident_grid(plan: SearchPlan, grid: GridFunction) -> GridFunction:
    """The grid of a plan with its hints followed, for a kernel that takes any grid."""
    form = plan.form
    if not plan.traits.persistent or not takes_any_grid(form.source, form.kernel):
        return grid
    sizes: Mapping[cst.CSTNode, str] = {
        found.node: constant for constant, found in plan.literals.items()
    }
    followed = _with_occupancy(plan, grid, sizes)
    return _scaled(plan, followed, sizes, multiplied=followed is not grid)


def for_resident_blocks(plan: SearchPlan, kernel_class: KernelClass) -> SearchPlan:
    """The plan with higher occupancies, where memory is the limit and the grid follows them."""
    if plan.tiles or plan.traits.multiplies or kernel_class is not KernelClass.MEMORY:
        return plan
    try:
        grid = resident_grid(plan, grid_of(plan.form, {}))
    except NotTunable:
        return plan  # whoever writes the search says so
    follows = OCCUPANCY in grid.names.values() or grid.suffixes
    if not follows or _keeps_from_tma(plan.form):
        return plan
    rows = tuple((n,) for n in RESIDENT_OCCUPANCIES if (n,) != plan.fixed)
    most = RESIDENT_OCCUPANCIES[-1]
    why = f"occupancies up to {most}: the grid has as many blocks as they hold"
    return replace(plan, space={80: rows}, why=(*plan.why, why))


def _keeps_from_tma(form: Form) -> bool:
    """Whether an access says `allow_tma=False`.

    With that and an occupancy of 16 a persistent rms norm is said to hang (TileGym, issue 169), and
    a search that hangs is worse than one that misses a config.
    """
    return any(
        keyword(call, "allow_tma") is not None
        for function in CUTILE.reached(form.source, form.kernel)
        for call in descendants(function.node.body, cst.Call)
    )


def _with_occupancy(
    plan: SearchPlan, grid: GridFunction, sizes: Mapping[cst.CSTNode, str]
) -> GridFunction:
    """The grid with the occupancy in it followed too, where it is the one of the decorator."""
    given = hint_of(plan.form, OCCUPANCY)
    if given is None:
        return grid
    try:
        literal = plan.form.source.trace(given)
    except Untraceable:
        return grid
    if not literal.names:
        return grid
    return _followed(plan, {**sizes, literal.node: OCCUPANCY}) or grid


def _followed(plan: SearchPlan, sizes: Mapping[cst.CSTNode, str]) -> GridFunction | None:
    """The grid as a function of these; None where what it is computed from has another use."""
    try:
        found = grid_of(plan.form, sizes)
        removed(plan.form, found, {each.node for each in plan.literals.values()})
    except NotTunable:
        return None
    return found if found.names else None


def _scaled(
    plan: SearchPlan, grid: GridFunction, sizes: Mapping[cst.CSTNode, str], *, multiplied: bool
) -> GridFunction:
    """The grid with the multiprocessors in it divided and multiplied by the config's hints.

    Only while this leaves the grid of the fixed config as it is: of a hint that is given, and that
    the grid ignores, nobody knows whether the author meant it to.
    """
    form, source = plan.form, plan.form.source
    if plan.template.name not in SCALED:
        return grid
    found = _multiprocessors(form)
    if found is None:
        return grid
    counted, name = found
    tracked = {**sizes, counted: ""}
    if multiplied and (given := hint_of(form, OCCUPANCY)) is not None:
        tracked[source.trace(given).node] = OCCUPANCY
    wider = _followed(plan, tracked)
    extent = _extent(form, wider) if wider is not None else None
    if wider is None or extent is None or not _has_no_other_use(form, name, wider):
        return grid
    smallest = _smallest(form, extent, counted)
    if smallest is None:
        return grid
    held, fewer = smallest
    per_sm = "" if multiplied else _hint(plan, OCCUPANCY, " * ")
    suffixes: dict[cst.CSTNode, str] = {}
    if plan.template.name == PRODUCT:
        suffixes[held] = _hint(plan, NUM_CTAS, " // ")
        if fewer is extent:
            suffixes[fewer] = suffixes.get(fewer, "") + per_sm
    elif fewer is extent:
        suffixes[held] = per_sm
    suffixes = {node: text for node, text in suffixes.items() if text}
    if not suffixes:
        return grid
    names = {n: field for n, field in wider.names.items() if field}
    return replace(wider, names=names, suffixes=suffixes)


def _hint(plan: SearchPlan, hint: str, operator: str) -> str:
    """`OPERATOR config.HINT`, for a hint that is searched and that the file leaves at one."""
    if hint not in plan.hints:
        return ""
    value = plan.fixed[plan.dimensions.index(hint)]
    if hint_of(plan.form, hint) is None:
        return f"{operator}(config.{hint} or 1)"
    return f"{operator}config.{hint}" if value == 1 else ""


def _multiprocessors(form: Form) -> tuple[cst.Attribute, cst.Name] | None:
    """What asks for the number of multiprocessors, and a name for it that the wrapper reads."""
    for name in descendants(form.wrapper.node.body, cst.Name):
        value = form.source.resolve(name)
        if isinstance(value, cst.Attribute) and value.attr.value == MULTIPROCESSORS:
            return value, name
    return None


def _extent(form: Form, grid: GridFunction) -> cst.BaseExpression | None:
    """The first extent of the grid, where the others are one."""
    expression = form.source.resolve(grid.expression)
    if not isinstance(expression, cst.Tuple) or not expression.elements:
        return None
    first, *others = [element.value for element in expression.elements]
    if any(form.source.code(other) != "1" for other in others):
        return None
    return form.source.resolve(first) if isinstance(first, cst.Name) else first


def _smallest(
    form: Form, extent: cst.BaseExpression, counted: cst.Attribute
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The multiprocessors in a grid, and the `min(...)` that they stand in."""
    source = form.source
    if not isinstance(extent, cst.Call):
        inner = extent.left if isinstance(extent, cst.BinaryOperation) else None
        if not isinstance(inner, cst.Call) or not isinstance(extent.operator, cst.Multiply):  # type: ignore[attr-defined]
            return None
    else:
        inner = extent
    if source.name(inner.func) not in ("min", "builtins.min") or len(inner.args) != 2:
        return None
    held = [a.value for a in inner.args if source.resolve(a.value) is counted]
    return (held[0], inner) if len(held) == 1 else None


def _has_no_other_use(form: Form, name: cst.Name, grid: GridFunction) -> bool:
    """Whether the wrapper reads the number of multiprocessors for its grid alone.

    An array with an element for each, or a kernel that is told how many, must not meet more.
    """
    moved = {grid.expression, *grid.moved}
    counted = form.source.resolve(name)
    for other in descendants(form.wrapper.node.body, cst.Name):
        if other.value != name.value and form.source.resolve(other) is not counted:
            continue
        if other in _assigned_names(form, other):
            continue
        if not any(around in moved for around in (other, *form.source.ancestors(other))):
            return False
    return True


def _assigned_names(form: Form, name: cst.Name) -> Iterator[cst.CSTNode]:
    return (a.node for a in local_assignments(form, name))
