"""Load and store whole tiles where a kernel gathers and scatters them element by element.

When: a cuTile kernel reads or writes with `ct.gather` or `ct.scatter` at indices that count one by
    one, such as `block * TILE + ct.arange(TILE)`, on sm_90 or later.
Do: `ct.load(x, index=(block,), shape=(TILE,), padding_mode=...)` and `ct.store`; the index counts
    tiles, not elements. Where the tiles begin at an offset, load from `x.slice(...)`. The gather's
    padding value becomes the padding mode.
Risk: none to results where every tile begins inside its array, which is checked against the loop,
    the grid and the shapes in the host code. An array of which the host code says nothing is taken
    to be as long as the one that the grid is computed from.
Source: TileGym's cuTile playbook, item A, which claims 2x to 78x. Not for everything: compiled with
    cuda-tile 1.7 for sm_90, a one-dimensional fp32 copy of 1024 elements a block has the same two
    128-bit loads and stores either way, and no TMA; tiles of 1 x 1024 are loaded without it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import all_refuse
from agent.analysis.common.index_runs import NotRegular
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.accesses import GATHER, SCATTER, Access, Bounds, access_of, same_shape
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.uses import ATOMIC
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.common.formatting import NewCall, Place, laid_out
from agent.rewriting.cutile.paddings import padding_mode
from agent.syntax import Source, argument, keyword

FIRST_TMA = 90
ELEMENTWISE = (*CUTILE.arithmetic, f"{CT}astype", f"{CT}where")
Edit = Callable[[Any], Any]


class GatherToLoad(Optimization):
    """`ct.gather(x, offsets)` -> `ct.load(x, index=..., shape=...)`."""

    name = "gather-to-load"
    title = "tile loads for gathers"
    backend = "cutile"
    family = "tma"
    priority: ClassVar = {
        KernelClass.MEMORY: 120,
        KernelClass.BALANCED: 70,
        KernelClass.COMPUTE: 110,
    }
    expected = "TileGym claims 2x to 78x; nothing for an aligned one-dimensional copy"
    hypothesis = "A tile is fetched as one request with one address and one check of its bounds."
    example: ClassVar[Params] = {}
    before = """\
import math

import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def softmax_kernel(x, y):
    row = ct.bid(0)
    columns = ct.arange(TILE, dtype=ct.int32)
    tile = ct.gather(x, (row, columns), padding_value=-math.inf)
    numerator = ct.exp(tile - ct.max(tile, axis=0, keepdims=True))
    result = numerator / ct.sum(numerator, axis=0, keepdims=True)
    ct.scatter(y, (row, columns), result)


def softmax(x):
    n_rows, n_cols = x.shape
    assert n_cols <= TILE
    y = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (n_rows,), softmax_kernel, (x, y))
    return y
"""
    after = (
        before.replace("    columns = ct.arange(TILE, dtype=ct.int32)\n", "")
        .replace(
            "ct.gather(x, (row, columns), padding_value=-math.inf)",
            """\
ct.reshape(
        ct.load(
            x, index=(row, 0), shape=(1, TILE), padding_mode=ct.PaddingMode.NEG_INF
        ),
        (TILE,)
    )""",
        )
        .replace(
            "ct.scatter(y, (row, columns), result)",
            "ct.store(y, index=(row, 0), tile=ct.reshape(result, (1, TILE)))",
        )
    )

    trial = TileTrial(kernel="softmax_kernel", arguments=((F32, 2), (F32, 2)))

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Rewrite them in all launched kernels."""
        if 0 < subject.hardware.sm < FIRST_TMA:
            raise NotApplicable(
                f"sm_{subject.hardware.sm} has no TMA, so that a tile load costs more than a gather"
            )
        source = subject.source
        edits: dict[cst.CSTNode, Edit] = {}
        reasons: list[str] = []
        for kernel in CUTILE.chosen(source):
            replaced, refused = _rewritten(source, kernel)
            edits |= replaced
            reasons += refused
        if not edits:
            raise all_refuse(reasons, "no launched kernel gathers or scatters")
        return source.rewrite(edits)


