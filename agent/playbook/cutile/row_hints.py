"""Set the hints of a kernel on rows together: occupancy, loads and stores without TMA, row length.

When: a cuTile kernel that memory bounds, and that multiplies no tiles; others of the file stay.
Do: an occupancy of 4, 8 or 16 with `allow_tma=False` at stores, or at loads and stores, and the
    length of rows as a constant of the compilation; also with eight warps. What of it does not
    apply, or is set, stays as it is.
Risk: none to results: no hint has a meaning, and the launch passes the length on. Every new length
    is compiled, for some tenths of a second.
Source: on an NVIDIA H200 with cuda-tile 1.7 each of them gains on top of the others: of a bf16
    softmax of 16384 x 4096 the occupancy takes 74 % off, stores without TMA 15 % of the rest and
    the length 17 % of that; of an RMS norm 63, 8 and 13 %, after which it takes 0.0721 ms, and
    0.0712 with eight warps. An occupancy of 6 and more has the compiler load an RMS norm's weights
    behind the sum, where each load waits for the one before; up to 5 they come in front of it, in
    80 registers for 55. One by one a search stops elsewhere: blocks that stay take 70 % off
    that RMS norm at once, and nothing brings it below 0.0728 ms from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from agent.analysis.common.each_kernel import all_refuse
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.blocks import over_blocks
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.operands import multiplies
from agent.playbook.base import Optimization
from agent.playbook.cutile.load_without_tma import LoadWithoutTma
from agent.playbook.cutile.occupancy_hint import HINT as OCCUPANCY
from agent.playbook.cutile.occupancy_hint import OccupancyHint
from agent.playbook.cutile.static_shapes import StaticShapes
from agent.playbook.cutile.store_without_tma import StoreWithoutTma
from agent.playbook.cutile.worker_warps import HINT as WARPS
from agent.playbook.cutile.worker_warps import WorkerWarps
from agent.playbook.trial import F32, TileTrial
from agent.syntax import Source

TMA = "without_tma"
BOTH, STORES = "loads and stores", "stores"
"""What goes without it."""
SWEEP: tuple[Mapping[str, Any], ...] = (
    {OCCUPANCY: 8, TMA: BOTH},
    {OCCUPANCY: 8, TMA: STORES},
    {OCCUPANCY: 8, TMA: BOTH, WARPS: 8},
    {OCCUPANCY: 4, TMA: BOTH},
    {OCCUPANCY: 16, TMA: BOTH},
    {OCCUPANCY: 16, TMA: STORES},
    {OCCUPANCY: 16, TMA: BOTH, WARPS: 8},
)


class RowHints(Optimization):
    """All hints that a kernel on rows gains by, at once."""

    name = "row-hints"
    title = "hints for rows"
    backend = "cutile"
    family = "occupancy"
    priority: ClassVar = {KernelClass.MEMORY: -20}
    expected = "what the occupancy, loads and stores without TMA and a static row length gain"
    hypothesis = "Many rows are on their way at a time when each takes few registers and no more."
    example: ClassVar[Params] = SWEEP[0]
    before = """\
import cuda.tile as ct
import torch


@ct.kernel
def rms_kernel(x, y, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    tile = ct.load(x, (row, 0), shape=(1, N), padding_mode=ct.PaddingMode.ZERO)
    scale = ct.rsqrt(ct.sum(tile * tile, axis=1, keepdims=True) / x.shape[1] + eps)
    ct.store(y, index=(row, 0), tile=tile * scale)


def rms(x, eps=1e-6):
    y = torch.empty_like(x)
    n = 1 << (x.shape[1] - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), rms_kernel, (x, y, eps, n))
    return y
"""
    after = """\
from typing import Annotated

import cuda.tile as ct
import torch

StaticRow = Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(-1,))]


@ct.kernel(occupancy=8)
def rms_kernel(x: StaticRow, y: StaticRow, eps: float, N: ct.Constant[int]):
    row = ct.bid(0)
    tile = ct.load(
        x, (row, 0), shape=(1, N), padding_mode=ct.PaddingMode.ZERO, allow_tma=False
    )
    scale = ct.rsqrt(ct.sum(tile * tile, axis=1, keepdims=True) / x.shape[1] + eps)
    ct.store(y, index=(row, 0), tile=tile * scale, allow_tma=False)


def rms(x, eps=1e-6):
    y = torch.empty_like(x)
    n = 1 << (x.shape[1] - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), rms_kernel, (x, y, eps, n))
    return y
"""

    trial = TileTrial(
        kernel="rms_kernel",
        arguments=((F32, 2), (F32, 2), 1e-6, 1024),
        arguments_after=((F32, 2, (None, 1024)), (F32, 2, (None, 1024)), 1e-6, 1024),
        fp32_only=True,
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The sweep, without what does not apply."""
        subject = _for_rows(subject)
        there = {
            BOTH: _applied(subject, LoadWithoutTma(), {}) is not None,
            STORES: _applied(subject, StoreWithoutTma(), {}) is not None,
        }
        found: list[Params] = []
        for params in SWEEP:
            without = next((w for w in (params[TMA], STORES) if there[w]), None)
            kept = {hint: value for hint, value in params.items() if hint != TMA}
            variant = kept | ({TMA: without} if without is not None else {})
            if variant not in found:
                found.append(variant)
        self.apply(subject, found[0])
        return found

    def apply(self, subject: Subject, params: Params) -> str:
        """Set what is not set yet, in the kernels that it is for.

        Raises:
            NotApplicable: every kernel multiplies tiles, or its blocks stay; or one hint at most
                is left to set.
        """
        subject = _for_rows(subject)
        source = subject.source
        text = OccupancyHint().apply(subject, {OCCUPANCY: params[OCCUPANCY]})
        more: list[tuple[Optimization, Params]] = [(StaticShapes(), StaticShapes.example)]
        if TMA in params:
            also = (LoadWithoutTma(), {"also": "stores"})
            more.append(also if params[TMA] == BOTH else (StoreWithoutTma(), {}))
        if WARPS in params:
            more.append((WorkerWarps(), {WARPS: params[WARPS]}))
        alone = text
        for entry, given in more:
            changed = replace(subject, source=source.with_text(text))
            text = _applied(changed, entry, given) or text
        if text == alone:
            raise NotApplicable("nothing but the occupancy is left to set")
        return text


def _for_rows(subject: Subject) -> Subject:
    """The subject with the kernels alone that the hints are for. Raises `NotApplicable`."""
    source, reasons = subject.source, []
    found: list[str] = []
    for kernel in CUTILE.chosen(source):
        if (product := multiplies(source, kernel)) is not None:
            reasons.append(product)
        elif over_blocks(source, kernel) is not None:
            reasons.append(f"the grid of {kernel.name} decides how many blocks there are")
        else:
            found.append(kernel.name)
    if not reasons:
        return subject
    if not found:
        raise all_refuse(reasons, "")
    return replace(subject, source=Source(source.text, source.path, tuple(found)))


def _applied(subject: Subject, entry: Optimization, params: Params) -> str | None:
    try:
        return entry.apply(subject, params)
    except NotApplicable:
        return None
