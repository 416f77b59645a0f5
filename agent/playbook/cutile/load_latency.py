"""Tell the compiler how heavily loads go to device memory, so that it starts them earlier.

When: a cuTile kernel that waits for memory; its loads carry no `latency=`, or a guessed one.
Do: set `latency=` on `ct.load` and `ct.gather`; 1 means little traffic to device memory, 10 heavy.
    Sweep 1, 3, 6, 10: in what was compiled with cuda-tile 1.7, 2 gives the code of no hint.
Risk: none to results. A deeper pipeline holds more shared memory, so that fewer blocks fit.
Source: TileGym's cuTile playbook, item E. Compiled for sm_90 with cuda-tile 1.7, latency 10 raises
    the shared memory of a row kernel from 50432 to 182048 bytes: a deeper pipeline. TileGym reports
    -15 % to +1 % for a matrix product on a B200, so only a timing tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import libcst as cst

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.analysis.cutile.dialect import CUTILE
from agent.playbook.base import Optimization
from agent.playbook.trial import F32, TileTrial
from agent.syntax import Source, keyword, setting

SWEEP = (1, 3, 6, 10)
HINTED = ("cuda.tile.load", "cuda.tile.gather")


class LoadLatency(Optimization):
    """`ct.load(...)` -> `ct.load(..., latency=N)`."""

    name = "load-latency"
    title = "load latency hint"
    backend = "cutile"
    family = "pipelining"
    priority: ClassVar = {
        KernelClass.MEMORY: 110,
        KernelClass.BALANCED: 100,
        KernelClass.COMPUTE: 90,
    }
    expected = "a few percent either way"
    hypothesis = "Loads that are issued earlier overlap with the computation before their use."
    example: ClassVar[Params] = {"latency": 6}
    before = """\
import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def row_sum_kernel(x, y):
    row = ct.bid(0)
    total = ct.full((1, TILE), 0, dtype=ct.float32)
    for i in range(ct.num_tiles(x, axis=1, shape=(1, TILE))):
        total += ct.load(
            x,
            index=(row, i),
            shape=(1, TILE),
            padding_mode=ct.PaddingMode.ZERO,  # the row may end inside a tile
        )
    ct.store(y, index=(row,), tile=ct.sum(total, axis=1))


def row_sum(x):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), row_sum_kernel, (x, y))
    return y
"""
    after = before.replace(
        "# the row may end inside a tile\n",
        "# the row may end inside a tile\n            latency=6,\n",
    )

    trial = TileTrial(kernel="row_sum_kernel", arguments=((F32, 2), (F32, 1)))

    def variants(self, subject: Subject) -> Sequence[Params]:
        """The sweep, less what every load says already."""
        source = subject.source
        present = {source.code(given) if given else None for _, given in _loads(source)}
        if not present:
            raise NotApplicable("no launched kernel has a ct.load or ct.gather")
        return [{"latency": value} for value in SWEEP if present != {str(value)}]

    def apply(self, subject: Subject, params: Params) -> str:
        """Set it on every load of the launched kernels and of the helpers they call."""
        latency = str(params["latency"])
        source = subject.source
        edits = {
            load: setting("latency", latency)
            for load, given in _loads(source)
            if given is None or source.code(given) != latency
        }
        if not edits:
            raise NotApplicable(f"every load says latency={latency} already, or there is none")
        return source.rewrite(edits)


def _loads(source: Source) -> list[tuple[cst.Call, cst.BaseExpression | None]]:
    """The loads whose latency is open or a number, with that number."""
    found = {
        call: keyword(call, "latency")
        for kernel in CUTILE.chosen(source)
        for function in CUTILE.reached(source, kernel)
        for call in CUTILE.find(source, function.node.body, HINTED)
    }
    return [
        (c, given) for c, given in found.items() if given is None or isinstance(given, cst.Integer)
    ]
