"""Wraps a Triton kernel in a loop over its programs, and launches fewer of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.purity import is_pure
from agent.analysis.common.reaching_definitions import binds
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.arguments import run_time
from agent.analysis.triton.counting_loops import over_programs
from agent.analysis.triton.dialect import ROUNDING, TRITON
from agent.analysis.triton.host import (
    HostView,
    LaunchGrid,
    language,
    launches_in_sight,
    torch_module,
)
from agent.analysis.triton.multiprocessors import grid_follows_gpu
from agent.analysis.triton.program_ids import NUM_PROGRAMS, ProgramIndex, program_indices
from agent.analysis.triton.waiting import check_never_waits
from agent.rewriting.common.insertion import free_name, part_of_number, unused
from agent.rewriting.common.preceding import preceded
from agent.rewriting.triton.early_returns import (
    beyond,
    changed_behind,
    early_returns,
    without_returns,
)
from agent.rewriting.triton.edits import (
    Edit,
    giving,
    parenthesized,
    removing,
    statement_of,
    with_parameters,
    writing,
)
from agent.rewriting.triton.grid import check_own_grid, check_unchanged
from agent.rewriting.triton.loads_ahead import Pipelined, stages_of
from agent.rewriting.triton.numbers import casts_of_number
from agent.rewriting.triton.own_parameters import own_parameters
from agent.syntax import Source, argument, descendants, names_in

COMPUTED = (*ROUNDING, "builtins.max", "builtins.min", "max", "min")
"""What a host may compute an extent by: called twice, it gives the same."""


@dataclass(frozen=True)
class ProgramCount:
    """How many programs there are along an axis, as the kernel says it."""

    name: str
    known: str | None
    """What the kernel computes it from; None where it has to be handed in."""


@dataclass(frozen=True)
class Rounds:
    """A kernel whose programs can become the rounds of a loop."""

    source: Source
    kernel: Kernel
    indices: tuple[ProgramIndex, ...]
    extents: tuple[ProgramCount, ...]
    """Of the grid, one an axis."""

    @property
    def product(self) -> str:
        """How many programs there are."""
        return " * ".join(extent.name for extent in self.extents)


def extents_of(source: Source, kernel: Kernel) -> Rounds:
    """How far a kernel's programs count. Raises `NotApplicable` for one that cannot be looped."""
    indices = program_indices(source, kernel, counts=True)
    _check_body(source, kernel)
    launches = launches_in_sight(source, kernel, hidden=True)
    views = [HostView(source, launch) for launch in launches]
    axes = max([*(i.axis for i in indices), *(_last_axis(view) for view in views)]) + 1
    tl = language(source, kernel)
    extents: list[ProgramCount] = []
    for axis in range(axes):
        name = unused(kernel, "n_programs" if axes == 1 else f"grid_{axis}")
        known = _known(kernel, views, axis, tl, run_time(kernel))
        if known is not None and (known.isidentifier() or axes == 1):
            name = known
        extents.append(ProgramCount(name, known))
    return Rounds(source, kernel, indices, tuple(extents))


def count_of(source: Source, kernel: Kernel, axis: int) -> str | None:
    """The parameter that says how many programs every launch has along an axis, if one does."""
    views = [HostView(source, launch) for launch in launches_in_sight(source, kernel, hidden=True)]
    unchanged = [n for n in run_time(kernel) if not binds(kernel.function.node.body, n)]
    known = _known(kernel, views, axis, language(source, kernel), unchanged)
    return known if known is not None and known.isidentifier() else None


def _last_axis(view: HostView) -> int:
    """The last axis of a launch's grid that has more than one program."""
    extents = view.grid.extents
    return max((i for i, e in enumerate(extents) if view.source.code(e) != "1"), default=0)


