"""Hold a row in registers instead of loading it anew in each pass.

When: a Triton kernel without `tl.dot` that steps through the same row in two passes or more, as
    normalizations do: `for start in range(0, n_cols, BLOCK)`, each time from the same addresses.
Do: let the block hold the row, up to 65536 elements, and make the bound of the loops a constant. A
    loop of one step is no loop to the compiler, which then sees that two passes load the same and
    loads it once. Warps follow the length of the row. A longer row is stepped through as before.
Risk: the order of sums changes. A long row spills registers if it gets too few warps. Each power of
    two of the row length is compiled anew.
Source: Liger and Unsloth hold rows up to 65536 whole. Compiled with Triton 3.9 for sm_90, a layer
    normalization in three passes over 4096 columns loads its row once instead of three times.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst

from agent.analysis.common.builtin_names import check_builtins
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.each_kernel import all_refuse, edits_of_each
from agent.analysis.common.given_sizes import given_size
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.provenance import TileConstant, grid_nodes, tile_of
from agent.analysis.common.purity import is_pure
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.host import language, launches_in_sight, triton_module
from agent.analysis.triton.index_ranges import belongs_to
from agent.analysis.triton.tuners import check_untuned
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.trial import P, TritonTrial
from agent.rewriting.common.counted_rounds import or_counted
from agent.rewriting.common.insertion import free_name, unused
from agent.rewriting.common.preceding import preceded
from agent.rewriting.triton.edits import (
    Edit,
    giving,
    statement_of,
    with_parameters,
    without,
    writing,
)
from agent.rewriting.triton.grid import grid_from_meta
from agent.rewriting.triton.launch_options import check_shown, ramp
from agent.syntax import Source, descendants, positional

RANGES = ("builtins.range", "triton.language.range")
LEAST, MOST = 128, 65536
"""Elements of a block."""
SWEEP = (256, 512, 1024, 2048)


class RowInRegisters(Optimization):
    """`range(0, n_cols, BLOCK)` -> `range(0, ROW, BLOCK)` with a block that holds the row."""

    name = "row-in-registers"
    title = "row in registers"
    backend = "triton"
    family = "reuse"
    priority: ClassVar = {KernelClass.MEMORY: 4, KernelClass.BALANCED: 8, KernelClass.COMPUTE: 80}
    expected = "up to the number of passes, where the row does not stay in the L1 cache"
    hypothesis = "The row is read from memory once and stays where it is computed with."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {"elements_per_warp": 512}
    before = """\
import torch
import triton
import triton.language as tl


@triton.jit
def l2_normalize_kernel(x_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0)
        squares += x * x
    norm = tl.sqrt(tl.sum(squares, axis=0))
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0)
        tl.store(y_ptr + row * stride + cols, x / norm, mask=cols < n_cols)


def l2_normalize(x):
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    l2_normalize_kernel[(n_rows,)](x, y, x.stride(0), n_cols, BLOCK=1024)
    return y
