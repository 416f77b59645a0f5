"""Tell the compiler how heavily stores go to device memory.

When: a cuTile kernel that waits for memory and stores in a loop, on sm_90 or later.
Do: set `latency=` on `ct.store` and `ct.scatter`; sweep 1 and 3.
Risk: none to results.
Source: TileGym's cuTile playbook, item E, which reports +3 % for an rms_norm with 3. Compiled for
    sm_90 with cuda-tile 1.7, a row kernel's shared memory falls from 56784 bytes to 52656 with 3
    and to 50592 with 1; for sm_80 nothing changes, nor, for sm_90, in a kernel without a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TileTrial
from agent.syntax import Source, keyword, setting

FIRST_TMA = 90
SWEEP = (1, 3)
HINTED = (f"{CT}store", f"{CT}scatter")


class StoreLatency(Optimization):
    """`ct.store(...)` -> `ct.store(..., latency=N)`."""

    name = "store-latency"
    title = "store latency hint"
    backend = "cutile"
    family = "pipelining"
    priority: ClassVar = {
        KernelClass.MEMORY: 170,
        KernelClass.BALANCED: 190,
        KernelClass.COMPUTE: 170,
    }
    expected = "a few percent either way"
    hypothesis = "Buffers that the stores do not need are left to the loads."
    opt_in = "it gained 0.2 % at most on two kernels"
    example: ClassVar[Params] = {"latency": 3}
    before = """\
import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def double_kernel(x, y):
    row = ct.bid(0)
    for i in range(ct.num_tiles(x, axis=1, shape=(1, TILE))):
        tile = ct.load(x, index=(row, i), shape=(1, TILE))
        ct.store(y, index=(row, i), tile=tile + tile)


def double(x):
    y = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), double_kernel, (x, y))
    return y
"""
    after = before.replace("tile=tile + tile)", "tile=tile + tile, latency=3)")

    trial = TileTrial(kernel="double_kernel", arguments=((F32, 2), (F32, 2)))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The sweep, less what every store in a loop says already."""
        self._check(subject)
        source = subject.source
        present = {source.code(given) if given else None for _, given in _stores(source)}
        if not present:
            raise NotApplicable("no launched kernel stores in a loop with the latency left open")
        return [{"latency": value} for value in SWEEP if present != {str(value)}]

    def apply(self, subject: Subject, params: Params) -> str:
        """Set it on every store in a loop of the launched kernels and of their helpers."""
        self._check(subject)
        latency = str(params["latency"])
        source = subject.source
        edits = {
            call: setting("latency", latency)
            for call, given in _stores(source)
            if given is None or source.code(given) != latency
        }
        if not edits:
            raise NotApplicable(f"no store in a loop is left to set latency={latency} on")
        return source.rewrite(edits)

    @staticmethod
    def _check(subject: Subject) -> None:
        if 0 < subject.hardware.sm < FIRST_TMA:
            raise NotApplicable(f"on sm_{subject.hardware.sm} it changes nothing")


def _stores(source: Source) -> Iterator[tuple[cst.Call, cst.BaseExpression | None]]:
    """The stores inside a loop whose latency is open or a number, with that number."""
    found = {
        call: keyword(call, "latency")
        for kernel in CUTILE.chosen(source)
        for function in CUTILE.reached(source, kernel)
        for call in CUTILE.find(source, function.node.body, HINTED)
        if any(isinstance(a, cst.For | cst.While) for a in source.ancestors(call))
    }
    for call, given in found.items():
        if given is None or isinstance(given, cst.Integer):
            yield call, given