def _known(
    kernel: Kernel, views: Sequence[HostView], axis: int, tl: str, lengths: Sequence[str]
) -> str | None:
    """An extent that the kernel can compute itself: a parameter, or `tl.cdiv` of two.

    None as well when more than one would do: they may differ once a block size changes.
    """
    found = []
    for length in (n for n in lengths if all(n in view.launch.arguments for view in views)):
        if all((e := v.extent(axis)) is not None and v.is_given(e, length) for v in views):
            found.append(length)
        found += [
            f"{tl}.cdiv({length}, {block})"
            for block in kernel.constants
            if all(view.is_cdiv(view.extent(axis), length, block) for view in views)
        ]
    return found[0] if len(found) == 1 else None


def _check_body(source: Source, kernel: Kernel) -> None:
    """Raise `NotApplicable` for a body that is not the same when run twice in one program."""
    body = kernel.function.node.body
    if not isinstance(body, cst.IndentedBlock):
        raise NotApplicable(f"{kernel.name} is written on one line")
    early = early_returns(body)
    for leaving in descendants(body, cst.Return):
        if leaving not in early:
            raise NotApplicable(f"line {source.line(leaving)} returns from {kernel.name}")
    if (name := changed_behind(body)) is not None:
        raise NotApplicable(f"{kernel.name} sets {name} before it may return, and again behind")
    check_never_waits(source, kernel)
    if (loop := over_programs(source, kernel)) is not None:
        raise NotApplicable(
            f"{kernel.name} is persistent already: its loop at line {source.line(loop)}"
        )


# --- the kernel ---------------------------------------------------------------------------------


def kernel_edits(
    rounds: Rounds,
    pipelined: Pipelined | None = None,
    *,
    flatten: bool = False,
    elsewhere: bool = False,
) -> dict[cst.CSTNode, Edit]:
    """The edits that put the body of a kernel into a loop over its programs.

    Args:
        rounds: the kernel.
        pipelined: how far loads are ahead; as the launch says when None.
        flatten: have the compiler make one loop of this one and the loop in it.
        elsewhere: other files launch it, with a program for each round: that holds without what
            is added to its parameters, where the grid has one axis.
    """
    source, kernel = rounds.source, rounds.kernel
    function = kernel.function.node
    tl = language(source, kernel)
    first = rounds.indices[0]
    named = len(rounds.extents) == 1 and len(rounds.indices) == 1 and first.name is not None
    variable = first.name if named and first.name else unused(kernel, "program")
    edits = _counts(rounds) if named else _replacements(rounds, variable)
    alone = [index.call for index in rounds.indices if len(rounds.extents) == 1]
    edits |= casts_of_number(function.body, alone, variable, tl)
    own, copies = own_parameters(source, kernel, variable)
    edits |= own
    stages, as_fits = stages_of(source, kernel, pipelined, tl) if pipelined else ("", [])
    options = f", num_stages={stages}" if stages else ""
    options += ", flatten=True" if flatten else ""
    bounds = f"{tl}.program_id(0), {rounds.product}, {tl}.num_programs(0)"
    counted = [
        cst.parse_statement(f"{extent.name} = {extent.known}")
        for extent in rounds.extents
        if extent.known not in (None, extent.name)
    ]
    added = [extent.name for extent in rounds.extents if extent.known is None]
    by_default = elsewhere and len(rounds.extents) == 1
    if by_default:
        counted += [
            cst.parse_statement(f"if {name} is None:\n    {name} = {tl}.num_programs(0)\n")
            for name in added
        ]
    counted += [cst.parse_statement(line) for line in as_fits]
    head = cst.parse_statement(f"for {variable} in {tl}.range({bounds}{options}): pass")
    body = cst.ensure_type(function.body, cst.IndentedBlock)
    product = rounds.product
    gone = body.body.index(first.line) if named and first.line is not None else None
    leading = first.line.leading_lines if named and first.line is not None else ()

    def edit(updated: cst.IndentedBlock) -> cst.IndentedBlock:
        inner = [s for i, s in enumerate(updated.body) if i != gone]
        docstring = inner[:1] if function.get_docstring() is not None else []
        first_lines = [cst.parse_statement(line) for line in copies]
        left = [s for s in inner[len(docstring) :] if not (named and beyond(s, variable, product))]
        rest = without_returns(left)
        loop = cst.ensure_type(head, cst.For).with_changes(
            leading_lines=leading,
            body=cst.IndentedBlock(_tight([*first_lines, *rest]), footer=updated.footer),
        )
        return updated.with_changes(body=[*docstring, *counted, loop], footer=())

    edits[body] = edit
    if not added:
        return edits
    # A launch that does not give it, as another file may hold one, fails: it loops to None.
    return edits | with_parameters(source, kernel, added, default="None", always=by_default)


