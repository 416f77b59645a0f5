"""Do without the check of bounds where the host sees that no index leaves its array.

When: a cuTile kernel without products, whose tiles mostly end with the array: hidden sizes and
    sequence lengths are multiples of a tile.
Do: hand the kernel a constant, `CHECKED: ct.Constant[bool]`, which the host computes at every
    launch from the grid, the tile and the shapes, and pass `check_bounds=CHECKED` to `ct.load`,
    `ct.store`, `ct.gather` and `ct.scatter`. A padding has to go with it:
    `padding_mode=... if CHECKED else ct.PaddingMode.UNDETERMINED`. A padding that rules TMA out
    (anything but zero) leaves `allow_tma=False` behind, so that the tile is loaded as it was.
Risk: none to results where every axis of every access is in the condition: memory beyond an array
    is read or overwritten otherwise. The kernel is compiled once more for the first launch of the
    other kind. The host compares some extents at every launch.
Source: the documentation of cuda.tile (since tileiras 13.4); TileGym reports +3 to +13 % (pull
    request 111). Compiled for sm_90 with cuda-tile 1.7 without TMA, instructions fall from 600 to
    447 in an rms_norm of bf16 rows of 4096, from 325 to 175 in a rotary embedding, from 106 to 79
    in a copy of columns and from 184 to 161 in a silu-and-mul. Where TMA loads, nothing changes.
    With both a padding and no check, cuda-tile 1.7 refuses to compile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.each_kernel import edits_of_each
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.access_bounds import (
    GATHER,
    LOAD,
    SCATTER,
    STORE,
    NotBounded,
    Reach,
    covered,
)
from agent.analysis.cutile.accesses import checks_bounds
from agent.analysis.cutile.blocks import grid_of
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.index_ranges import holds_at
from agent.analysis.cutile.operands import multiplies
from agent.analysis.cutile.spelling import tile_module
from agent.playbook.base import Optimization
from agent.playbook.cutile.load_without_tma import FILLED_BY_TMA
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.common.formatting import WIDTH, Place
from agent.rewriting.common.insertion import free_name, unused
from agent.rewriting.common.interface import Interface
from agent.rewriting.common.preceding import preceded
from agent.rewriting.cutile.blocks import line_of
from agent.syntax import Source, keyword, with_keyword
from agent.tuning.imports import imports_anywhere

ACCESSES = (LOAD, STORE, GATHER, SCATTER)


class CheckBounds(Optimization):
    """`ct.load(...)` -> `ct.load(..., check_bounds=CHECKED)`, decided at the launch."""

    name = "check-bounds"
    title = "bounds checked by the host"
    backend = "cutile"
    family = "bounds"
    priority: ClassVar = {
        KernelClass.MEMORY: 80,
        KernelClass.BALANCED: 140,
        KernelClass.COMPUTE: 180,
    }
    expected = "TileGym reports +3 to +13 % without TMA, nothing with it"
    hypothesis = "A third of a copy's instructions compare indices with extents."
    example: ClassVar[Params] = {}
    before = """\
import cuda.tile as ct
import torch

TILE = 64


@ct.kernel(occupancy=8)
def double_kernel(x, y):
    row, column = ct.bid(0), ct.bid(1)
    tile = ct.load(x, (row, column), (1, TILE), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (row, column), tile + tile, allow_tma=False)


def double(x):
    y = torch.empty_like(x)
    grid = (x.shape[0], ct.cdiv(x.shape[1], TILE))
    ct.launch(torch.cuda.current_stream(), grid, double_kernel, (x, y))
    return y
"""
    after = """\
import cuda.tile as ct
import torch

TILE = 64


@ct.kernel(occupancy=8)
def double_kernel(x, y, CHECKED: ct.Constant[bool]):
    row, column = ct.bid(0), ct.bid(1)
    tile = ct.load(
        x,
        (row, column),
        (1, TILE),
        padding_mode=ct.PaddingMode.ZERO if CHECKED else ct.PaddingMode.UNDETERMINED,
        check_bounds=CHECKED,
    )
    ct.store(y, (row, column), tile + tile, allow_tma=False, check_bounds=CHECKED)


def double(x):
    y = torch.empty_like(x)
    grid = (x.shape[0], ct.cdiv(x.shape[1], TILE))
    checked = ct.cdiv(x.shape[1], TILE) * TILE > x.shape[1]
    ct.launch(torch.cuda.current_stream(), grid, double_kernel, (x, y, checked))
    return y
