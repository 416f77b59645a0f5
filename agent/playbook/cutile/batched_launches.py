"""Launch a kernel once for a list of arrays, in place of once for each.

When: host code that launches a cuTile kernel in a loop over arrays, `for x, y in zip(xs, ys):`,
    which does nothing else, and whose kernel copies or computes element by element.
Do: hand the kernel lists of arrays and a further axis of the grid, `x_list[ct.bid(2)]`. The other
    axes have as many blocks as the longest array needs; a block that a shorter one does not have
    does nothing, since a tile wholly outside of its array is undefined. Arrays of several types or
    devices are launched as before, in lists of one.
Risk: none to results. The results have to be made by the same function, so that no launch reads
    what another one has written, and each store has to be where its block is: other kernels, and
    those with loops or atomics, are left to a person (batched-copies).
Source: TileGym's cuTile playbook, item K, which claims +10 % to +70 % where launches dominate. It
    chooses by branches from a fixed number of views; cuTile 1.7 takes lists of any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Params, Subject
from agent.analysis.cutile.launch_loops import Batch, Limit, batch_of
from agent.analysis.cutile.spelling import tile_module
from agent.playbook.base import OfEachKernel
from agent.playbook.trial import TileTrial
from agent.rewriting.common.insertion import free_name, unused
from agent.syntax import Edits, Source, names_in


class BatchedLaunches(OfEachKernel):
    """`for x, y in zip(xs, ys): launch(k, (x, y))` -> `launch(k, (xs, ys))`."""

    name = "batched-launches"
    title = "one launch for a list"
    backend = "cutile"
    family = "launches"
    priority: ClassVar = {KernelClass.MEMORY: 240, KernelClass.BALANCED: 260}
    expected = "32 small arrays on an H200: 5.5x; TileGym claims +10 % to +70 %"
    hypothesis = "A launch costs microseconds, which a small array does not need."
    example: ClassVar[Params] = {}
    before = """\
import cuda.tile as ct
import torch

TILE = 256


@ct.kernel
def double_kernel(x, y):
    row, column = ct.bid(0), ct.bid(1)
    tile = ct.load(x, index=(row, column), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, index=(row, column), tile=tile + tile)


def doubled(xs):
    ys = [torch.empty_like(x) for x in xs]
    for x, y in zip(xs, ys):
        grid = (x.shape[0], ct.cdiv(x.shape[1], TILE))
        ct.launch(torch.cuda.current_stream(), grid, double_kernel, (x, y))
    return ys


def parts_doubled(x):
    return torch.cat(doubled([x[:1], x[1:]]))
"""
    after = before.replace(
        """\
def double_kernel(x, y):
    row, column = ct.bid(0), ct.bid(1)
    tile = ct.load(x, index=(row, column), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, index=(row, column), tile=tile + tile)
""",
        """\
def double_kernel(x_list, y_list):
    x = x_list[ct.bid(2)]
    y = y_list[ct.bid(2)]
    if ct.bid(0) < y.shape[0] and ct.bid(1) < ct.cdiv(y.shape[1], TILE):
        row, column = ct.bid(0), ct.bid(1)
        tile = ct.load(x, index=(row, column), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO)
        ct.store(y, index=(row, column), tile=tile + tile)
""",
    ).replace(
        """\
    for x, y in zip(xs, ys):
        grid = (x.shape[0], ct.cdiv(x.shape[1], TILE))
        ct.launch(torch.cuda.current_stream(), grid, double_kernel, (x, y))
""",
        """\
    batch = list(zip(xs, ys))
    if len({(x.dtype, x.ndim, x.device, y.dtype, y.ndim, y.device) for x, y in batch}) == 1:
        ct.launch(
            torch.cuda.current_stream(),
            (
                max(x.shape[0] for x, y in batch),
                max(ct.cdiv(x.shape[1], TILE) for x, y in batch),
                len(batch),
            ),
            double_kernel,
            ([x for x, y in batch], [y for x, y in batch]),
        )
    else:
        for x, y in batch:
            ct.launch(
                torch.cuda.current_stream(),
                (x.shape[0], ct.cdiv(x.shape[1], TILE)),
                double_kernel,
                ([x], [y]),
            )
