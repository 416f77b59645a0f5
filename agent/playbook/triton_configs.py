"""Which `triton.Config`s are worth tuning over, by formula, for a kernel's tile constants.

The formulas follow what Helion seeds its search with for H100 and what the Triton tutorials list:
at most 32768 fp32 accumulators, 8 warps from 16384 of them, as many stages as shared memory holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import libcst as cst

from agent.backends.dialect import Kernel
from agent.backends.triton import TRITON
from agent.playbook.definitions import value_of
from agent.playbook.flow import Flow
from agent.syntax import Source, descendants, positional

DOT_TILES = (
    (128, 256, 64),
    (256, 128, 64),
    (128, 128, 64),
    (128, 64, 64),
    (64, 128, 64),
    (64, 256, 32),
    (128, 128, 32),
    (64, 64, 64),
)
"""M, N and K of a matrix product's tiles."""
STAGES = (3, 4)
ATTENTION = ((64, 32), (64, 64), (64, 128), (128, 32), (128, 64), (128, 128))
"""Queries and keys of an attention's tiles."""
BOTH_WARPS = 128 * 128
"""Accumulators with which 4 and 8 warps are both worth a try."""
STREAMED = (
    (512, 4), (1024, 4), (1024, 8), (2048, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 8),
    (8192, 16), (16384, 16),
)  # fmt: skip
"""Elements and warps of a block that steps through a row, or takes its share of a vector."""
PLANES = ((32, 32), (32, 64), (64, 32), (64, 64), (32, 128), (128, 32), (64, 128), (128, 64))
"""Edges of a two-dimensional tile without a dot."""
SHARED_BYTES = {80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448, 100: 232448,
                103: 232448, 120: 101376, 121: 101376}  # fmt: skip
"""What a block may have, by compute capability; 0, no GPU, is taken for Hopper."""
ELEMENT_BYTES = 2
MOST = 15
DEFAULT_WARPS, DEFAULT_STAGES = 4, 3


@dataclass(frozen=True)
class Config:
    """One `triton.Config`."""

    constants: tuple[tuple[str, int], ...]
    num_warps: int = DEFAULT_WARPS
    num_stages: int | None = None
    """None where nothing is pipelined by it."""

    def code(self, triton: str) -> str:
        """Its source; `triton` is how the file spells the module."""
        listed = ", ".join(f'"{name}": {value}' for name, value in self.constants)
        stages = f", num_stages={self.num_stages}" if self.num_stages is not None else ""
        return f"{triton}.Config({{{listed}}}, num_warps={self.num_warps}{stages})"


@dataclass(frozen=True)
class Axis:
    """Constants that one size sets, and how large it may be."""

    constants: tuple[str, ...]
    size: int
    most: int | None = None


def configs(source: Source, kernel: Kernel, axes: Sequence[Axis], sm: int) -> tuple[Config, ...]:
    """What to tune over besides what the kernel has; sizes out of an axis's bounds are left out."""
    has_dot = TRITON.has_dot(source, kernel)
    order = _matmul_order(source, kernel, axes) if has_dot else None
    if order is not None:
        found = _matmul(order, sm)
    elif has_dot:
        found = _attention(axes) if len(axes) == 2 else _scaled(axes, STAGES)
    elif len(axes) == 1:
        found = (Config(_all(axes, (size,)), warps) for size, warps in STREAMED)
    elif len(axes) == 2:
        found = (Config(_all(axes, edges), w) for edges in PLANES for w in (4, 8))
    else:
        found = _scaled(axes, (None,))
    nested = _nested(source, kernel, axes)
    limits = {name: axis.most for axis in axes for name in axis.constants}
    within = (
        config
        for config in found
        if all((most := limits[name]) is None or size <= most for name, size in config.constants)
        and all(dict(config.constants)[a] % dict(config.constants)[b] == 0 for a, b in nested)
    )
    return tuple(dict.fromkeys(within))[:MOST]


def _nested(source: Source, kernel: Kernel, axes: Sequence[Axis]) -> set[tuple[str, str]]:
    """Pairs of constants of which the first has to stay a multiple of the second.

    A loop that ends at a multiple of one block and steps by another, as that of a causal attention
    does, may count on that.
    """
    sizes = {name: axis.size for axis in axes for name in axis.constants}
    found = set()
    for loop in descendants(kernel.function.node.body, cst.For):
        bounds, step = _bounds(source, loop)
        for outer in sizes if step in sizes else ():
            flow = Flow(TRITON, source, kernel, outer)
            if outer != step and any(flow.carries(bound) for bound in bounds):
                found.add((outer, step))
    return {(outer, inner) for outer, inner in found if sizes[outer] % sizes[inner] == 0}


def _bounds(source: Source, loop: cst.For) -> tuple[tuple[cst.BaseExpression, ...], str]:
    """Where a loop starts and ends, and its step: of `range(a, b, B)` or `range(cdiv(b, B))`."""
    given = positional(loop.iter) if isinstance(loop.iter, cst.Call) else ()
    if len(given) == 3:
        return given[:2], source.code(given[2])
    bound = value_of(source, given[-1]) if given else None
    if isinstance(bound, cst.Call) and source.name(bound.func) in TRITON.cdivs:
        values = positional(bound)
        return (*given[:-1], *values[:1]), source.code(values[-1])
    return (), ""


def _matmul(axes: Sequence[Axis], sm: int) -> Iterable[Config]:
    shared = SHARED_BYTES.get(sm, SHARED_BYTES[90])
    for m, n, k in DOT_TILES:
        area = m * n
        for stages in STAGES if area >= BOTH_WARPS and k > 32 else STAGES[-1:]:
            if stages * (m + n) * k * ELEMENT_BYTES <= shared:
                for warps in (4, 8) if area == BOTH_WARPS else (8 if area > BOTH_WARPS else 4,):
                    yield Config(_all(axes, (m, n, k)), warps, stages)


def _attention(axes: Sequence[Axis]) -> Iterable[Config]:
    for edges in ATTENTION:
        for warps in (4, 8) if edges[0] == 128 else (4,):
            for stages in (2, 3):
                yield Config(_all(axes, edges), warps, stages)


def _scaled(axes: Sequence[Axis], stages: Sequence[int | None]) -> Iterable[Config]:
    for factors in product((1, 2, 0.5), repeat=len(axes)):
        sizes = [max(int(axis.size * f), 1) for axis, f in zip(axes, factors, strict=True)]
        for warps, count in product((4, 8), stages):
            yield Config(_all(axes, sizes), warps, count)


def _all(axes: Sequence[Axis], sizes: Sequence[int]) -> tuple[tuple[str, int], ...]:
    return tuple((n, s) for axis, s in zip(axes, sizes, strict=True) for n in axis.constants)


def _matmul_order(
    source: Source, kernel: Kernel, axes: Sequence[Axis]
) -> tuple[Axis, Axis, Axis] | None:
    """The axes as M, N and K: M x N is the shape of the dot's accumulator."""
    if len(axes) != 3:
        return None
    by_name = {name: axis for axis in axes for name in axis.constants}
    for call in TRITON.find(source, kernel.function.node.body, TRITON.accumulators):
        shape = TRITON.shapes[TRITON.called(source, call) or ""].of(call)
        shape = value_of(source, shape) if shape is not None else None
        if isinstance(shape, cst.Tuple | cst.List) and len(shape.elements) == 2:
            m, n = (by_name.get(source.code(e.value)) for e in shape.elements)
            rest = [axis for axis in axes if axis not in (m, n)]
            if m is not None and n is not None and len(rest) == 1:
                return m, n, rest[0]
    return None