"""

    trial = TileTrial(
        kernel="double_kernel",
        arguments=((F32, 2), (F32, 2)),
        arguments_after=((F32, 2), (F32, 2), False),
    )

    def apply(self, subject: Subject, params: Params) -> str:  # noqa: ARG002
        """Every access of the launched kernels that multiply no tiles whose reach is known."""
        source = subject.source
        taken = set[cst.CSTNode]()

        def unchecked(kernel: Kernel) -> dict[Any, Any]:
            found = _edits(source, kernel)
            if shared := taken & found.keys():
                line = source.line(next(iter(shared)))
                raise NotApplicable(f"line {line} lists the arguments of several launches")
            taken.update(found)
            return found

        otherwise = "the file holds no launched cuTile kernel"
        return source.rewrite(edits_of_each(CUTILE.chosen(source), unchecked, otherwise))


def _edits(source: Source, kernel: Kernel) -> dict[Any, Any]:
    if (product := multiplies(source, kernel)) is not None:
        raise NotApplicable(product)
    if not imports_anywhere(source, "torch"):
        raise NotApplicable(
            "the file does not import torch: what it launches with may be no tensor"
        )
    interface = Interface.of(source, kernel)
    check_builtins(source, kernel.function.node, "bool")
    places = [line_of(source, node) for node in interface.tuples]
    reaches = [Reach(source, kernel, launch) for launch in kernel.launches]
    if len(set(places)) < len(places):
        raise NotApplicable(f"line {source.line(places[0])} lists the arguments of two launches")
    for launch, place in zip(kernel.launches, places, strict=True):
        _check_grid(source, launch, place)
    conditions: list[dict[str, None]] = [{} for _ in reaches]
    calls: list[cst.Call] = []
    reason = ""
    for call in CUTILE.find(source, kernel.function.node.body, ACCESSES):
        if not checks_bounds(source, call):
            continue
        try:
            array, axes = covered(source, kernel, call)
            found = [list(reach.leaves(call, array, axes)) for reach in reaches]
        except NotBounded as refusal:
            reason = reason or f"line {source.line(call)}: {refusal}"
            continue
        calls.append(call)
        for of_launch, of_access in zip(conditions, found, strict=True):
            of_launch |= dict.fromkeys(of_access)
    if not calls:
        raise NotApplicable(reason or f"no access of {kernel.name} checks its bounds")
    constant = unused(kernel, "CHECKED")
    name = free_name(source, "checked")
    tile = tile_module(source)
    decided = [name if listed else "False" for listed in conditions]
    edits: dict[Any, Any] = {
        **interface.added([f"{constant}: {tile}.Constant[bool]"], [[given] for given in decided]),
        **{call: _unchecked(source, call, tile, constant) for call in calls},
    }
    for place, listed in zip(places, conditions, strict=True):
        if listed:
            edits[place] = _decision(source, place, name, list(listed))
    return edits


def _unchecked(source: Source, call: cst.Call, tile: str, constant: str) -> Any:
    padding = keyword(call, "padding_mode")

    def edit(updated: cst.Call) -> cst.Call:
        if padding is not None:
            chosen = f"{source.code(padding)} if {constant} else {tile}.PaddingMode.UNDETERMINED"
            updated = with_keyword(updated, "padding_mode", chosen)
            if source.name(padding) not in FILLED_BY_TMA and keyword(call, "allow_tma") is None:
                updated = with_keyword(updated, "allow_tma", "False")
        return _laid_out(source, call, with_keyword(updated, "check_bounds", constant))

    return edit


def _laid_out(source: Source, old: cst.Call, new: cst.Call) -> cst.Call:
    """A call with a line that has become too long, an argument a line."""
    place = Place.of(source, old)
    text = source.module.code_for_node(new)
    if place.fits(max(text.splitlines(), key=len)):
        return new
    margin = " " * (place.indent - place.block)
    bare: dict[str, Any] = {
        "comma": cst.MaybeSentinel.DEFAULT,
        "whitespace_after_arg": cst.SimpleWhitespace(""),
    }
    arguments = [source.module.code_for_node(a.with_changes(**bare)) for a in new.args]
    listed = "".join(f"{margin}    {argument},\n" for argument in arguments)
    function = source.module.code_for_node(new.func)
    return cst.ensure_type(cst.parse_expression(f"{function}(\n{listed}{margin})"), cst.Call)


# --- the launch ---------------------------------------------------------------------------------


def _check_grid(source: Source, launch: Launch, place: cst.SimpleStatementLine) -> None:
    """The condition repeats the grid's extents where the arguments are listed."""
    for extent in grid_of(source, launch):
        if place not in source.ancestors(extent) and not holds_at(source, extent, place):
            raise NotApplicable(
                f"`{source.code(extent)}` of the grid has another value at line "
                f"{source.line(place)}, where the arguments are listed"
            )


def _decision(
    source: Source, place: cst.SimpleStatementLine, name: str, conditions: Sequence[str]
) -> Any:
    line = f"{name} = {' or '.join(conditions)}"
    if Place.of(source, place).indent + len(line) > WIDTH:
        listed = "\n    or ".join(conditions)
        line = f"{name} = (\n    {listed}\n)"
    return lambda updated: preceded(updated, [line])
