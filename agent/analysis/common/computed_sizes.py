"""Tile sizes that host code computes, and where they can be scaled before they are used.

`BLOCK = min(2048, triton.next_power_of_2(n))`, or `BLOCK, num_warps = settings(n)`, is no integer
of the file that could be another one. But where the name is used for grids and launches alone, and
is a tile size only to every kernel that is given it, a statement above its first use may scale it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import and_

import libcst as cst

from agent.analysis.common.aliases import not_launched
from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.dialect import Dialect, Kernel, Launch
from agent.analysis.common.each_kernel import all_refuse, of_constants
from agent.analysis.common.grid_coverage import loop_covers
from agent.analysis.common.host_uses import (
    is_guard,
    is_of_its_own,
    only_for_options,
)
from agent.analysis.common.intensity import in_loop
from agent.analysis.common.needed_sizes import needed_size
from agent.analysis.common.provenance import (
    UNCOVERED,
    check_grid_use,
    grid_nodes,
    sizes_tiles,
    tile_names,
)
from agent.analysis.common.size_changes import SizeChanges
from agent.analysis.common.subject import NotApplicable
from agent.syntax import Source, Untraceable, descendants


@dataclass(frozen=True)
class ComputedTile:
    """A name of the host that holds a tile size."""

    name: str
    place: cst.BaseStatement
    """The statement that uses it first."""
    changes: SizeChanges


def computed_tiles(
    dialect: Dialect, source: Source, kernel: Kernel, elsewhere: Mapping[str, str]
) -> Iterator[ComputedTile]:
    """The tile sizes of a kernel that its launches are given by one name each.

    Args:
        dialect: the kernel's language.
        source: the file.
        kernel: one of its kernels.
        elsewhere: constants that are left out, and why.

    Raises:
        NotApplicable: there is none; the message says why, size by size.
    """
    refused = dict(elsewhere)
    seen: set[str] = set()
    for constant in tile_names(dialect, source, kernel):
        if constant in elsewhere:
            continue
        try:
            found = _computed_tile(dialect, source, kernel, constant)
        except NotApplicable as refusal:
            refused[constant] = str(refusal)
            continue
        if found.name not in seen:
            seen.add(found.name)
            yield found
    if not seen:
        reasons = of_constants(kernel.name, refused)
        raise all_refuse(reasons, f"{kernel.name} has no named tile size")


def _computed_tile(dialect: Dialect, source: Source, kernel: Kernel, constant: str) -> ComputedTile:
    """The tile behind a constant that the host computes.

    Raises:
        NotApplicable: it is more than a tile size, or no name of the host's own.
    """
    if not kernel.launches:
        raise not_launched(source, kernel)
    names: list[cst.Name] = []
    for launch in kernel.launches:
        given, line = launch.arguments.get(constant), source.line(launch.node)
        if not launch.complete:
            raise NotApplicable(f"the launch at line {line} hides arguments behind a `*`")
        if not isinstance(given, cst.Name) or launch.function is None:
            raise NotApplicable(f"the launch at line {line} gives no variable for it")
        names.append(given)
    first = names[0]
    if all(_is_integer(source, name) for name in names):
        raise NotApplicable(
            "it is an integer of the file, and only what the host computes can be scaled"
        )
    if any(set(source.assignments(n)) != set(source.assignments(first)) for n in names):
        raise NotApplicable("its launches are given different variables for it")
    return _computed(dialect, source, first)


def _is_integer(source: Source, given: cst.Name) -> bool:
    try:
        source.trace(given, computed=True)
    except Untraceable:
        return False
    return True


def _computed(dialect: Dialect, source: Source, given: cst.Name) -> ComputedTile:
    """The tile behind a name of the host."""
    launches = [launch for kernel in dialect.kernels(source) for launch in kernel.launches]
    assignments = source.assignments(given)
    function = source.enclosing(given)
    nodes = [a.node for a in assignments]
    if not nodes or any(
        isinstance(node, cst.Param) or source.enclosing(node) is not function for node in nodes
    ):
        raise NotApplicable(f"`{given.value}` is not computed in this function")
    uses = list(chain.from_iterable(source.uses(assignment) for assignment in assignments))
    counted, changes = [], SizeChanges()
    for use in dict.fromkeys(uses):
        if is_of_its_own(source, use) or is_guard(source, use):
            continue
        if only_for_options(source, use, launches):
            continue
        changes &= _changes(dialect, source, use, launches)
        counted.append(use)
    return ComputedTile(given.value, _place(source, nodes, counted), changes)


def _changes(
    dialect: Dialect, source: Source, use: cst.Name, launches: list[Launch]
) -> SizeChanges:
    """Which changes are safe where a name is used.

    Raises:
        NotApplicable: the use is neither a tile size of a launch nor part of its grid.
    """
    given = [(x, c) for x in launches for c, value in x.arguments.items() if value is use]
    if given:  # one launch may be of several kernels
        changes = [_is_tile(dialect, source, launch, constant) for launch, constant in given]
        return reduce(and_, changes)
    around = (use, *source.ancestors(use))
    grids = [(x, grid_nodes(source, x)) for x in launches]
    owners = [x for x, nodes in grids if any(n in around for n in nodes)]
    if not owners:
        line = source.line(use)
        raise NotApplicable(f"line {line} uses `{use.value}` for more than tiles and grid")
    for launch in owners:
        if not any(
            isinstance(value, cst.Name) and value.value == use.value
            for value in launch.arguments.values()
        ):
            raise NotApplicable(f"the grid of {launch.kernel.name} uses it, and its tiles do not")
        # Another launch may have a grid of that name, of another assignment.
        check_grid_use(source, use, [node for _, nodes in grids for node in nodes], set())
    return SizeChanges()


def _is_tile(dialect: Dialect, source: Source, launch: Launch, constant: str) -> SizeChanges:
    """How a launch's constant may change; a `NotApplicable` where it is more than a tile size."""
    kernel = next(k for k in dialect.kernels(source) if k.function is launch.kernel)
    if constant not in kernel.constants:
        raise NotApplicable(f"{kernel.name} takes it as {constant}, which is no constant")
    flow = Flow(dialect, source, kernel, constant)
    if (refusal := needed_size(flow)) is not None:
        raise NotApplicable(refusal)
    given = launch.arguments[constant]
    assert isinstance(given, cst.Name)
    grid = grid_nodes(source, launch)
    sizes_grid = any(n.value == given.value for g in grid for n in descendants(g, cst.Name)) or any(
        text.raw_value == constant for g in grid for text in descendants(g, cst.SimpleString)
    )
    if not loop_covers(flow) and not sizes_grid:
        raise NotApplicable(UNCOVERED)
    if not flow.in_loop and not sizes_tiles(flow):
        raise NotApplicable(f"no tile of {kernel.name} goes by it")
    return SizeChanges.of(flow)


def _place(source: Source, nodes: list[cst.CSTNode], uses: list[cst.Name]) -> cst.BaseStatement:
    """The statement of a first use, behind all assignments.

    Raises:
        NotApplicable: some way to a use passes no place where it could be scaled.
    """
    if any(in_loop(source, node) for node in nodes):
        raise NotApplicable("it is computed in a loop")
    blocks = [
        [a for a in source.ancestors(node) if isinstance(a, cst.IndentedBlock)]
        for node in (*nodes, *uses)
    ]
    common = next((b for b in blocks[0] if all(b in others for others in blocks)), None)
    if common is None or not uses:
        raise NotApplicable("it is not computed where it is used")
    number = {id(statement): n for n, statement in enumerate(common.body)}

    def place_of(node: cst.CSTNode) -> int:
        return next(number[id(a)] for a in source.ancestors(node) if id(a) in number)

    first, last = min(map(place_of, uses)), max(map(place_of, nodes))
    if first <= last:
        raise NotApplicable("it is used where it is computed, or before")
    place = common.body[first]
    assert isinstance(place, cst.BaseStatement)
    return place
