"""Launches of a Triton kernel with no more programs than have anything to store."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.purity import is_pure
from agent.analysis.common.reaching_definitions import binds
from agent.analysis.common.subject import NotApplicable
from agent.analysis.common.sums import Terms
from agent.analysis.triton.dialect import ROUNDING
from agent.analysis.triton.heuristics import heuristics_of
from agent.analysis.triton.host import HostView, LaunchGrid, triton_module
from agent.analysis.triton.idle_programs import Need
from agent.analysis.triton.spans import holds_at
from agent.rewriting.triton.edits import Edit, writing
from agent.rewriting.triton.grid import changeable, check_own_grid
from agent.syntax import Source, descendants, is_commented

ATOMS = (cst.Name, cst.Integer, cst.Attribute, cst.Call, cst.Subscript)
"""What needs no parentheses in a product."""


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
        NotApplicable: the grid serves another launch as well, what the kernel is given is not to be
            seen where the grid is made, or no extent is more than one program.
    """
    line = source.line(launch.node)
    check_own_grid(source, kernel, launch)
    view = HostView(source, launch)
    grid = view.grid
    check_builtins(source, launch.node, "max", "min")
    module = triton_module(source, kernel)
    found: dict[cst.CSTNode, Edit] = {}
    for axis, along in needs.items():
        extent = grid.extents[axis] if axis < len(grid.extents) else None
        if extent is None or source.code(extent) == "1":
            continue
        if is_commented(extent) or any(_is_count(view, axis, need) for need in along):
            raise NotApplicable(f"the grid at line {line} is counted by what is stored already")
        names = {name for need in along for name in need.parameters}
        given = {name: _given(source, kernel, launch, grid, extent, name) for name in sorted(names)}
        counts = [_count(module, need, given) for need in along]
        own = source.code(extent)
        if all(count in own for count in counts):
            raise NotApplicable(f"the grid at line {line} is counted by what is stored already")
        most = counts[0] if len(counts) == 1 else f"max({', '.join(counts)})"
        signs = _signs(along, given)
        otherwise = f" if {signs} else {own if isinstance(extent, ATOMS) else f'({own})'}"
        found[extent] = writing(f"min({own}, {most})" + (otherwise if signs else ""))
    if not found:
        raise NotApplicable(f"the launch at line {line} has one program along each such axis")
    return found


def _is_count(view: HostView, axis: int, need: Need) -> bool:
    """Whether a launch has the programs that are needed, whatever it is given."""
    match [*need.length.items()], need.step, need.times:
        case [((length,), 1)], (block,), 1:
            return view.is_cdiv(view.extent(axis), length, block)
    return False


def _given(
    source: Source,
    kernel: Kernel,
    launch: Launch,
    grid: LaunchGrid,
    extent: cst.BaseExpression,
    name: str,
) -> str:
    """What a parameter is given, as an operand where the grid is made."""
    view, line = HostView(source, launch), source.line(launch.node)
    is_shown = name in launch.arguments
    if not is_shown and grid.meta is not None and name in kernel.constants:
        return f'{grid.meta}["{name}"]'
    wrapped = name in heuristics_of(source, kernel) or (
        not is_shown and len(kernel.function.node.decorators) > 1
    )
    value = view.given(name)
    if value is None or wrapped or not is_pure(source, value, ROUNDING) or is_commented(value):
        raise NotApplicable(f"the launch at line {line} does not show {name}")
    if is_shown and not _holds(source, launch, grid, extent, value):
        code = source.code(value)
        raise NotApplicable(f"`{code}` may be something else where the grid of line {line} is made")
    simple = isinstance(value, ATOMS) or value.lpar
    return source.code(value) if simple else f"({source.code(value)})"


def _holds(
    source: Source,
    launch: Launch,
    grid: LaunchGrid,
    extent: cst.BaseExpression,
    value: cst.BaseExpression,
) -> bool:
    """Whether an argument of a launch has the same value in its grid.

    A grid that is a function is asked at the launch, and sees what that sees, but for names of its
    own.
    """
    inner = []
    for around in source.ancestors(extent):
        if around is launch.node:
            break
        if isinstance(around, cst.Lambda | cst.FunctionDef):
            if launch.function is not None and around is launch.function.node:
                break
            inner.append(around)
    else:
        if launch.function is not None:
            return False  # the grid is made elsewhere
    if not inner:
        apart = launch.node not in source.ancestors(extent)
        return holds_at(source, value, extent) and not (apart and changeable(value))
    names = {name.value for name in descendants(value, cst.Name)}
    own = {
        param.name.value
        for function in inner
        for param in (*function.params.posonly_params, *function.params.params)
    }
    bound = any(
        isinstance(function, cst.FunctionDef) and binds(function.body, name)
        for function in inner
        for name in names
    )
    return grid.meta is not None and names.isdisjoint(own) and not bound


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
    positive = {name for need in needs for name in need.positive}
    others = {name for need in needs for name in need.not_negative} - positive
    return " and ".join(
        [f"{given[name]} > 0" for name in sorted(positive) if not given[name].isdigit()]
        + [f"{given[name]} >= 0" for name in sorted(others) if not given[name].isdigit()]
    )
