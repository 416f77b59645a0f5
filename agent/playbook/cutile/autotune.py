"""Let the kernel find its config by itself, on the GPU and for the shapes it meets.

When: a cuTile kernel whose best hints or tile sizes differ from shape to shape or from GPU to GPU.
Do: on the first call for a shape, type and device search a small space with
    `cuda.tile.tune.exhaustive_search`; keep config and hinted kernel; launch. The occupancy alone
    where nothing multiplies, else tile sizes, occupancy and num_ctas, 30 configs at most; for a
    matrix product also with blocks that stay and go from tile to tile in groups, all at once.
Risk: sums in another order; else none to results while a tile size is nothing else, which is
    checked; trial runs write to arrays of their own. The first call takes seconds;
    `DISABLE_AUTOTUNE=1` brings back the fixed config.
Source: TileGym's cuTile playbook, item C, and its autotuning recipes, which claim 2 to 15 % for
    elementwise kernels and reductions and 5 to 30 % for matrix products. In groups of 8 a
    product of 4096^3 in bf16 takes 0.187 ms on an NVIDIA H200 with blocks that stay, and 0.189 ms
    with a block for each tile; a batch of 8 of 2048^3 in fp16 0.210 and 0.226 ms (cuda-tile 1.7,
    the best of 11 and 9 configs; TileGym's persistent ones 0.197 and 0.216 ms beside them).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

from agent import tuning
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.each_kernel import all_refuse
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.provenance import tile_names, tile_of
from agent.analysis.common.size_changes import SizeChanges
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.playbook.base import REORDERED, Optimization
from agent.playbook.cutile.grouped_order import GroupedOrder
from agent.playbook.trial import F32, TileTrial
from agent.rewriting.cutile.persistence import looped
from agent.syntax import Literal, Source

PERSISTENT = "persistent"
"""The parameter that says that blocks stay."""
STAYING_PRODUCT = "T4"
GROUP = 8
"""Tiles of a group, along the first axis: TileGym's number."""


class Autotune(Optimization):
    """A launch with a fixed config -> a search on the first call, then a launch with its best."""

    name = "autotune"
    title = "autotune"
    backend = "cutile"
    family = "autotune"
    priority: ClassVar = {
        KernelClass.MEMORY: 160,
        KernelClass.BALANCED: 170,
        KernelClass.COMPUTE: 120,
    }
    expected = "at least what the best fixed config gives, for every shape and GPU"
    hypothesis = "Each shape has its own best occupancy and tile sizes; the search finds them."
    changes_rounding = REORDERED
    example: ClassVar[Params] = {}
    before = """\
import cuda.tile as ct
import torch


@ct.kernel(occupancy=2)
def gelu_kernel(x, y, TILE: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    tile = ct.load(x, index=(row, column), shape=(1, TILE)).astype(ct.float32)
    gated = tile / (1 + ct.exp(-1.702 * tile))
    ct.store(y, index=(row, column), tile=gated.astype(y.dtype))


def gelu(x):
    y = torch.empty_like(x)
    grid = (x.shape[0], ct.cdiv(x.shape[1], 1024))
    ct.launch(torch.cuda.current_stream(), grid, gelu_kernel, (x, y, 1024))
    return y
"""
    after = '''\
import os
from types import SimpleNamespace

import cuda.tile as ct
import torch
from cuda.tile.tune import exhaustive_search


@ct.kernel
def gelu_kernel(x, y, TILE: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    tile = ct.load(x, index=(row, column), shape=(1, TILE)).astype(ct.float32)
    gated = tile / (1 + ct.exp(-1.702 * tile))
    ct.store(y, index=(row, column), tile=gated.astype(y.dtype))


# Tuning gelu_kernel: elementwise or reduction, at most 4 configs.
_GELU_FIXED = SimpleNamespace(occupancy=2)
_GELU_CACHE = {}  # what the best config depends on -> it, and its kernel


def _gelu_configs():
    return [_GELU_FIXED, *(SimpleNamespace(occupancy=n) for n in (1, 4, 8))]


def _gelu_hints(config):
    return {"occupancy": config.occupancy}


_GELU_FIXED_KERNEL = gelu_kernel.replace_hints(**_gelu_hints(_GELU_FIXED))


def _best_gelu_config(configs, stream, grid, args):
    def search(tried):
        found = exhaustive_search(
            tried, stream, grid, gelu_kernel, args, _gelu_hints, quiet=True
        )
        return found.best.config

    best = search(configs)
    # The fixed config was timed first, perhaps on an idle GPU: time it once more.
    return best if best is _GELU_FIXED else search([best, _GELU_FIXED])


def _launch_gelu(stream, grid, x, y):
    """Launch with the best config for such arrays: the first call searches."""
    args = (x, y, 1024)
    if os.environ.get("DISABLE_AUTOTUNE", "0") == "1":
        kernel = _GELU_FIXED_KERNEL
    else:
        key = (x.shape, x.dtype, str(x.device))
        if key not in _GELU_CACHE:
            best = _best_gelu_config(
                _gelu_configs(), stream, lambda _: grid, lambda _: args
            )
            # A kernel from replace_hints() has yet to be compiled: keep it.
            _GELU_CACHE[key] = best, gelu_kernel.replace_hints(**_gelu_hints(best))
        _, kernel = _GELU_CACHE[key]
    ct.launch(stream, grid, kernel, args)


def gelu(x):
    y = torch.empty_like(x)
    grid = (x.shape[0], ct.cdiv(x.shape[1], 1024))
    _launch_gelu(torch.cuda.current_stream(), grid, x, y)
    return y
'''

    trial = TileTrial(kernel="gelu_kernel", arguments=((F32, 2), (F32, 2), 1024))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """One for each kernel that can be tuned, and one with blocks that stay for a product.

        With several kernels the parameters name the one.
        """
        kernels = CUTILE.chosen(subject.source)
        found: list[Params] = []
        reasons: list[str] = []
        for kernel in kernels:
            named: Params = {"kernel": kernel.name} if len(kernels) > 1 else {}
            try:
                self.apply(subject, named)
            except NotApplicable as refusal:
                reasons.append(str(refusal))
                continue
            found.append(named)
            with suppress(NotApplicable):  # it is tuned as it is, then
                self.apply(subject, staying := {**named, PERSISTENT: True})
                found.append(staying)
        if not found:
            raise all_refuse(reasons, "the file launches no cuTile kernel")
        return found[:8]

    def apply(self, subject: Subject, params: Params) -> str:
        """Write the search of one kernel."""
        kernel = kernel_named(subject.source, params.get("kernel"))
        if not params.get(PERSISTENT):
            return written(subject, plan_for(subject, kernel))
        grouped = _grouped(subject, kernel)
        kernel = kernel_named(grouped.source, params.get("kernel"))
        plan = plan_for(grouped, kernel, STAYING_PRODUCT)
        stays = looped(grouped.source, kernel)
        return written(grouped, plan, tuning.Staying(stays.edits, stays.extents))


