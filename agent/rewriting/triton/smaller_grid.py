"""Launches of a Triton kernel with no more programs than have anything to store.

What is needed is computed where the launch stands, from what that gives the kernel: a grid that is
made elsewhere is written out there. Where something of it may be no integer, or another one than
the kernel gets, the launch stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.host_integers import is_integer
from agent.analysis.common.module_names import reached_as
from agent.analysis.common.purity import is_pure
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.common.sums import Terms
from agent.analysis.triton.dialect import ROUNDING
from agent.analysis.triton.host import HostView, LaunchGrid
from agent.analysis.triton.idle_programs import Need
from agent.analysis.triton.tables import computed_by
from agent.rewriting.triton.edits import Edit, writing
from agent.rewriting.triton.grid import check_unchanged
from agent.syntax import Source, descendants, is_commented

ATOMS = (cst.Name, cst.Integer, cst.Attribute, cst.Call, cst.Subscript)
"""What needs no parentheses in a product."""
COMPUTED = (*ROUNDING, "builtins.int", "builtins.len", "builtins.max", "builtins.min")
"""What a host may compute an argument by: called twice, it gives the same."""


def with_fewer_programs(
    source: Source, kernel: Kernel, launch: Launch, needs: Mapping[int, Collection[Need]]
) -> dict[cst.CSTNode, Edit]:
    """The edits that bound the extents of a launch's grid by what the kernel's stores need.

    Args:
        source: the file.
        kernel: the kernel.
        launch: one of its launches.
        needs: axis -> what is needed along it, the most of which counts.

    Raises:
        NotApplicable: the grid cannot be written at the launch, what the kernel is given there is
            not to be seen or may be no integer, or no extent is more than one program.
    """
    line = source.line(launch.node)
    _check_sole(source, kernel, launch)
    view = HostView(source, launch)
    grid = view.grid
    check_builtins(source, launch.node, "max", "min")
    module = reached_as(source, "triton", launch.node)
    if module is None:
        raise NotApplicable(f"line {line} would need triton, which has no name there")
    bounded: dict[int, str] = {}
    for axis, along in needs.items():
        extent = grid.extents[axis] if axis < len(grid.extents) else None
        if extent is None or source.code(extent) == "1":
            continue
        if is_commented(extent) or any(_is_count(view, axis, need) for need in along):
            raise NotApplicable(f"the grid at line {line} is counted by what is stored already")
        names = {name for need in along for name in need.parameters}
        given = {name: _given(source, kernel, launch, grid, name) for name in sorted(names)}
        bounded[axis] = _bounded(source, module, extent, along, given, alone=len(needs) == 1)
    if not bounded:
        raise NotApplicable(f"the launch at line {line} has one program along each such axis")
    written = _written_as(source, launch, grid, module)
    if written is None:
        return {grid.extents[axis]: writing(text) for axis, text in bounded.items()}
    texts = [bounded.get(axis, source.code(each)) for axis, each in enumerate(grid.extents)]
    listed = f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    return {launch.grid: writing(f"{written}{listed}")}


def _bounded(
    source: Source,
    module: str,
    extent: cst.BaseExpression,
    along: Collection[Need],
    given: Mapping[str, str],
    *,
    alone: bool,
) -> str:
    """`min(n, triton.cdiv(n, BLOCK))`.

    Two extents below zero make a number of programs above it: of several none may be.
    """
    own, line = source.code(extent), source.line(extent)
    counts = [_count(module, need, given) for need in along]
    shown = [source.code(a.value) for a in extent.args] if isinstance(extent, cst.Call) else []
    if own in counts or {*counts} <= {*shown}:
        raise NotApplicable(f"the grid at line {line} is counted by what is stored already")
    if any(given[name] == "0" for need in along for name in need.positive):
        raise NotApplicable(f"the launch at line {line} gives 0 for what a program goes on by")
    most = counts if alone else [*counts, "0"]
    needed = most[0] if len(most) == 1 else f"max({', '.join(most)})"
    smaller, signs = f"min({own}, {needed})", _signs(along, given)
    if not signs:
        return smaller
    return f"{smaller} if {signs} else {own if isinstance(extent, ATOMS) else f'({own})'}"


def _check_sole(source: Source, kernel: Kernel, launch: Launch) -> None:
    """Raise `NotApplicable` where the launch may be of something else than the kernel as it stands.

    So may be one whose name is given twice, as by `k = triton.autotune(...)(k)`, and what a table
    that stands elsewhere gives the kernel in place of the launch.
    """
    line = source.line(launch.node)
    called = launch.node.func
    name = called.value if isinstance(called, cst.Subscript) else None
    assignments = source.assignments(name) if isinstance(name, cst.Name) else ()
    if len(assignments) != 1 or launch.shared_with:
        raise NotApplicable(f"the launch at line {line} may be of another kernel, too")
    if not launch.complete:
        raise NotApplicable(f"the launch at line {line} hides arguments behind a `*`")
    if any(True for _ in descendants(launch.node, cst.NamedExpr)):
        raise NotApplicable(f"the launch at line {line} sets a name")
    for decorator in kernel.function.node.decorators:
        made = decorator.decorator
        named = source.name(made.func if isinstance(made, cst.Call) else made)
        table = computed_by(source, made)
        plain = named in ("triton.jit", "triton.autotune") and table is None
        if not plain and (table is None or None in table):
            raise NotApplicable(
                f"`{source.code(made)}` may give {kernel.name} something of its own"
            )


def _written_as(source: Source, launch: Launch, grid: LaunchGrid, module: str) -> str | None:
    """What comes before a grid that is written out at the launch, `lambda META: ` or nothing; None
    where it stands there.

    Args:
        source: the file.
        launch: whose grid it is.
        grid: its extents.
        module: what triton is called there.

    Raises:
        NotApplicable: it cannot be written there.
    """
    line = source.line(launch.node)
    made = value_of(source, launch.grid)
    if isinstance(made, cst.Lambda) and grid.node is made.body:
        own = made.params
        others = (own.kwonly_params, own.posonly_params, own.star_kwarg, own.params[1:])
        sets = any(True for _ in descendants(made, cst.NamedExpr))
        hides = grid.meta in ("max", "min", module)
        if grid.meta is None or any(others) or own.params[0].default is not None or sets or hides:
            raise NotApplicable(f"the grid at line {line} has names of its own")
        if made is launch.grid:
            return None
        if _scope(source, made) is _scope(source, launch.node):  # its names are those there
            return f"lambda {grid.meta}: "
    if grid.node is launch.grid:
        return None
    pure = all(is_pure(source, each, COMPUTED) for each in grid.extents)
    if grid.meta is not None or not isinstance(grid.node, cst.Tuple) or not pure:
        raise NotApplicable(f"the grid at line {line} is computed elsewhere")
    for each in grid.extents:
        check_unchanged(source, launch, each)
    return ""


def _scope(source: Source, node: cst.CSTNode) -> cst.CSTNode:
    """The innermost function, lambda, comprehension, class or module around a node."""
    kinds = cst.Lambda | cst.FunctionDef | cst.BaseComp | cst.ClassDef | cst.Module
    return next(around for around in source.ancestors(node) if isinstance(around, kinds))


def _is_count(view: HostView, axis: int, need: Need) -> bool:
    """Whether a launch has the programs that are needed, whatever it is given."""
    match [*need.length.items()], need.step, need.times:
        case [((length,), 1)], (block,), 1:
            return view.is_cdiv(view.extent(axis), length, block)
    return False


def _given(source: Source, kernel: Kernel, launch: Launch, grid: LaunchGrid, name: str) -> str:
    """What a parameter is given, as an operand at the launch."""
    line = source.line(launch.node)
    tables = (computed_by(source, d.decorator) or {} for d in kernel.function.node.decorators)
    value = launch.arguments.get(name)
    if value is None and grid.meta is not None and name in kernel.constants:
        return f'{grid.meta}["{name}"]'
    if value is None and len(kernel.function.node.decorators) == 1:
        defaults = {p.name.value: p.default for p in kernel.function.parameters}
        value = defaults[name] if isinstance(defaults[name], cst.Integer) else None
    if (
        value is None
        or any(name in table for table in tables)
        or not is_pure(source, value, COMPUTED)
        or is_commented(value)
        or (grid.meta is not None and _names(value, grid.meta))
    ):
        raise NotApplicable(f"the launch at line {line} does not show {name}")
    if not is_integer(source, value):
        code = source.code(value)
        raise NotApplicable(f"`{code}` at line {line} may be no integer, as far as the file tells")
    simple = isinstance(value, ATOMS) or value.lpar
    return source.code(value) if simple else f"({source.code(value)})"


def _names(value: cst.BaseExpression, name: str) -> bool:
    return any(each.value == name for each in descendants(value, cst.Name))


def _count(module: str, need: Need, given: Mapping[str, str]) -> str:
    """`triton.cdiv(n - first, BLOCK * stride)`."""
    step = _product(need.step, need.times, given)
    return f"{module}.cdiv({_sum(need.length, given)}, {step})"


def _sum(terms: Terms, given: Mapping[str, str]) -> str:
    ordered = sorted(terms.items(), key=lambda term: (term[1] < 0, not term[0], term[0]))
    text = ""
    for names, often in ordered:
        part = _product(names, abs(often), given)
        if text:
            text += f" {'-' if often < 0 else '+'} {part}"
        else:
            text = f"-{part}" if often < 0 else part
    return text or "0"


def _product(names: Collection[str], often: int, given: Mapping[str, str]) -> str:
    factors = [given[name] for name in names]
    return " * ".join([*([str(often)] if often != 1 or not factors else []), *factors])


def _signs(needs: Collection[Need], given: Mapping[str, str]) -> str:
    """What has to be so for the needs, in Python; empty where it is known."""
    positive = {given[name] for need in needs for name in need.positive}
    others = {given[name] for need in needs for name in need.not_negative} - positive
    return " and ".join(
        [f"{text} > 0" for text in sorted(positive) if not text.isdigit()]
        + [f"{text} >= 0" for text in sorted(others) if not text.isdigit()]
    )