"""
    after = (
        before.replace("range(0, n_cols, BLOCK)", "range(0, ROW, BLOCK)")
        .replace("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, ROW: tl.constexpr)")
        .replace(
            "    l2_normalize_kernel[(n_rows,)](x, y, x.stride(0), n_cols, BLOCK=1024)\n",
            """\
    block = min(max(triton.next_power_of_2(n_cols), 128), 65536)
    l2_normalize_kernel[(n_rows,)](
        x,
        y,
        x.stride(0),
        n_cols,
        BLOCK=block,
        ROW=triton.cdiv(n_cols, block) * block,
        num_warps=min(max(block // 512, 1), 32),
    )
""",
        )
    )

    trial = TritonTrial(
        kernel="l2_normalize_kernel",
        types=(P, P, "i32", "i32", 1024),
        function="l2_normalize",
        types_after=(P, P, "i32", "i32", 1024, 1024),
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Elements of the row that a warp holds; the interpreter has no warps to choose from."""
        self.apply(subject, {"elements_per_warp": SWEEP[0]})
        sweep = SWEEP[:1] if subject.hardware.interpreted else SWEEP
        return [{"elements_per_warp": elements} for elements in sweep]

    def apply(self, subject: Subject, params: Params) -> str:
        """Rewrite every launched kernel that qualifies, and its launches."""
        elements = int(params["elements_per_warp"])
        return str(
            or_counted(subject, TRITON, _language, lambda each: self._rewritten(each, elements))
        )

    def _rewritten(self, subject: Subject, elements: int) -> str:
        source = subject.source
        edits = edits_of_each(
            TRITON.chosen(source),
            lambda kernel: _held(source, _passes(source, kernel), elements),
            "no Triton kernel is launched here",
        )
        return source.rewrite(edits)


def _language(source: Source, kernel: Kernel) -> str | None:
    with suppress(NotApplicable):
        return language(source, kernel)
    return None


@dataclass(frozen=True)
class Passes:
    """The loops of a kernel that step through one row."""

    kernel: Kernel
    block: str
    """The constant that they step by."""
    names: frozenset[str]
    """What the host calls it."""
    literals: tuple[TileConstant, ...]
    """The integers that set it; none where the host computes it."""
    length: str
    """The parameter that says how long the row is."""
    bounds: tuple[tuple[cst.BaseExpression, bool], ...]
    """Where each loop says it, and whether as a number of blocks: `n_cols`, or
    `tl.cdiv(n_cols, BLOCK)`, perhaps by a name."""


def _passes(source: Source, kernel: Kernel) -> Passes:
    check_untuned(source, [kernel], "the warps")
    if TRITON.has_dot(source, kernel):
        raise NotApplicable(f"{kernel.name} multiplies tiles, which are no rows")
    loops = list(descendants(kernel.function.node.body, cst.For))
    if len(loops) < 2:
        there = "one loop" if loops else "no loop"
        raise NotApplicable(
            f"looks for two or more loops that pass over one row, and {kernel.name} has {there}"
        )
    found = [_bound(source, kernel, loop) for loop in loops]
    lengths = {(length, block) for length, block, *_ in found}
    if len(lengths) > 1:
        raise NotApplicable(f"the loops of {kernel.name} step through different rows")
    ((length, block),) = lengths
    if not _loads_again(source, loops):
        raise NotApplicable(f"no two passes of {kernel.name} load from the same addresses")
    may_grow, names, literals = _tile(source, kernel, block)
    if not may_grow:
        raise NotApplicable(f"an access of {kernel.name} has no mask, so {block} cannot grow")
    return Passes(
        kernel, block, names, literals, length, tuple((b, counts) for *_, b, counts in found)
    )


def _tile(
    source: Source, kernel: Kernel, block: str
) -> tuple[bool, frozenset[str], tuple[TileConstant, ...]]:
    """Whether a block may grow, what the host calls it, and the integers that set it, if any."""
    try:
        tile = tile_of(TRITON, source, kernel, block)
    except NotApplicable as reason:
        try:
            own = given_size(TRITON, source, kernel, block)
        except NotApplicable as other:
            both = all_refuse((str(reason), str(other)), "")
            raise NotApplicable(f"{block} of {kernel.name}: {both}") from None
        names = frozenset(given.value for given in own.given if isinstance(given, cst.Name))
        return own.changes.may_grow, names, ()
    names = frozenset(name.value for x in tile.literals for name in x.names)
    return tile.changes.may_grow, names, (tile,)


def _bound(
    source: Source, kernel: Kernel, loop: cst.For
) -> tuple[str, str, cst.BaseExpression, bool]:
    """Length, block and bound of `range(0, n, BLOCK)` or `range(tl.cdiv(n, BLOCK))`, and whether
    the bound is a number of blocks."""
    given = positional(loop.iter) if isinstance(loop.iter, cst.Call) else ()
    if isinstance(loop.iter, cst.Call) and source.name(loop.iter.func) in RANGES:
        start = source.code(value_of(source, given[0])) if len(given) > 1 else "0"
        bound = given[min(len(given), 2) - 1]
        counted, counts = value_of(source, bound), False
        if start == "0" and len(given) == 3:
            found = source.code(bound), source.code(given[2])
        elif counts := start == "0" and _is_cdiv(source, counted):
            of, by = (source.code(a.value) for a in cst.ensure_type(counted, cst.Call).args)
            found = of, by
        else:
            found = "", ""
        length, block = found
        if belongs_to(kernel, length) and block in kernel.constants:
            return length, block, bound, counts
    line = source.line(loop)
    raise NotApplicable(f"the loop at line {line} does not step through a row by blocks")


def _is_cdiv(source: Source, expression: cst.BaseExpression) -> bool:
    return isinstance(expression, cst.Call) and source.name(expression.func) in TRITON.cdivs


def _loads_again(source: Source, loops: Sequence[cst.For]) -> bool:
    """Whether two of the loops load from addresses that are written alike."""
    seen: set[str] = set()
    for loop in loops:
        own = {
            source.code(call.args[0].value)
            for call in TRITON.find(source, loop.body, ("triton.language.load",))
            if call.args
        }
        if own & seen:
            return True
        seen |= own
    return False


def _held(source: Source, passes: Passes, elements: int) -> dict[cst.CSTNode, Edit]:
    kernel, block = passes.kernel, passes.block
    row = unused(kernel, "ROW")
    constexpr = f"{language(source, kernel)}.constexpr"
    edits = with_parameters(source, kernel, [f"{row}: {constexpr}"], default="None")
    for bound, counts in passes.bounds:
        text = f"{row} // {block}" if counts else row
        edits[bound] = writing(text)
    triton = triton_module(source, kernel)
    for launch in launches_in_sight(source, kernel):
        more = _launched(source, passes, launch, (triton, row, block), elements)
        if edits.keys() & more.keys():
            raise NotApplicable(f"line {source.line(launch.node)} has two launches")
        edits |= more
    return edits


def _launched(
    source: Source, passes: Passes, launch: Launch, names: tuple[str, str, str], elements: int
) -> dict[cst.CSTNode, Edit]:
    triton, row, block = names
    number = source.line(launch.node)
    length = launch.arguments.get(passes.length)
    line = statement_of(source, launch)
    if length is None or not is_pure(source, length):
        raise NotApplicable(f"the launch at line {number} does not show the length of the row")
    if "num_warps" in launch.arguments:
        raise NotApplicable(f"{passes.kernel.name} takes num_warps as a parameter")
    given = launch.arguments.get(block)
    own = {*passes.names, *([source.code(given)] if given is not None else [])}
    if grid_from_meta(source, passes.kernel, launch, passes.literals) or any(
        source.code(part) in own
        for node in (() if passes.literals else grid_nodes(source, launch))
        for kind in (cst.Name, cst.Attribute, cst.Subscript, cst.Call, cst.BinaryOperation)
        for part in descendants(node, kind)
    ):
        raise NotApplicable(f"the grid at line {number} depends on {block}")
    check_shown(source, launch, "num_warps")
    check_builtins(source, launch.node, "max", "min")
    code = source.code(length)
    name = free_name(source, "block")
    drop, node = without(launch, {block}), launch.node
    give = giving(
        source,
        node,
        {
            block: name,
            row: f"{triton}.cdiv({code}, {name}) * {name}",
            "num_warps": ramp(name, elements),
        },
    )
    text = f"{name} = min(max({triton}.next_power_of_2({code}), {LEAST}), {MOST})"
    return {
        node: lambda call: give(drop(call)),
        line: lambda updated: preceded(updated, [text]),
    }
