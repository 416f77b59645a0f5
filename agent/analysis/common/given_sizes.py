"""Tile sizes that could be others at the launches alone, whatever the host calls them.

`attention[grid](..., BLOCK_M=BLOCK, BLOCK_N=BLOCK)` takes both sizes from one name, of which the
grid is made, and which is kept for a backward pass. A kernel that goes over the blocks of `N` in a
loop does not ask how many the host thinks there are: the launch may give it another `BLOCK_N`, and
all the rest of the host stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.aliases import not_launched
from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.dialect import Dialect, Kernel, Launch
from agent.analysis.common.each_kernel import of_constants
from agent.analysis.common.grid_coverage import loop_covers
from agent.analysis.common.host_uses import (
    feeds,
    is_guard,
    is_handed_on,
    is_of_its_own,
    only_for_options,
)
from agent.analysis.common.needed_sizes import needed_size
from agent.analysis.common.provenance import grid_nodes, tile_names
from agent.analysis.common.purity import is_pure
from agent.analysis.common.size_changes import SizeChanges
from agent.analysis.common.stepped_alone import why_not_alone
from agent.analysis.common.subject import NotApplicable
from agent.syntax import Source, descendants, is_commented

KNOWN = ("builtins.max", "builtins.min", "triton.cdiv", "triton.next_power_of_2")
"""Calls without side effects in what a launch gives."""


@dataclass(frozen=True)
class GivenSize:
    """A tile size of a kernel that a loop of it goes on by."""

    kernel: Kernel
    constant: str
    given: tuple[cst.BaseExpression, ...]
    """What each launch gives it."""
    changes: SizeChanges


def given_sizes(
    dialect: Dialect, source: Source, kernel: Kernel, elsewhere: Mapping[str, str]
) -> tuple[tuple[GivenSize, ...], tuple[str, ...]]:
    """Those of a kernel, and why its other tile sizes are none, in words.

    Args:
        dialect: the kernel's language.
        source: the file.
        kernel: one of its kernels.
        elsewhere: constants that are left out, and why.
    """
    found: list[GivenSize] = []
    refused = dict(elsewhere)
    for constant in tile_names(dialect, source, kernel):
        if constant in elsewhere:
            continue
        try:
            found.append(given_size(dialect, source, kernel, constant))
        except NotApplicable as refusal:
            refused[constant] = str(refusal)
    return tuple(found), tuple(of_constants(kernel.name, refused))


def given_size(dialect: Dialect, source: Source, kernel: Kernel, constant: str) -> GivenSize:
    """The tile size behind a constant.

    Raises:
        NotApplicable: it is more than that, no loop goes over its blocks, or the host rests on it.
    """
    if not kernel.launches:
        raise not_launched(source, kernel)
    if constant not in kernel.constants:
        raise NotApplicable("it is an integer of the file, which no launch gives")
    flow = Flow(dialect, source, kernel, constant)
    if (refusal := needed_size(flow)) is not None:
        raise NotApplicable(refusal)
    if not loop_covers(flow):
        raise NotApplicable("no loop of the kernel goes over its blocks")
    if (refusal := why_not_alone(flow)) is not None:
        raise NotApplicable(refusal)
    given = tuple(_given(dialect, source, launch, constant) for launch in kernel.launches)
    changes = SizeChanges.of(flow).without_growth(unless=not _ends_at_another(flow))
    return GivenSize(kernel, constant, given, changes)


def _ends_at_another(flow: Flow) -> bool:
    """Whether a loop over its blocks ends where blocks of another size do.

    As the first loop of a causal attention ends at its rows: a part of the size divides that still.
    """
    dialect, source, kernel = flow.dialect, flow.source, flow.kernel
    loops = [loop for loop in descendants(flow.body, cst.For) if flow.carries(loop.iter)]
    others = set(tile_names(dialect, source, kernel)) - {flow.constant}
    return any(
        Flow(dialect, source, kernel, o).carries(loop.iter) for o in others for loop in loops
    )


def _given(dialect: Dialect, source: Source, launch: Launch, constant: str) -> cst.BaseExpression:
    """What a launch gives a constant.

    Raises:
        NotApplicable: it is not to be seen, or the host asks more of its name than a tile size.
    """
    line, given = source.line(launch.node), launch.arguments.get(constant)
    if not launch.complete:
        raise NotApplicable(f"the launch at line {line} hides arguments behind a `*`")
    if given is None or constant in launch.hidden:
        raise NotApplicable(f"the launch at line {line} does not show what it is given")
    if is_commented(given) or "\n" in source.code(given) or not _is_plain(source, given):
        raise NotApplicable(f"what the launch at line {line} gives is more than an expression")
    if _reads(source, launch, constant):
        raise NotApplicable(f"the grid at line {line} reads it, or may do so")
    if isinstance(given, cst.Name):
        for use in _asking(dialect, source, launch, given):
            number = source.line(use)
            raise NotApplicable(f"line {number} uses `{use.value}` for more than tiles and grid")
    return given


def _is_plain(source: Source, given: cst.BaseExpression) -> bool:
    """Whether an expression has no side effects, so that it may stand there twice or go."""
    match given:
        case cst.IfExp(test=test, body=body, orelse=orelse):
            return all(_is_plain(source, part) for part in (test, body, orelse))
    return is_pure(source, given, KNOWN)


def _reads(source: Source, launch: Launch, constant: str) -> bool:
    """Whether a grid that is a function of the config may read a constant from it."""
    for node in grid_nodes(source, launch):
        functions = [node, *descendants(node, cst.Lambda), *descendants(node, cst.FunctionDef)]
        taken = {
            param.name.value
            for function in functions
            if isinstance(function, cst.Lambda | cst.FunctionDef)
            for param in function.params.params
        }
        for name in (n for n in descendants(node, cst.Name) if n.value in taken):
            match next(source.ancestors(name)):
                case cst.Param():
                    continue
                case cst.Subscript(
                    slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString() as key))]
                ) if key.evaluated_value != constant:
                    continue
            return True
        if any(text.evaluated_value == constant for text in descendants(node, cst.SimpleString)):
            return True
    return False


def _asking(
    dialect: Dialect, source: Source, launch: Launch, given: cst.Name
) -> Iterator[cst.Name]:
    """Uses of a name that may rest on the kernel having the same size.

    A grid may be made of it where another tile of the kernel has the size, and keeps it.
    """
    launches = [x for kernel in dialect.kernels(source) for x in kernel.launches]
    sizes = {
        id(v)
        for x in launches
        for c, v in x.arguments.items()
        if c in _constants(dialect, source, x)
    }
    alike = [
        v for v in launch.arguments.values() if isinstance(v, cst.Name) and v.value == given.value
    ]
    grids = (
        {id(node) for x in launches for node in grid_nodes(source, x)} if len(alike) > 1 else set()
    )
    for use in (use for a in source.assignments(given) for use in source.uses(a)):
        if (
            use is given
            or id(use) in sizes
            or any(id(node) in grids for node in (use, *source.ancestors(use)))
            or is_of_its_own(source, use)
            or is_guard(source, use)
            or is_handed_on(source, use)
            or only_for_options(source, use, launches)
            or not feeds(source, use, launch, launches)
        ):
            continue
        yield use


def _constants(dialect: Dialect, source: Source, launch: Launch) -> frozenset[str]:
    kernel = next(k for k in dialect.kernels(source) if k.function is launch.kernel)
    return frozenset(kernel.constants)