def _rewritten(source: Source, kernel: Kernel) -> tuple[dict[cst.CSTNode, Edit], list[str]]:
    """The edits of one kernel's accesses, and why others stay."""
    accesses: list[Access] = []
    reasons: list[str] = []
    edits: dict[cst.CSTNode, Edit] = {}
    for call in CUTILE.find(source, kernel.function.node.body, (GATHER, SCATTER)):
        try:
            accesses.append(access_of(source, kernel, call))
        except NotRegular as reason:
            reasons.append(f"line {source.line(call)}: {reason}")
    bounds = Bounds(source, kernel, ((a.array, len(a.axes)) for a in accesses))
    changing = _changed_atomically(source, kernel)
    for access in accesses:
        try:
            if access.array.value in changing:
                raise NotRegular(
                    f"blocks change {access.array.value} atomically, which a TMA load may not see"
                )
            bounds.check(access)
            edits[access.call] = _edit(source, kernel, access)
        except NotRegular as reason:
            reasons.append(f"line {source.line(access.call)}: {reason}")
    return edits, reasons


def _changed_atomically(source: Source, kernel: Kernel) -> set[str]:
    """The arrays that a kernel changes by atomic operations, while other blocks may read them."""
    calls = CUTILE.find(source, kernel.function.node.body, ATOMIC)
    return {source.code(array) for c in calls if (array := argument(c, 0, "array")) is not None}


def _edit(source: Source, kernel: Kernel, access: Access) -> Edit:
    """What makes a load or store of the access. The value of a scatter may be edited as well."""
    call = access.call
    if not isinstance(call.func, cst.Attribute):
        raise NotRegular("ct.gather and ct.scatter are imported by name")
    ct = source.code(call.func.value)
    index, edges = [], []
    array = access.array.value
    for number, axis in enumerate(access.axes):
        index.append(" + ".join(map(source.code, axis.tiles)) or "0")
        edges.append(source.code(axis.run.length) if axis.run.length is not None else "1")
        if axis.offsets:
            start = " + ".join(map(source.code, axis.offsets))
            array += (
                f".slice(axis={number}, start={start}, stop={access.array.value}.shape[{number}])"
            )
    place = Place.of(source, call)
    edge, shape = _tuple(edges), _tuple(source.code(e) if e else "1" for e in access.shape)
    latency = keyword(call, "latency")
    hints = [f"latency={source.code(latency)}"] if latency is not None else []
    where = [array, f"index={_tuple(index)}"]
    if source.name(call.func) == GATHER:
        if access.checked or access.mask is not None:
            hints.insert(0, padding_mode(source, call, ct))
        load = NewCall(f"{ct}.load", [*where, f"shape={edge}", *hints])
        new = laid_out(load if shape == edge else NewCall(f"{ct}.reshape", [load, shape]), place)
        return lambda _: cst.parse_expression(new)
    value = argument(call, 2, "value")
    if value is None:
        raise NotRegular("its value is not in sight")
    whole = _has_shape(source, kernel, value, access, 0)

    def edit(updated: cst.Call) -> cst.BaseExpression:
        kept = argument(updated, 2, "value")
        tile: str | NewCall = source.module.code_for_node(kept) if kept is not None else ""
        if isinstance(value, cst.BaseNumber):
            tile = NewCall(f"{ct}.full", [edge, tile, f"dtype={access.array.value}.dtype"])
        elif not whole:
            tile = NewCall(f"{ct}.broadcast_to", [tile, shape])
        if shape != edge and not isinstance(value, cst.BaseNumber):
            tile = NewCall(f"{ct}.reshape", [tile, edge])
        named = (
            NewCall(f"tile={tile.function}", tile.arguments)
            if isinstance(tile, NewCall)
            else f"tile={tile}"
        )
        return cst.parse_expression(
            laid_out(NewCall(f"{ct}.store", [*where, named, *hints]), place)
        )

    return edit


def _has_shape(
    source: Source, kernel: Kernel, expression: cst.BaseExpression, access: Access, deep: int
) -> bool:
    """Whether a value to scatter has the shape of the indices already, so that it is not broadcast.

    What is computed element by element with such a tile has its shape.
    """
    if deep > 20:
        return False
    parts: list[cst.BaseExpression] = []
    match value_of(source, expression):
        case cst.BinaryOperation(left=left, right=right):
            parts = [left, right]
        case cst.UnaryOperation(expression=inner):
            parts = [inner]
        case cst.Comparison(left=left):
            parts = [left]
        case cst.Call() as call:
            called = source.name(call.func) or ""
            if called == GATHER:
                try:
                    shape = access_of(source, kernel, call).shape
                except NotRegular:
                    return False
                return same_shape(source, shape, access.shape)
            if called in ELEMENTWISE:
                parts = [a.value for a in call.args if a.keyword is None]
            elif isinstance(call.func, cst.Attribute) and call.func.attr.value == "astype":
                parts = [call.func.value]
    return any(_has_shape(source, kernel, part, access, deep + 1) for part in parts)


def _tuple(items: Sequence[str] | Iterator[str]) -> str:
    listed = list(items)
    return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"