def written(
    subject: Subject, plan: tuning.SearchPlan, staying: tuning.Staying | None = None
) -> str:
    """The source with a planned search in it. Raises `NotApplicable` where none can be written."""
    try:
        return tuning.write(subject.source, plan, staying)
    except tuning.NotTunable as refusal:
        raise NotApplicable(str(refusal)) from None


def _grouped(subject: Subject, kernel: Kernel) -> Subject:
    """A product's tiles in groups; as they are, where they are in an order of their own.

    Raises:
        NotApplicable: the kernel sums up no product.
    """
    source = subject.source
    if not CUTILE.sums_products(source, kernel):
        raise NotApplicable(f"{kernel.name} does not multiply tiles in a loop")
    try:
        edits = GroupedOrder().edits(subject, kernel, {"group": GROUP})
    except NotApplicable:
        return subject
    return replace(subject, source=source.with_text(source.rewrite(edits)))


def kernel_named(source: Source, name: str | None) -> Kernel:
    """The launched kernel of that name; the only one when none is named.

    Raises:
        NotApplicable: there is no such kernel, or there are several.
    """
    kernels = CUTILE.chosen(source)
    named = [k for k in kernels if name in (None, k.name)]
    if len(named) != 1:
        listed = ", ".join(k.name for k in kernels) or "none"
        raise NotApplicable(
            f"name one of the kernels that the file launches, with --function: {listed}"
        )
    return named[0]


def plan_for(subject: Subject, kernel: Kernel, template: str | None = None) -> tuning.SearchPlan:
    """What a search of a kernel would try. Raises `NotApplicable` with the reason for none."""
    source = subject.source
    literals: dict[str, Literal] = {}
    fixed: dict[str, str] = {}
    changes: dict[str, SizeChanges] = {}
    for constant in tile_names(CUTILE, source, kernel):
        if constant not in kernel.constants:
            continue  # a global of the kernel: no launch can pass another value
        try:
            tile = tile_of(CUTILE, source, kernel, constant, computed=True)
        except NotApplicable as refusal:
            fixed[constant] = f"must stay: {refusal}"
            continue
        literals[constant] = tile.literals[0]
        changes[constant] = tile.changes
    sizes = tuning.TunableSizes(literals, fixed, changes)
    try:
        found = tuning.plan(source, kernel, subject.kernel_class, sizes, template)
    except tuning.NotTunable as refusal:
        raise NotApplicable(str(refusal)) from None
    return tuning.for_resident_blocks(found, subject.kernel_class)
