"""The `triton.Config`s worth tuning over, by formula, for a kernel's tile constants.

They follow what Helion seeds its search with for H100 and what the Triton tutorials list: at most
32768 fp32 accumulators, 8 warps from 16384 of them, as many stages as shared memory holds; 8 to 32
elements a thread where nothing is multiplied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import libcst as cst

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.dialect import Kernel
from agent.analysis.common.provenance import TileConstant
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.reduced_axes import TURNING
from agent.analysis.triton.tables import constants_of
from agent.evidence.occupancy import LIMITS
from agent.syntax import Source, Untraceable, argument, descendants, keyword, positional

DOT = (
    (128, 256, 64, 8, 3),
    (128, 128, 64, 4, 4),
    (256, 128, 64, 8, 3),
    (128, 128, 32, 4, 4),
    (128, 256, 64, 8, 4),
    (128, 128, 64, 8, 4),
    (64, 128, 64, 4, 4),
    (128, 64, 64, 4, 4),
    (128, 128, 64, 4, 3),
    (256, 128, 64, 8, 4),
    (128, 128, 64, 8, 3),
    (64, 256, 32, 4, 4),
    (64, 64, 64, 4, 4),
)
"""M, N and K of a matrix product's tiles, warps and stages, the most promising first."""
ATTENTION = (
    (128, 64, 8, 3),
    (128, 128, 8, 2),
    (128, 128, 8, 3),
    (64, 64, 4, 2),
    (128, 64, 8, 2),
    (64, 64, 4, 3),
    (128, 32, 4, 3),
    (64, 32, 4, 3),
    (128, 64, 4, 3),
    (64, 64, 4, 4),
    (64, 128, 4, 2),
)
"""Queries and keys of an attention's tiles, warps and stages."""
STREAMED = (
    (2048, 8), (4096, 8), (1024, 4), (2048, 4), (8192, 16), (8192, 8), (4096, 4), (16384, 16),
    (512, 4), (1024, 8), (4096, 16),
)  # fmt: skip
"""Elements and warps of a block that steps through a row, or takes its share of a vector."""
PLANES = (
    (64, 64, 8), (64, 64, 4), (64, 128, 8), (128, 64, 8), (128, 128, 16), (128, 128, 8),
    (32, 128, 8), (128, 32, 8), (32, 64, 4), (64, 32, 4), (32, 32, 4),
)  # fmt: skip
"""Edges and warps of a tile of two dimensions without a dot."""
PLANE_EDGES = range(8, 257)
"""Edges that make a tile a plane, not a handful of rows."""
STAGES = (3, 4)
SMALLEST_DOT = 16
"""Edge of a tile that the tensor cores take."""
ELEMENT_BYTES = 2
MOST = 15
CONFIG = "triton.Config"
PLAIN = ("kwargs", "num_warps", "num_stages")
"""What of a `triton.Config` is read."""
DEFAULT_WARPS, DEFAULT_STAGES = 4, 3


def shared_bytes(sm: int) -> int:
    """The shared memory that a block may have. 0, no GPU, is taken for Hopper."""
    return LIMITS.get(sm, LIMITS[90]).block_shared_bytes


@dataclass(frozen=True)
class Config:
    """One `triton.Config`."""

    constants: tuple[tuple[str, int], ...]
    num_warps: int = DEFAULT_WARPS
    num_stages: int | None = None
    """None where nothing is pipelined by it."""

    def code(self, config: str, *, by_call: bool = False) -> str:
        """Its source; `config` is how the file spells `triton.Config`.

        With `by_call` its constants are `dict(BLOCK=64)`, as some write them.
        """
        listed = ", ".join(f'"{name}": {value}' for name, value in self.constants)
        called = ", ".join(f"{name}={value}" for name, value in self.constants)
        table = f"dict({called})" if by_call else f"{{{listed}}}"
        stages = f", num_stages={self.num_stages}" if self.num_stages is not None else ""
        return f"{config}({table}, num_warps={self.num_warps}{stages})"


def config_of(source: Source, call: cst.Call) -> Config:
    """The config that a call of `triton.Config` makes; its `pre_hook` is left out.

    Raises:
        NotApplicable: it computes its constants, or sets what a `Config` here does not hold.
    """
    line = source.line(call)
    extra = {a.keyword.value for a in call.args if a.keyword} - {*PLAIN, "pre_hook"}
    given = argument(call, 0, "kwargs")
    constants = constants_of(source, given) if given is not None else None
    if extra or constants is None or len(positional(call)) > 1:
        what = ", ".join(sorted(extra)) or "more than constants and options"
        raise NotApplicable(f"the config at line {line} sets {what}")
    if None in constants:
        raise NotApplicable(f"the config at line {line} computes its constants")
    try:
        traced = tuple(
            (name, source.trace(value).value)
            for name, value in constants.items()
            if name is not None
        )
        options = [
            source.trace(value).value if (value := keyword(call, name)) is not None else None
            for name in PLAIN[1:]
        ]
    except Untraceable as reason:
        raise NotApplicable(f"a value of the config at line {line} {reason}") from None
    warps, stages = options
    return Config(traced, warps or DEFAULT_WARPS, stages)


@dataclass(frozen=True)
class ConfigAxis:
    """Constants that one size sets, and how small and large it may be."""

    constants: tuple[str, ...]
    size: int
    most: int | None = None
    least: int = 1


def axes_of(tiles: Sequence[TileConstant]) -> tuple[ConfigAxis, ...]:
    """The constants in groups that one integer sets: those may have to be equal."""
    groups: dict[frozenset[cst.Integer], list[TileConstant]] = {}
    for tile in tiles:
        groups.setdefault(frozenset(x.node for x in tile.literals), []).append(tile)
    return tuple(
        ConfigAxis(
            tuple(t.constant for t in group),
            group[0].size,
            None if all(t.changes.may_grow for t in group) else group[0].size,
            1 if all(t.changes.may_shrink for t in group) else group[0].size,
        )
        for group in groups.values()
    )


