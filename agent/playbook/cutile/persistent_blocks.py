"""Launch as many blocks as the GPU holds at once, and let each work on many tiles.

When: a cuTile kernel with one block for each row or tile, and many more of them than the GPU runs
    at once: over two for each multiprocessor.
Do: pass the extents of the grid to the kernel, launch `min(multiprocessors * k, blocks)` blocks,
    and put the body into `for block in range(ct.bid(0), blocks, ct.num_blocks(0))`. A grid of two
    or three dimensions is counted along its first axis first, as the hardware does. Sweep k.
Risk: none to results: every block of the old grid is one round of the loop. Blocks that wait for
    one another would hang, so kernels with locks are refused. A short grid gains nothing.
Source: TileGym's cuTile playbook, item B, which claims +50 % to +300 %; for a matrix product of
    4096^3 on a B200 it reports 1133 TFLOP/s flat and 988 persistent, so only a timing tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.each_kernel import of_each
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.module_names import reached_as
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.blocks import (
    grid_of,
    launches,
)
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.index_ranges import holds_at
from agent.playbook.base import Optimization
from agent.playbook.cutile.num_ctas import HINT as THREAD_BLOCKS
from agent.playbook.cutile.num_ctas import NumCtas
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.common.formatting import NewCall, Place, laid_out
from agent.rewriting.common.interface import appending
from agent.rewriting.common.preceding import preceded
from agent.rewriting.cutile.blocks import line_of
from agent.rewriting.cutile.hints import hint_of, hintable, with_hint
from agent.rewriting.cutile.persistence import looped
from agent.syntax import Source, argument, names_in

SWEEP, SWEEP_DOT = (1, 2, 4, 8), (1, 2)
OCCUPANCY = "occupancy"
SMS, GRID = "n_sms", "grid_of_sms"
"""What the host code calls the multiprocessors and the new grid."""
Edit = Callable[[Any], Any]


class PersistentBlocks(Optimization):
    """One block a tile -> a few blocks a multiprocessor, each with a loop over tiles."""

    name = "persistent-blocks"
    title = "persistent blocks"
    backend = "cutile"
    family = "scheduling"
    priority: ClassVar = {
        KernelClass.MEMORY: 150,
        KernelClass.BALANCED: 160,
        KernelClass.COMPUTE: 80,
    }
    expected = "TileGym claims +50 % to +300 % for many small blocks; a loss for some products"
    hypothesis = (
        "Blocks that stay spare the start of each block, and overlap one tile with the next."
    )
    example: ClassVar[Params] = {"blocks_per_sm": 4}
    before = """\
import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def double_kernel(x, y):
    # One block takes one row.
    row = ct.bid(0)
    for j in range(ct.num_tiles(x, axis=1, shape=(1, TILE))):
        tile = ct.load(x, index=(row, j), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO)
        ct.store(y, index=(row, j), tile=tile + tile)


def double(x):
    y = torch.empty_like(x)
    grid = (x.shape[0], 1, 1)
    ct.launch(torch.cuda.current_stream(), grid, double_kernel, (x, y))
    return y
"""
    after = """\
import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def double_kernel(x, y, n_blocks):
    # One block takes one row.
    for row in range(ct.bid(0), n_blocks, ct.num_blocks(0)):
        for j in range(ct.num_tiles(x, axis=1, shape=(1, TILE))):
            tile = ct.load(x, index=(row, j), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO)
            ct.store(y, index=(row, j), tile=tile + tile)


def double(x):
    y = torch.empty_like(x)
    grid = (x.shape[0], 1, 1)
    n_blocks = grid[0]
    n_sms = torch.cuda.get_device_properties(
        torch.cuda.current_device()
    ).multi_processor_count
    grid_of_sms = (min(n_blocks, n_sms * 4),)
    ct.launch(torch.cuda.current_stream(), grid_of_sms, double_kernel, (x, y, n_blocks))
    return y
"""

    trial = TileTrial(
        kernel="double_kernel",
        arguments=((F32, 2), (F32, 2)),
        arguments_after=((F32, 2), (F32, 2), 4096),
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Blocks a multiprocessor; fewer for a product, whose blocks are large.

        A product that was told its occupancy is told again: as many as stay. What two blocks
        share is too little for one that also keeps a loop over tiles in registers. Pairs of thread
        blocks with tiles of twice the size gain together with this what neither gains alone.
        """
        source, kernels = subject.source, _regular(subject)
        if not any(CUTILE.has_dot(source, kernel) for kernel in kernels):
            return [{"blocks_per_sm": count} for count in SWEEP]
        told = {hint_of(subject, kernel, OCCUPANCY) for kernel in kernels} - {None}
        found: list[Params] = [
            {"blocks_per_sm": count} | ({OCCUPANCY: count} if told - {count} else {})
            for count in SWEEP_DOT
        ]
        return found + [{**found[0], **pair} for pair in _pairs(subject)]

    def apply(self, subject: Subject, params: Params) -> str:
        """Rewrite every launched kernel that can be, and all its launches."""
        if THREAD_BLOCKS in params:
            pair = {
                name: v for name, v in params.items() if name not in ("blocks_per_sm", OCCUPANCY)
            }
            subject = _with_text(subject, NumCtas().apply(subject, pair))
        edits: dict[cst.CSTNode, Edit] = {}
        for kernel in _regular(subject):
            edits |= looped(subject.source, kernel).edits
            for launch in launches(subject.source, kernel):
                edits |= _launched(subject, kernel, launch, int(params["blocks_per_sm"]))
        text = subject.source.rewrite(edits)
        if OCCUPANCY not in params:
            return text
        persistent = _with_text(subject, text)
        kernels = hintable(persistent, OCCUPANCY, CUTILE.chosen(persistent.source))
        return with_hint(persistent, kernels, OCCUPANCY, int(params[OCCUPANCY]))


