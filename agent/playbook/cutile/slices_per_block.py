"""Let one block compute what several blocks load the same tile for.

When: a cuTile kernel on arrays of three or more dimensions whose blocks, along one axis of the
    grid, differ in one index, and all load another tile that does not depend on it: a rotary
    embedding, in which every head is multiplied by the same cosines and sines.
Do: give the tiles that depend on that index 2, 4 or 8 slices along its axis, and the grid as many
    times fewer blocks. What does not depend on it is loaded and converted once for all of them.
Risk: none to results: every operation is computed element by element, and no slice that is not
    the array's is stored; both are checked. Too many slices leave too few registers.
Source: TileGym's rotary embedding, in which a block takes all heads of a position. Compiled for
    sm_90 with cuda-tile 1.7, a rotary embedding of bf16 heads of 128 in tiles of 16 positions, with
    static row lengths, has 300 instructions a head; with 2 heads a block 212, with 4 heads 174. No
    public source gives a time for that alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import all_refuse
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.cutile.coarsening import (
    LOAD,
    STORE,
    Widened,
    block_name,
    casts,
    check_access,
    check_body,
    count,
    elements,
    place_of,
    widened,
)
from agent.syntax import Source, argument, descendants

SWEEP = (2, 4, 8)
LEAST_DIMENSIONS = 3
"""Of an array; the rows of a matrix are what rows-per-block is for."""
ELEMENTWISE = frozenset((*CUTILE.arithmetic, "builtins.min", "builtins.max"))


class SlicesPerBlock(Optimization):
    """`shape=(1, 1, S, D)` and a grid of `heads` -> `shape=(1, 4, S, D)` and `heads / 4`."""

    name = "slices-per-block"
    title = "slices a block"
    backend = "cutile"
    family = "slices"
    revisit_after = frozenset({"tiles"})
    priority: ClassVar = {KernelClass.MEMORY: 130, KernelClass.BALANCED: 130}
    expected = "not known; up to half of the instructions where as much is shared as is not"
    hypothesis = "What several blocks need is loaded, converted and addressed once."
    example: ClassVar[Params] = {"slices": 4}
    before = """\
import cuda.tile as ct
import torch


@ct.kernel
def scale_kernel(x, scale, y):
    i, batch = ct.bid(0), ct.bid(1)
    factor = ct.load(scale, (i, 0), (16, 64), padding_mode=ct.PaddingMode.ZERO)
    tile = ct.load(x, (batch, i, 0), (1, 16, 64), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (batch, i, 0), tile * factor)


def scale(x):
    n = x.shape[-1] // 64
    x = x[:, : n * 64].reshape(-1, n, 64)
    y = torch.empty_like(x)
    grid = (ct.cdiv(x.shape[1], 16), x.shape[0])
    ct.launch(torch.cuda.current_stream(), grid, scale_kernel, (x, x[0], y))
    return y
"""
    after = before.replace("(1, 16, 64)", "(4, 16, 64)").replace(
        "16), x.shape[0])", "16), ct.cdiv(x.shape[0], 4))"
    )

    trial = TileTrial(kernel="scale_kernel", arguments=((F32, 3), (F32, 2), (F32, 3)))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The sweep, for kernels in which blocks share a tile."""
        _sharing(subject.source)
        return [{"slices": slices} for slices in SWEEP]

    def apply(self, subject: Subject, params: Params) -> str:
        """Widen the tiles of every kernel in which blocks share a tile, and shorten its grids."""
        source = subject.source
        return widened(source, _sharing(source), str(params["slices"]))


def _sharing(source: Source) -> list[Widened]:
    """The kernels that can be changed. Raises `NotApplicable` with the reasons when none can."""
    found: list[Widened] = []
    reasons: dict[str, None] = {}
    for kernel in CUTILE.chosen(source):
        for axis in range(3):
            try:
                found.append(_along(source, kernel, axis))
                break
            except NotApplicable as refusal:
                reasons[f"{kernel.name}: {refusal}"] = None
    if not found:
        raise all_refuse([*reasons], "the file holds no cuTile kernel")
    return found


def _along(source: Source, kernel: Kernel, axis: int) -> Widened:
    name = block_name(source, kernel, axis)
    own: list[cst.Call] = []
    ranks: set[tuple[int, int]] = set()
    """Dimensions of the tiles that depend on the block, and where among them."""
    stored: dict[str, int] = {}
    shared: list[cst.Call] = []
    for call in descendants(kernel.function.node.body, cst.Call):
        called, line = source.name(call.func) or "", source.line(call)
        if called not in (LOAD, STORE):
            if called not in ELEMENTWISE and called not in CUTILE.program_ids and not casts(call):
                raise NotApplicable(f"line {line} calls `{source.code(call.func)}`")
            continue
        check_access(source, call)
        place = place_of(call, name)
        if place is None and called == STORE:
            raise NotApplicable(f"line {line} stores without regard to `{name}`")
        if place is None:
            shared.append(call)
            continue
        ranks.add((len(elements(argument(call, 1, "index"))), place))
        if called == LOAD:
            own.append(call)
        elif isinstance(array := argument(call, 0, "array"), cst.Name):
            stored[array.value] = place
    if len(ranks) != 1 or not own:
        raise NotApplicable(f"no tile, or no single axis of the tiles, depends on `{name}`")
    ((rank, place),) = ranks
    if rank < LEAST_DIMENSIONS or not shared:
        raise NotApplicable(f"its blocks along axis {axis} of the grid share no tile")
    within = 0
    """Dimensions that the shared tiles have."""
    for call in shared:
        dimensions = len(elements(argument(call, 2, "shape")))
        within = max(within, dimensions)
        if not 0 < dimensions < rank - place:
            raise NotApplicable(
                f"line {source.line(call)} loads a tile that reaches to the axis of `{name}`"
            )
    check_body(source, kernel)
    return Widened(
        tuple(_slice(call, rank - within, source.line(call))[place] for call in own),
        tuple(count(source, kernel, launch, axis, stored) for launch in kernel.launches),
    )


def _slice(call: cst.Call, before: int, line: int) -> tuple[cst.Integer, ...]:
    """The edges of a load's tile before those that shared tiles have too: ones, all of them."""
    edges = elements(argument(call, 2, "shape"))[:before]
    ones = tuple(e for e in edges if isinstance(e, cst.Integer) and e.evaluated_value == 1)
    if len(ones) != before:
        raise NotApplicable(f"the tile at line {line} is not one slice")
    return ones