""",
    )
    trial = TileTrial(
        kernel="double_kernel",
        arguments=(("float32", 2), ("float32", 2)),
        arguments_after=(["float32", 2], ["float32", 2]),
    )

    def edits(self, subject: Subject, kernel: Kernel, _: Params) -> Edits:
        """Batch the launches of one kernel."""
        source = subject.source
        batch = batch_of(source, kernel)
        lists = {name: unused(kernel, f"{name}_list") for name in batch.items}
        return {**_kernel_edits(source, batch, lists), **_host_edits(source, batch)}


def _kernel_edits(source: Source, batch: Batch, lists: dict[str, str]) -> Edits:
    tile = tile_module(source)
    lines = [cst.parse_statement(f"{n} = {lists[n]}[{tile}.bid(2)]") for n in batch.items]
    node = batch.kernel.function.node
    block = cst.ensure_type(node.body, cst.IndentedBlock)
    first = 1 if node.get_docstring() is not None else 0
    test = " and ".join(_within(limit, tile) for limit in batch.limits)

    def body(updated: cst.IndentedBlock) -> cst.IndentedBlock:
        work = list(updated.body[first:])
        if test:
            guarded = cst.If(cst.parse_expression(test), cst.IndentedBlock(work))
            work = [guarded]
        return updated.with_changes(body=[*updated.body[:first], *lines, *work])

    renamed = {
        parameter: lambda p: p.with_changes(name=cst.Name(lists[p.name.value]))
        for parameter in batch.kernel.function.parameters
        if parameter.name.value in lists
    }
    return {**renamed, block: body}


def _within(limit: Limit, tile: str) -> str:
    """Whether a block is one that its item has."""
    extent = f"{limit.array}.shape[{limit.dimension}]"
    blocks = extent if limit.edge == "1" else f"{tile}.cdiv({extent}, {limit.edge})"
    return f"{tile}.bid({limit.axis}) < {blocks}"


def _host_edits(source: Source, batch: Batch) -> Edits:
    launch, loop = batch.launch, batch.loop
    name = free_name(source, "batch")
    through = f"for {source.code(loop.target)} in {name}"
    extents = [source.code(extent) for extent in batch.grid]
    longest = [
        f"max({text} {through})" if names_in(extent) & batch.targets.keys() else text
        for text, extent in zip(extents, batch.grid, strict=True)
    ]
    longest += ["1"] * (2 - len(longest))
    given = [(p, source.code(value), p in batch.items) for p, value in launch.arguments.items()]
    whole = [f"[{text} {through}]" if is_item else text for _, text, is_item in given]
    alone = [f"[{text}]" if is_item else text for _, text, is_item in given]
    facts = ", ".join(
        f"{variable}.{fact}" for variable in batch.targets for fact in ("dtype", "ndim", "device")
    )
    test = f"len({{({facts}) {through}}}) == 1"
    head = [source.code(launch.node.func), *(source.code(a.value) for a in launch.node.args[:3])]
    text = "\n".join(
        (
            f"if {test}:",
            *_launch(head, [*longest, f"len({name})"], whole, 1),
            "else:",
            f"    {through}:",
            *_launch(head, extents, alone, 2),
            "",
        )
    )
    made = cst.parse_statement(f"{name} = list({source.code(loop.iter)})")
    made = made.with_changes(leading_lines=loop.leading_lines)

    def edit(_: cst.For) -> Any:
        return cst.FlattenSentinel([made, cst.parse_statement(text)])

    return {loop: edit}


def _launch(head: Sequence[str], grid: Sequence[str], given: Sequence[str], deep: int) -> list[str]:
    """A launch over several lines."""
    launch, stream, _, kernel = head
    inside = [f"{stream},", *_tuple(grid), f"{kernel},", *_tuple(given)]
    lines = [f"{launch}(", *(f"    {line}" for line in inside), ")"]
    return [" " * 4 * deep + line for line in lines]


def _tuple(items: Sequence[str]) -> list[str]:
    one = f"({', '.join(items)}{',' if len(items) == 1 else ''}),"
    return [one] if len(one) < 80 else ["(", *(f"    {item}," for item in items), "),"]