def configs(
    source: Source, kernel: Kernel, axes: Sequence[ConfigAxis], sm: int
) -> tuple[Config, ...]:
    """What to tune over besides what the kernel has, the most promising first.

    Sizes out of an axis's bounds are left out.
    """
    nested = _nested(source, kernel, axes)
    limits = {name: (axis.least, axis.most) for axis in axes for name in axis.constants}
    within = (
        config
        for config in _candidates(source, kernel, axes, sm)
        if all(_is_within(size, *limits[name]) for name, size in config.constants)
        and all(dict(config.constants)[a] % dict(config.constants)[b] == 0 for a, b in nested)
    )
    return tuple(dict.fromkeys(within))[:MOST]


def _is_within(size: int, least: int, most: int | None) -> bool:
    return least <= size and (most is None or size <= most)


def _candidates(
    source: Source, kernel: Kernel, axes: Sequence[ConfigAxis], sm: int
) -> Iterable[Config]:
    edges = _accumulated(source, kernel, axes)
    if TRITON.has_dot(source, kernel):
        rest = [axis for axis in axes if axis not in edges]
        if len(edges) == 2 and len(rest) == 1:
            return _matmul((*edges, *rest), sm)
        if len(edges) == 1 and len(rest) == 1:
            return _listed((*edges, *rest), ATTENTION)
        found = _scaled(axes, STAGES)
        return (c for c in found if all(size >= SMALLEST_DOT for _, size in c.constants))
    if all(name in _counted(source, kernel) for axis in axes for name in axis.constants):
        if len(axes) == 1 == len(_counted(source, kernel)) and not _has_planes(source, kernel):
            return (Config(_all(axes, (size,)), warps) for size, warps in STREAMED)
        is_plane = all(axis.size in PLANE_EDGES for axis in axes)
        if len(axes) == 2 and is_plane and not _has_cubes(source, kernel):
            return (Config(_all(axes, edges), warps) for *edges, warps in PLANES)
    return _scaled(axes, (None,))


def _counted(source: Source, kernel: Kernel) -> frozenset[str]:
    """What the kernel counts elements up to: the extents of its tiles, as it writes them."""
    found = TRITON.find(source, kernel.function.node.body, TRITON.iotas)
    ends = (TRITON.shapes["triton.language.arange"].of(call) for call in found)
    return frozenset(source.code(end) for end in ends if end is not None)


def _has_planes(source: Source, kernel: Kernel) -> bool:
    """Whether tiles may have two dimensions: `rows[:, None]`, or a shape that is said."""
    body = kernel.function.node.body
    return any(
        isinstance(element.slice, cst.Index) and source.code(element.slice.value) == "None"
        for subscript in descendants(body, cst.Subscript)
        for element in subscript.slice
    ) or TRITON.has(source, body, TURNING)


def _has_cubes(source: Source, kernel: Kernel) -> bool:
    """Whether a tile has a third dimension, as in `rows[:, None, None]`: two edges tell too little
    of how large it is then. One of 128 x 128 x 16 was seen to compile for two minutes."""
    found = descendants(kernel.function.node.body, cst.Subscript)
    return any(
        len(subscript.slice) > 2
        and all(
            isinstance(e.slice, cst.Slice) or source.code(e.slice) == "None"
            for e in subscript.slice
        )
        for subscript in found
    )


def _nested(source: Source, kernel: Kernel, axes: Sequence[ConfigAxis]) -> set[tuple[str, str]]:
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


def _matmul(axes: Sequence[ConfigAxis], sm: int) -> Iterable[Config]:
    shared = shared_bytes(sm)
    for m, n, k, warps, stages in DOT:
        if stages * (m + n) * k * ELEMENT_BYTES <= shared:
            yield Config(_all(axes, (m, n, k)), warps, stages)


def _listed(axes: Sequence[ConfigAxis], found: Iterable[Sequence[int]]) -> Iterable[Config]:
    for *sizes, warps, stages in found:
        yield Config(_all(axes, sizes), warps, stages)


def _scaled(axes: Sequence[ConfigAxis], stages: Sequence[int | None]) -> Iterable[Config]:
    for factors in product((1, 2, 0.5), repeat=len(axes)):
        sizes = [max(int(axis.size * f), 1) for axis, f in zip(axes, factors, strict=True)]
        for warps, count in product((4, 8), stages):
            yield Config(_all(axes, sizes), warps, count)


def _all(axes: Sequence[ConfigAxis], sizes: Sequence[int]) -> tuple[tuple[str, int], ...]:
    return tuple((n, s) for axis, s in zip(axes, sizes, strict=True) for n in axis.constants)


def _accumulated(
    source: Source, kernel: Kernel, axes: Sequence[ConfigAxis]
) -> tuple[ConfigAxis, ...]:
    """The axes that are edges of the dot's accumulator, in its order; none for a square of one."""
    by_name = {name: axis for axis in axes for name in axis.constants}
    for call in TRITON.find(source, kernel.function.node.body, TRITON.accumulators):
        shape = TRITON.shapes[TRITON.called(source, call) or ""].of(call)
        shape = value_of(source, shape) if shape is not None else None
        if isinstance(shape, cst.Tuple | cst.List) and len(shape.elements) == 2:
            found = [by_name.get(source.code(e.value)) for e in shape.elements]
            known = tuple(axis for axis in found if axis is not None)
            if known and len(set(known)) == len(known):
                return known
    return ()
