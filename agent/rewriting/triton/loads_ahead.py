"""How many rounds of a loop over programs are loaded ahead, as far as shared memory holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.alternatives import are_alternatives
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.broadcasts import TL, shape_of
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.pointers import root
from agent.analysis.triton.program_ids import one_block
from agent.rewriting.common.insertion import unused
from agent.rewriting.triton.loops import LOAD
from agent.syntax import Source, descendants

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
    elements = [_elements(source, kernel, load) for load in loads]
    if not bases or None in bases or None in elements:
        return str(stages), []
    name = unused(kernel, "num_stages")
    alike: dict[tuple[str, str], list[cst.Call]] = {}
    for base, count, load in zip(bases, elements, loads, strict=True):
        if base is not None and count:
            others = alike.setdefault((base, count), [])
            if not any(are_alternatives(source, load, other) for other in others):
                others.append(load)
    if not alike:
        return str(stages), []
    names: dict[tuple[str, str], str] = {}
    for base, count in alike:
        names[base, count] = unused(kernel, f"{base}_bytes", names.values())
    loaded = " + ".join(
        names[key] if len(several) == 1 else f"{len(several)} * {names[key]}"
        for key, several in alike.items()
    )
    loaded = f"({loaded})" if len(alike) > 1 and stages > 2 else loaded
    ahead = f"{stages - 1} * {loaded}" if stages > 2 else loaded
    room = pipelined.shared_bytes - SCRATCH_BYTES
    always = {base for base, _ in alike if _is_loaded_always(source, loads, bases, base)}
    return name, [
        *(
            f"{own}: {tl}.constexpr = {'' if base in always else f'0 if {base} is None else '}"
            f"{count} * {base}.dtype.element_ty.primitive_bitwidth // 8"
            for (base, count), own in names.items()
        ),
        f"{name}: {tl}.constexpr = {stages} if {ahead} <= {room} else 1",
    ]


def is_counted(source: Source, kernel: Kernel) -> bool:
    """Whether how many elements each load has is known, of a kernel with one size of blocks.

    Where it is not and blocks have several dimensions, nothing tells what fits: a larger block
    than those that were launched would ask for more than there is.
    """
    try:
        one_block(source, kernel)
    except NotApplicable:
        return True
    loads = TRITON.find(source, kernel.function.node.body, LOAD)
    return all(_elements(source, kernel, load) is not None for load in loads)


def _elements(source: Source, kernel: Kernel, load: cst.Call) -> str | None:
    """How many elements a load has, as the kernel can say it before the loop; empty for one."""
    shape = shape_of(TRITON, source, load)
    if shape is None and not _has_many_dimensions(source, kernel):
        try:
            return one_block(source, kernel)
        except NotApplicable:
            return None
    factors = [extent for extent in shape or (None,) if extent != "1"] if shape != () else []
    names = {n.value for e in factors if e for n in descendants(cst.parse_expression(e), cst.Name)}
    if None in factors or not names <= set(kernel.constants):
        return None
    return " * ".join(f if f.isidentifier() or f.isdigit() else f"({f})" for f in factors if f)


def _has_many_dimensions(source: Source, kernel: Kernel) -> bool:
    body = kernel.function.node.body
    spread = any(
        isinstance(element.slice, cst.Slice) or source.code(element) == "None"
        for subscript in descendants(body, cst.Subscript)
        for element in subscript.slice
    )
    shaped = (f"{TL}{name}" for name in ("expand_dims", "make_block_ptr", "reshape", "view"))
    return spread or TRITON.has(source, body, tuple(shaped))


def _is_loaded_always(
    source: Source, loads: Sequence[cst.Call], bases: Sequence[str | None], base: str
) -> bool:
    """Whether some load through a pointer is made in any case, so that it is none of `None`.

    By itself, or on both sides of a choice that is made in any case.
    """
    found = [load for load, other in zip(loads, bases, strict=True) if other == base]
    chains = [
        [a for a in source.ancestors(load) if isinstance(a, cst.If | cst.IfExp)] for load in found
    ]
    return any(not chain for chain in chains) or any(
        one[-1] is other[-1] and len(one) == len(other) == 1 and are_alternatives(source, x, y)
        for x, one in zip(found, chains, strict=True)
        for y, other in zip(found, chains, strict=True)
    )