def _tight(lines: Sequence[cst.BaseStatement]) -> Sequence[cst.BaseStatement]:
    """Statements of a block, of which the first has no blank line above it."""
    first, *rest = lines
    above = [*dropwhile(lambda line: line.comment is None, getattr(first, "leading_lines", ()))]
    return [first.with_changes(leading_lines=above), *rest]


def _replacements(rounds: Rounds, variable: str) -> dict[cst.CSTNode, Edit]:
    """Write a program's place on each axis in terms of its number, and the old grid's extents."""
    source = rounds.source
    edits = _counts(rounds)
    numbered = _numbered(rounds)
    for node in numbered:
        edits[node] = writing(variable)
    inside = {call for node in numbered for call in descendants(node, cst.Call)}
    for index in rounds.indices:
        if index.call not in inside:
            extents = [extent.name for extent in rounds.extents]
            part = part_of_number(variable, extents, index.axis)
            edits[index.call] = writing(parenthesized(source, index.call, part))
    return {node: edit for node, edit in edits.items() if node not in inside}


def _counts(rounds: Rounds) -> dict[cst.CSTNode, Edit]:
    """Write the old grid's extents where the kernel asks how many programs there are."""
    source, kernel = rounds.source, rounds.kernel
    edits: dict[cst.CSTNode, Edit] = {}
    for call in TRITON.find(source, kernel.function.node.body, (NUM_PROGRAMS,)):
        axis = argument(call, 0, "axis")
        if not isinstance(axis, cst.Integer):
            raise NotApplicable(f"line {source.line(call)} counts programs on a computed axis")
        place = axis.evaluated_value
        extent = rounds.extents[place].name if place < len(rounds.extents) else "1"
        edits[call] = writing(parenthesized(source, call, extent))
        alone, line = [*source.ancestors(call)][:2]
        if isinstance(alone, cst.Expr) and isinstance(line, cst.SimpleStatementLine):
            del edits[call]  # a statement of its own, which does nothing
            edits[line] = removing
    return edits


def _numbered(rounds: Rounds) -> list[cst.BinaryOperation]:
    """The expressions that number the programs of a grid of two axes, as grouping does."""
    source, kernel = rounds.source, rounds.kernel
    if len(rounds.extents) != 2:
        return []
    tl = language(source, kernel)
    number = f"{tl}.program_id(0) + {tl}.program_id(1) * {tl}.num_programs(0)"
    return [
        operation
        for operation in descendants(kernel.function.node.body, cst.BinaryOperation)
        if source.code(operation) == number
    ]


# --- the launches -------------------------------------------------------------------------------


def host_edits(rounds: Rounds, programs_per_sm: int) -> dict[cst.CSTNode, Edit]:
    """The edits of the launches: a smaller grid, and the extents of the old one as arguments."""
    edits: dict[cst.CSTNode, Edit] = {}
    for launch in rounds.kernel.launches:
        edits |= _launched(rounds, launch, programs_per_sm)
    return edits


