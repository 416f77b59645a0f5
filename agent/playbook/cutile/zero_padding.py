"""Pad with zeros, which the tensor memory accelerator can do.

When: a cuTile kernel on sm_90 or later whose `ct.load` pads with minus infinity, NaN or minus zero.
Do: load with `PaddingMode.ZERO`, and put the other value where it matters with
    `ct.where(columns < n, tile, value)`, before the reduction that needs it. Where nothing that
    lies beyond the array reaches a result, as in an elementwise kernel or the K axis of a product,
    zeros alone do.
Risk: a wrong mask changes results: a maximum over padded zeros is zero for a row of negative
    numbers. That takes judgement.
Source: TileGym's catalogue of knobs lists the modes. Compiled with cuda-tile 1.7 for sm_90 and
    sm_100, a row is loaded with UTMALDG where it is padded with zeros or not at all, and with
    LDG.128 where it is padded with minus infinity or NaN. In a 128 x 128 x 64 product minus zeros
    cost more: 80 LDGSTS instead of 3 UTMALDG, and 1578 instructions instead of 637 for sm_90.
    Without TMA zeros save a few percent of the instructions.
"""

from __future__ import annotations

from typing import ClassVar

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.playbook.base import Advice
from agent.syntax import keyword

FIRST_TMA = 90
FILLED_BY_TMA = ("ZERO", "UNDETERMINED")


class ZeroPadding(Advice):
    """`PaddingMode.NEG_INF` -> `PaddingMode.ZERO` and a mask."""

    name = "zero-padding"
    title = "zero padding"
    backend = "cutile"
    family = "tma"
    priority: ClassVar = {
        KernelClass.MEMORY: 200,
        KernelClass.BALANCED: 220,
        KernelClass.COMPUTE: 140,
    }
    expected = "a product gets its TMA loads back; for row kernels it can go either way"
    hypothesis = "Tiles that the accelerator loads need no registers on their way."

    def fits(self, subject: Subject) -> str:
        """The first load that pads with what TMA cannot fill in."""
        source = subject.source
        if 0 < subject.hardware.sm < FIRST_TMA:
            raise NotApplicable(f"sm_{subject.hardware.sm} has no TMA")
        for kernel in CUTILE.chosen(source):
            for function in CUTILE.reached(source, kernel):
                for call in CUTILE.find(source, function.node.body, (f"{CT}load",)):
                    padding = keyword(call, "padding_mode")
                    named = (source.name(padding) or "") if padding is not None else ""
                    mode = named.removeprefix(f"{CT}PaddingMode.")
                    if mode != named and mode not in FILLED_BY_TMA:
                        line = source.line(call)
                        return f"the load at line {line} pads with {mode}, which rules out TMA"
        raise NotApplicable("no launched kernel pads with anything but zeros")
