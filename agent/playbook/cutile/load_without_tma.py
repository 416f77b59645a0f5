"""Load tiles with plain instructions where the tensor memory accelerator does not pay.

When: a cuTile kernel that waits for memory and multiplies no tiles, on sm_90 or later.
Do: pass `allow_tma=False` to `ct.load`; try also with every `ct.store` alike, since the layout of a
    tile follows the one that needs the other.
Risk: none to results. A kernel that loads a tile from several places in a loop is better off with
    TMA, which needs no registers for what is on its way.
Source: an issue of CCCL (9060) reports that an RMSNorm in cuTile needs it on all loads and stores
    to match the CUDA kernel. Compiled for sm_90 with cuda-tile 1.7, the loads of a row kernel
    change from 4 UTMALDG to 2 LDG.128, and its shared memory falls from 9256 to 5152 bytes. An
    rms norm over 4096 columns of bf16 keeps 255 registers without TMA for its store alone, and
    takes 82 without TMA for both. Tiles
    that are padded with something other than zero are never loaded with TMA: they stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TileTrial
from agent.syntax import Source, keyword, setting

FIRST_TMA = 90
FILLED_BY_TMA = (None, f"{CT}PaddingMode.ZERO", f"{CT}PaddingMode.UNDETERMINED")
"""The padding of tiles that TMA can load; None stands for none given."""


class LoadWithoutTma(Optimization):
    """`ct.load(...)` -> `ct.load(..., allow_tma=False)`."""

    name = "load-without-tma"
    title = "load without TMA"
    backend = "cutile"
    family = "tma"
    priority: ClassVar = {KernelClass.MEMORY: 20, KernelClass.BALANCED: 80}
    expected = "up to some ten percent for row-wise kernels, a loss for others"
    hypothesis = "A row goes from memory to registers at once, not through shared memory."
    example: ClassVar[Params] = {}
    before = """\
import cuda.tile as ct
import torch


@ct.kernel(occupancy=4)
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
    after = before.replace(
        "ct.load(x, (row, 0), shape=(1, N), padding_mode=ct.PaddingMode.ZERO)",
        """\
ct.load(
        x, (row, 0), shape=(1, N), padding_mode=ct.PaddingMode.ZERO, allow_tma=False
    )""",
    )

    trial = TileTrial(
        kernel="rms_kernel", arguments=((F32, 2), (F32, 2), 1e-06, 1024), fp32_only=True
    )

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The loads alone; and the stores with them, where any may still use it."""
        self.apply(subject, {})
        return [{}, {"also": "stores"}] if _stores(subject.source) else [{}]

    def apply(self, subject: Subject, params: Params) -> str:
        """Forbid it on every load of the launched kernels that multiply no tiles."""
        source = subject.source
        if 0 < subject.hardware.sm < FIRST_TMA:
            raise NotApplicable(f"sm_{subject.hardware.sm} has no TMA")
        loads = {
            call: setting("allow_tma", "False")
            for kernel in CUTILE.chosen(source)
            if not CUTILE.has_dot(source, kernel)
            for function in CUTILE.reached(source, kernel)
            for call in CUTILE.find(source, function.node.body, (f"{CT}load",))
            if _may_use_tma(source, call)
        }
        if not loads:
            raise NotApplicable("no ct.load that may use TMA is left, but in products of tiles")
        stores = _stores(source) if params.get("also") == "stores" else ()
        return source.rewrite(loads | {call: setting("allow_tma", "False") for call in stores})


def _stores(source: Source) -> tuple[cst.Call, ...]:
    return tuple(
        call
        for kernel in CUTILE.chosen(source)
        if not CUTILE.has_dot(source, kernel)
        for function in CUTILE.reached(source, kernel)
        for call in CUTILE.find(source, function.node.body, (f"{CT}store",))
        if _is_allowed(source, call)
    )


def _may_use_tma(source: Source, call: cst.Call) -> bool:
    padding = keyword(call, "padding_mode")
    return (
        _is_allowed(source, call)
        and (source.name(padding) if padding is not None else None) in FILLED_BY_TMA
    )


def _is_allowed(source: Source, call: cst.Call) -> bool:
    allowed = keyword(call, "allow_tma")
    return allowed is None or source.code(allowed) in ("True", "None")