def _launched(rounds: Rounds, launch: Launch, programs_per_sm: int) -> dict[cst.CSTNode, Edit]:
    source = rounds.source
    view = HostView(source, launch)
    grid = view.grid
    line = source.line(launch.node)
    if grid_follows_gpu(source, launch):
        raise NotApplicable(
            f"the grid at line {line} follows from the GPU's multiprocessors already"
        )
    texts = [source.code(extent) for extent in grid.extents]
    texts = [f"({t})" if _is_sum(e) else t for t, e in zip(texts, grid.extents, strict=True)]
    product = " * ".join(t for t in texts if t != "1") or "1"
    keywords: dict[str, str] = {}
    for axis, own in enumerate(rounds.extents):
        if own.known is not None:
            continue
        extent = grid.extents[axis] if axis < len(grid.extents) else None
        computed = extent is None or grid.meta in names_in(extent) or _is_local(view, extent)
        if extent is None or computed or not is_pure(source, extent, COMPUTED):
            raise NotApplicable(f"the grid at line {line} is computed from the config or by calls")
        if grid.meta is None:
            check_unchanged(source, launch, extent)
        keywords[own.name] = source.code(extent)
    statement = statement_of(source, launch)
    check_builtins(source, launch.node, "min")
    n_sms = free_name(source, "n_sms")
    torch = torch_module(source, "which knows the multiprocessors", launch.node)
    properties = f"{torch}.cuda.get_device_properties({torch}.cuda.current_device())"
    resident = n_sms if programs_per_sm == 1 else f"{n_sms} * {programs_per_sm}"
    smaller = cst.parse_expression(f"(min({product}, {resident}),)")
    given = f"{n_sms} = {properties}.multi_processor_count"
    place = _counted_at(source, launch, grid, statement)
    written: cst.CSTNode = grid.node
    try:
        check_own_grid(source, rounds.kernel, launch)
    except NotApplicable:  # it is written out at this launch, and stays for the others
        if grid.meta is not None or not all(is_pure(source, e, COMPUTED) for e in grid.extents):
            raise
        for extent in grid.extents:
            check_unchanged(source, launch, extent)
        written, place = launch.grid, statement
    edits: dict[cst.CSTNode, Edit] = {
        written: writing(smaller),
        place: lambda updated: preceded(updated, [given]),
    }
    if keywords:
        edits[launch.node] = giving(source, launch.node, keywords)
    return edits


def _counted_at(
    source: Source, launch: Launch, grid: LaunchGrid, statement: cst.SimpleStatementLine
) -> cst.CSTNode:
    """The statement before which the multiprocessors are counted, so that the grid sees them.

    A function that computes the grid sees what the launching one assigns, if it stands in that;
    else they are counted in it.
    """
    around = [*source.ancestors(grid.node)]
    place = next((a for a in around if isinstance(a, cst.SimpleStatementLine)), statement)
    own = launch.function.node if launch.function is not None else None
    inside = source.enclosing(place) is not launch.function and own in around
    return statement if inside else place


def _is_local(view: HostView, extent: cst.BaseExpression) -> bool:
    """Whether an extent is computed of names that only the function of the grid knows."""
    own: set[str] = set()
    for around in view.source.ancestors(extent):
        if around is (view.launch.function and view.launch.function.node):
            break
        if isinstance(around, cst.Lambda | cst.FunctionDef):
            params = around.params
            every = (*params.posonly_params, *params.params, *params.kwonly_params)
            own |= {param.name.value for param in every}
        if isinstance(around, cst.FunctionDef):
            own |= {name for name in names_in(extent) if binds(around.body, name)}
    return not own.isdisjoint(names_in(extent))


def _is_sum(expression: cst.BaseExpression) -> bool:
    product = cst.Multiply
    return isinstance(expression, cst.IfExp | cst.BooleanOperation | cst.Comparison) or (
        isinstance(expression, cst.BinaryOperation)
        and not isinstance(expression.operator, product)
        and not expression.lpar
    )
