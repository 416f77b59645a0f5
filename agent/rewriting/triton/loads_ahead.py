"""How many rounds of a loop over programs are loaded ahead, as far as shared memory holds them."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.pointers import root
from agent.analysis.triton.program_ids import one_block, unused
from agent.rewriting.triton.loops import LOAD
from agent.syntax import Source

SCRATCH_BYTES = 8192
"""Of shared memory, for reductions and changes of layout."""


@dataclass(frozen=True)
class Pipelined:
    """Loads that are under way before the round they are for."""

    num_stages: int
    shared_bytes: int
    """What a block may have of shared memory, in which the loads arrive."""


def stages_of(
    source: Source, kernel: Kernel, pipelined: Pipelined, tl: str
) -> tuple[str, list[str]]:
    """The stages as an expression of the kernel, and the statements that it needs before it.

    A run may be measured at one length and tested at a longer one, or with wider elements: where
    the kernel can compute what is loaded ahead, it gives up what does not fit.
    """
    stages = pipelined.num_stages
    loads = [*TRITON.find(source, kernel.function.node.body, LOAD)]
    bases = [root(source, kernel, call.args[0].value) if call.args else None for call in loads]
    try:
        block = one_block(source, kernel)
    except NotApplicable:
        return str(stages), []
    if not bases or None in bases:
        return str(stages), []
    name = unused(kernel, "num_stages")
    names = {base: unused(kernel, f"{base}_bytes") for base in bases if base is not None}
    loaded = " + ".join(names[base] for base in bases if base is not None)
    loaded = f"({loaded})" if len(bases) > 1 and stages > 2 else loaded
    ahead = f"{stages - 1} * {loaded}" if stages > 2 else loaded
    room = pipelined.shared_bytes - SCRATCH_BYTES
    always = {base for base, load in zip(bases, loads, strict=True) if not _is_branch(source, load)}
    absent = {base: "" if base in always else f"0 if {base} is None else " for base in names}
    return name, [
        *(
            f"{own}: {tl}.constexpr = {absent[base]}"
            f"{block} * {base}.dtype.element_ty.primitive_bitwidth // 8"
            for base, own in names.items()
        ),
        f"{name}: {tl}.constexpr = {stages} if {ahead} <= {room} else 1",
    ]


def _is_branch(source: Source, load: cst.Call) -> bool:
    """Whether a load is made on a condition: its pointer may be None where that does not hold."""
    return any(isinstance(around, cst.If | cst.IfExp) for around in source.ancestors(load))
