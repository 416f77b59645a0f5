"""Rewrites grids of Triton launches to take block sizes from the config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.provenance import TileConstant
from agent.analysis.common.purity import is_pure
from agent.analysis.common.reaching_definitions import definition, traced
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import ROUNDING
from agent.analysis.triton.host import HostView, LaunchGrid
from agent.analysis.triton.spans import holds_at
from agent.rewriting.triton.edits import Edit, writing
from agent.syntax import Source, descendants, edited, is_commented, names_in

META = "META"


def grid_from_meta(
    source: Source, kernel: Kernel, launch: Launch, tiles: Sequence[TileConstant]
) -> dict[cst.CSTNode, Edit]:
    """The edits that let a launch's grid take tile sizes from the config, where it uses them.

    Raises:
        NotApplicable: the grid is not to be seen, serves another kernel as well, or is computed
            from what has another value at the launch, where a function of the config is asked.
    """
    grid = HostView(source, launch).grid
    constants = {x.node: t.constant for t in tiles for x in t.literals}
    meta = grid.meta or META
    moved: list[cst.BaseExpression] = [] if grid.meta is not None else [*grid.extents]
    texts = [_with_meta(source, extent, constants, meta, moved) for extent in grid.extents]
    if all(text is None for text in texts):
        return {}
    for expression in moved:
        check_unchanged(source, launch, expression)
    values = [t or source.code(e) for t, e in zip(texts, grid.extents, strict=True)]
    comma = "," if len(values) == 1 else ""
    listed = f"({', '.join(values)}{comma})"
    if grid.meta is not None:
        return {grid.node: lambda _: cst.parse_expression(listed)}
    if isinstance(launch.grid, cst.Name):
        others = {x.grid for x in kernel.launches}
        uses = {u for a in source.assignments(launch.grid) for u in source.uses(a)}
        if uses - others:
            line = source.line(next(iter(uses - others)))
            raise NotApplicable(
                f"line {line} uses `{launch.grid.value}` for more than {kernel.name}"
            )
    return {grid.node: lambda _: cst.parse_expression(f"lambda {META}: {listed}")}


def _with_meta(
    source: Source,
    expression: cst.BaseExpression,
    constants: Mapping[cst.Integer, str],
    meta: str,
    moved: list[cst.BaseExpression],
) -> str | None:
    """The text of an extent with tile sizes from the config; None when it uses none.

    What it takes from elsewhere, because a name stands for it, is added to `moved`.
    """
    if isinstance(expression, cst.Integer):
        return None
    renamed: dict[cst.CSTNode, str] = {}
    for name in descendants(expression, cst.Name):
        behind = traced(source, name)
        if isinstance(behind, cst.Integer) and behind in constants:
            renamed[name] = f'{meta}["{constants[behind]}"]'
        elif behind is not name and not isinstance(behind, cst.Integer):
            inner = _with_meta(source, behind, constants, meta, moved)
            if inner is not None:
                moved.append(behind)
                renamed[name] = inner if behind is expression else f"({inner})"
    for number in descendants(expression, cst.Integer):
        if number in constants:
            renamed[number] = f'{meta}["{constants[number]}"]'
    return _replaced(source, expression, renamed) if renamed else None


def _replaced(source: Source, node: cst.CSTNode, texts: Mapping[cst.CSTNode, str]) -> str:
    def bare(text: str) -> str:
        return text[1:-1] if text[0] == "(" else text

    if node in texts:
        return bare(texts[node])
    return source.code(edited(node, {part: writing(text) for part, text in texts.items()}))


def check_own_grid(source: Source, kernel: Kernel, launch: Launch) -> None:
    """Raise `NotApplicable` where a named grid serves another launch, or is asked for its items."""
    if isinstance(launch.grid, cst.Name):
        own = {x.grid for x in kernel.launches}
        uses = {u for a in source.assignments(launch.grid) for u in source.uses(a)}
        found = definition(source, launch.grid.value, launch.grid)
        if uses - own or (found is not None and isinstance(found.value, cst.Name)):
            line = source.line(launch.node)
            raise NotApplicable(f"the grid at line {line} has other uses")


def count_at(source: Source, launch: Launch, grid: LaunchGrid, extent: cst.BaseExpression) -> str:
    """An extent of a launch's grid, as the launch can give it to the kernel.

    Raises:
        NotApplicable: it has effects of its own, or another value there.
    """
    line = source.line(launch.node)
    texts: dict[cst.CSTNode, str] = {}
    for item in descendants(extent, cst.Subscript):
        match item:
            case cst.Subscript(
                value=cst.Name(value=name),
                slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString() as key))],
            ) if name == grid.meta and str(key.raw_value) in launch.arguments:
                given = launch.arguments[str(key.raw_value)]
                if is_pure(source, given, ROUNDING) and not is_commented(given):
                    simple = isinstance(given, cst.Name | cst.Integer)
                    texts[item] = source.code(given) if simple else f"({source.code(given)})"
    at_launch = edited(extent, {item: writing(text) for item, text in texts.items()})
    if (
        not is_pure(source, extent, ROUNDING)
        or is_commented(extent)
        or (grid.meta and grid.meta in names_in(at_launch))
    ):
        raise NotApplicable(f"the grid at line {line} is computed from the config or by calls")
    if grid.meta is None:
        check_unchanged(source, launch, extent)
    return source.code(at_launch)


def check_unchanged(source: Source, launch: Launch, expression: cst.BaseExpression) -> None:
    """Raise `NotApplicable` unless a part of a grid has the same value where the launch stands."""
    apart = not any(around is launch.node for around in source.ancestors(expression))
    if not holds_at(source, expression, launch.node) or (apart and changeable(expression)):
        code, line = source.code(expression), source.line(launch.node)
        raise NotApplicable(f"`{code}` changes between the grid and line {line}")


def changeable(expression: cst.BaseExpression) -> bool:
    """Whether it reads an attribute or an item that a line in between may assign; no shape."""
    gone = set()
    for item in descendants(expression, cst.Subscript):
        if isinstance(item.value, cst.Attribute) and item.value.attr.value == "shape":
            gone |= {item, item.value}
    methods = {c.func for c in descendants(expression, cst.Call)}
    found = [*descendants(expression, cst.Attribute), *descendants(expression, cst.Subscript)]
    return any(node not in gone and node not in methods for node in found)