def _with_text(subject: Subject, text: str) -> Subject:
    return replace(subject, source=subject.source.with_text(text))


def _pairs(subject: Subject) -> list[Params]:
    """Pairs of thread blocks, each with the tile for two."""
    try:
        return [pair for pair in NumCtas().variants(subject) if len(pair) > 1]
    except NotApplicable:
        return []


def _regular(subject: Subject) -> tuple[Kernel, ...]:
    """The launched kernels that can be rewritten. Raises `NotApplicable` when there is none."""
    source = subject.source
    taken = set[cst.CSTNode]()

    def regular(kernel: Kernel) -> Kernel:
        looped(source, kernel)
        places = set[cst.CSTNode]()
        for launch in launches(source, kernel):
            if (more := _launched(subject, kernel, launch, 1).keys()) & (taken | places):
                raise NotApplicable(f"launches share line {source.line(launch.node)}")
            places.update(more)
        taken.update(places)
        return kernel

    otherwise = "the file holds no launched cuTile kernel"
    return tuple(of_each(CUTILE.chosen(source), regular, otherwise))


# --- the launches -------------------------------------------------------------------------------


def _launched(
    subject: Subject, kernel: Kernel, launch: Launch, blocks_per_sm: int
) -> dict[cst.CSTNode, Edit]:
    """The edits of one launch: a smaller grid, and the extents of the old one as arguments."""
    source = subject.source
    extents = looped(source, kernel).extents
    line = line_of(source, launch.node)
    given = argument(launch.node, 3, "kernel_args")
    listed = source.resolve(given) if given is not None else None
    if not isinstance(listed, cst.Tuple | cst.List):
        raise NotApplicable(f"the arguments at line {source.line(launch.node)} are no tuple")
    place = line_of(source, listed)
    if place is not line and isinstance(given, cst.Name):
        assigned = source.assignments(given)
        if len(assigned) != 1 or len(source.uses(assigned[0])) != 1:
            raise NotApplicable(f"`{given.value}` at line {source.line(given)} has other uses")
    check_builtins(source, launch.node, "min")
    grid = grid_of(source, launch)
    known = [*grid, *[cst.Integer("1")] * (len(extents) - len(grid))]
    values = [source.code(extent) for extent in known]
    if isinstance(launch.grid, cst.Name):
        values = [f"{launch.grid.value}[{i}]" if i < len(grid) else v for i, v in enumerate(values)]
    if place is not line and not holds_at(source, launch.grid, place):
        raise NotApplicable(f"the arguments at line {source.line(place)} come before the grid")
    scope = launch.function.node if launch.function else source.module
    names = names_in(scope)
    if taken := sorted(names & {*extents, SMS, GRID}):
        raise NotApplicable(
            f"the launch at line {source.line(launch.node)} uses {taken[0]} already"
        )
    torch = reached_as(source, "torch", launch.node)
    if torch is None:
        raise NotApplicable("the file does not import torch, which knows the multiprocessors")
    properties = f"{torch}.cuda.get_device_properties({torch}.cuda.current_device())"
    resident = _resident(subject, kernel, blocks_per_sm)
    text = [
        *(f"{name} = {value}" for name, value in zip(extents, values, strict=False)),
        f"{SMS} = {properties}.multi_processor_count",
        f"{GRID} = (min({' * '.join(extents)}, {resident}),)",
    ]
    edits: dict[cst.CSTNode, Edit] = {
        launch.grid: lambda _: cst.Name(GRID),
        listed: lambda updated: _with_elements(source, listed, updated, extents),
        place: lambda updated: preceded(updated, text),
    }
    return edits


def _resident(subject: Subject, kernel: Kernel, blocks_per_sm: int) -> str:
    """How many blocks stay; one that is a pair of thread blocks takes two places."""
    together = hint_of(subject, kernel, THREAD_BLOCKS) or 1
    held = SMS if together == 1 else f"{SMS} // {together}"
    return held if blocks_per_sm == 1 else f"{held} * {blocks_per_sm}"


def _with_elements(
    source: Source, listed: cst.Tuple | cst.List, updated: Any, names: Sequence[str]
) -> Any:
    """The arguments with more of them, laid out as they are; a line too long is broken."""
    if isinstance(updated, cst.List):
        as_tuple = cst.Tuple(
            updated.elements,
            [cst.LeftParen(updated.lbracket.whitespace_after)],
            [cst.RightParen(updated.rbracket.whitespace_before)],
        )
        given = appending(names)(as_tuple)
        end = updated.rbracket.with_changes(whitespace_before=given.rpar[-1].whitespace_before)
        return updated.with_changes(elements=given.elements, rbracket=end)
    texts = [source.module.code_for_node(e.value) for e in updated.elements] + list(names)
    if listed.lpar and "\n" not in source.module.code_for_node(listed):
        return cst.parse_expression(laid_out(NewCall("", texts), Place.of(source, listed)))
    return appending(names)(updated)
