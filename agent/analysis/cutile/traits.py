"""Traits of a cuTile kernel that decide which search is written for it."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.cutile.blocks import over_blocks
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.uses import Uses
from agent.syntax import Function, Source, argument, descendants

EXPONENTIALS = (f"{CT}exp", f"{CT}exp2")
MAXIMA = (f"{CT}max", f"{CT}maximum")
EIGHT_BIT = ("float8_", "float4_")


@dataclass(frozen=True)
class Traits:
    """The answers, and the tile axes of a product."""

    multiplies: bool
    products: int
    """Products in the loop with the most of them."""
    attends: bool
    """A product, an exponential with a maximum taken off, another product."""
    ragged: bool
    """An array's values say where sequences or groups begin."""
    grouped: bool
    eight_bit: bool
    persistent: bool
    """A block goes on from tile to tile, so that any grid covers the work."""
    axes: dict[str, str]
    """Axis -> the constant that is its tile size; empty without a product."""


def read(source: Source, kernel: Kernel, uses: Uses) -> Traits:
    """Read the kernel and the helpers it calls."""
    functions = CUTILE.reached(source, kernel)
    dots = [(f, d) for f in functions for d in CUTILE.products(source, f)]
    attends = len(dots) > 1 and _calls(source, functions, EXPONENTIALS, MAXIMA)
    ragged = bool(uses.arrays & uses.integers)
    depth = max((len(_loops(source, d)) for _, d in dots), default=0)
    return Traits(
        multiplies=bool(dots),
        products=_most_in_a_loop(source, [d for _, d in dots]),
        attends=attends,
        ragged=ragged,
        grouped=bool(dots) and not attends and (bool(uses.lists) or ragged or depth > 2),
        eight_bit=bool(dots) and _eight_bit(source, functions),
        persistent=over_blocks(source, kernel) is not None,
        axes=_axes(source, kernel, functions, attends=attends) if dots else {},
    )


def _calls(source: Source, functions: tuple[Function, ...], *groups: tuple[str, ...]) -> bool:
    """Whether one of each group is called."""
    called = {CUTILE.called(source, c) for f in functions for c in descendants(f.node, cst.Call)}
    return all(called & set(group) for group in groups)


def _loops(source: Source, node: cst.CSTNode) -> list[cst.CSTNode]:
    """The loops around a node, innermost first."""
    return [a for a in source.ancestors(node) if isinstance(a, cst.For | cst.While)]


def _most_in_a_loop(source: Source, dots: list[cst.BaseExpression]) -> int:
    innermost = [loops[0] for d in dots if (loops := _loops(source, d))]
    return max((sum(a is b for b in innermost) for a in innermost), default=min(len(dots), 1))


def _eight_bit(source: Source, functions: tuple[Function, ...]) -> bool:
    """Whether 8-bit floats are named anywhere, or multiplied with their scales."""
    if _calls(source, functions, (f"{CT}mma_scaled",)):
        return True
    for attribute in descendants(source.module, cst.Attribute):
        module, _, name = (source.name(attribute) or "").rpartition(".")
        if module in ("torch", "cuda.tile") and name.startswith(EIGHT_BIT):
            return True
    return False


def _axes(
    source: Source, kernel: Kernel, functions: tuple[Function, ...], *, attends: bool
) -> dict[str, str]:
    """M and N of the accumulator, and the constant that only loads have; of attention M and it."""
    body = kernel.function.node.body
    accumulated = [
        names
        for call in CUTILE.find(source, body, CUTILE.accumulators)
        if len(names := _constants(source, kernel, call)) == 2 and all(names)
    ]
    if not accumulated:
        return {}
    m, n = accumulated[0]
    loaded = dict.fromkeys(
        name
        for function in functions
        for call in CUTILE.find(source, function.node.body, CUTILE.loads)
        for name in _constants(source, kernel, call)
        if name and name not in (m, n)
    )
    inner = next(iter(loaded)) if len(loaded) == 1 else ""
    named = (("M", m), ("N", inner)) if attends else (("M", m), ("N", n), ("K", inner))
    return {axis: name for axis, name in named if name}


def _constants(source: Source, kernel: Kernel, call: cst.Call) -> tuple[str, ...]:
    """The kernel's constants in the last two dimensions of a call's shape; "" for others."""
    shape = shape_of(source, call)
    elements = shape.elements[-2:] if isinstance(shape, cst.Tuple | cst.List) else ()
    codes = (source.code(e.value) for e in elements)
    return tuple(code if code in kernel.constants else "" for code in codes)


def shape_of(source: Source, call: cst.Call) -> cst.BaseExpression | None:
    """The tile shape that a call takes, through a local name."""
    taken = CUTILE.shapes.get(CUTILE.called(source, call) or "")
    shape = taken.of(call) if taken is not None else argument(call, 2, "shape")
    return source.resolve(shape) if shape is not None else None
