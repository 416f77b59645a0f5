"""Tile sizes: what to try for them, and the edit. Shared by the entries of both languages.

Which constants can be changed at all is the matter of `agent.analysis.common.provenance`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

import libcst as cst

from agent.analysis.common.dialect import Dialect
from agent.analysis.common.each_kernel import all_refuse, of_constants
from agent.analysis.common.provenance import TileConstant, tile_names, tile_of
from agent.analysis.common.size_changes import SMALLEST_DOT
from agent.analysis.common.subject import NotApplicable, Params
from agent.syntax import Source, integer_of

MATMUL = (
    (128, 128, 64),
    (128, 128, 32),
    (128, 64, 64),
    (64, 128, 64),
    (128, 256, 64),
    (256, 128, 64),
    (64, 64, 64),
    (64, 64, 32),
)
"""M, N, K to try for a matrix product: those that TileGym's autotuning recipes start from."""
FACTORS = (0.5, 2, 4)
"""What to multiply a lone tile size by; of several, each is halved or doubled."""
MOST_ELEMENTS = 65536
"""Of a tile: past this, a block's registers cannot hold it."""
MOST_VARIANTS = 8


@dataclass(frozen=True)
class ChangeableTiles:
    """The tile sizes of a file that can be changed, kernel by kernel."""

    dialect: Dialect
    source: Source
    kernels: Mapping[str, tuple[TileConstant, ...]]

    @classmethod
    def of(cls, dialect: Dialect, source: Source) -> ChangeableTiles:
        """Find them. Raises `NotApplicable`, with the reasons, when there is none."""
        kernels, reasons = _found(dialect, source)
        if not kernels:
            raise all_refuse(reasons, "no launched kernel has a named tile size")
        return cls(dialect, source, kernels)

    def variants(self) -> Sequence[Params]:
        """Sizes worth trying: for a matrix product M, N and K together, else factors of each.

        With several kernels the parameters name the one they change: `{"kernel": "bwd", ...}`.
        """
        share = MOST_VARIANTS // len(self.kernels) or 1
        found: list[Params] = []
        for name, tiles in self.kernels.items():
            named = {"kernel": name} if len(self.kernels) > 1 else {}
            sizes = [s for s in self._sizes(tiles) if self._fits(tiles, s)]
            found += [{**named, **s} for s in sizes[:share]]
        if not found:
            raise NotApplicable("every tile size worth trying is out of bounds or already there")
        return found[:MOST_VARIANTS]

    def doubled(self) -> Sequence[Params]:
        """The accumulator of the file's one matrix product twice as high, and twice as wide."""
        if len(self.kernels) != 1:
            return []
        (tiles,) = self.kernels.values()
        sizes = {t.constant: t.size for t in tiles}
        mnk = _matmul_names(self.dialect, self.source, tiles)
        edges = mnk[:2] if mnk is not None and len(_tied(tiles)) == 3 else ()
        grown = [{**sizes, edge: 2 * sizes[edge]} for edge in edges]
        return [g for g in grown if self._fits(tiles, g)]

    def grown(self, size: int) -> Sequence[dict[str, int]]:
        """The file's one tile size, where it may grow to another."""
        if len(self.kernels) != 1:
            return []
        (tiles,) = self.kernels.values()
        sizes = {t.constant: size for t in tiles}
        may = len(_tied(tiles)) == 1 and all(t.size < size for t in tiles)
        return [sizes] if may and self._fits(tiles, sizes) else []

    def resize(self, params: Params) -> str:
        """The source with other tile sizes. Raises `NotApplicable` when nothing changes."""
        sizes = dict(params)
        name = sizes.pop("kernel", None) or next(iter(self.kernels))
        tiles = {t.constant: t for t in self.kernels.get(str(name), ())}
        if unknown := sorted(sizes.keys() - tiles.keys()):
            raise NotApplicable(f"{', '.join(unknown)} is no tile size of {name} that can change")
        wanted: dict[cst.BaseExpression, int] = {}
        for constant, size in sizes.items():
            if not tiles[constant].allows(int(size)):
                raise NotApplicable(f"{constant} cannot grow to {size}: an access is unguarded")
            for literal in tiles[constant].literals:
                if wanted.setdefault(literal.node, int(size)) != int(size):
                    raise NotApplicable(f"one integer sets {constant} and another tile size")
        changed = {n: s for n, s in wanted.items() if integer_of(n) != s}
        if not changed:
            raise NotApplicable("the tile sizes are already these")
        return self.source.rewrite({n: _setting(size) for n, size in changed.items()})

    def _sizes(self, tiles: tuple[TileConstant, ...]) -> Iterable[dict[str, int]]:
        groups = _tied(tiles)
        if len(groups) == 3 and (mnk := _matmul_names(self.dialect, self.source, tiles)):
            return [dict(zip(mnk, sizes, strict=True)) for sizes in MATMUL]
        if len(groups) == 1:
            choices: Iterable[tuple[float, ...]] = [(factor,) for factor in FACTORS]
        else:
            choices = sorted(product((1, 2, 0.5), repeat=len(groups)), key=_axes_changed)
        return [
            {t.constant: int(t.size * f) for group, f in zip(groups, factors, strict=True)
             for t in group}
            for factors in choices
        ]  # fmt: skip

    def _fits(self, tiles: tuple[TileConstant, ...], sizes: dict[str, int]) -> bool:
        by_name = {t.constant: t for t in tiles}
        has_dot = self.dialect.has_dot(self.source, tiles[0].kernel)
        smallest = SMALLEST_DOT if has_dot else 1
        return (
            any(by_name[n].size != s for n, s in sizes.items())
            and all(by_name[n].allows(s) and s >= smallest for n, s in sizes.items())
            and prod(sorted(sizes.values())[-2:]) <= MOST_ELEMENTS
        )


@lru_cache(maxsize=16)
def _found(
    dialect: Dialect, source: Source
) -> tuple[Mapping[str, tuple[TileConstant, ...]], tuple[str, ...]]:
    """The tile sizes of each kernel, and why others are none; several entries ask for them."""
    kernels: dict[str, tuple[TileConstant, ...]] = {}
    reasons: list[str] = []
    chosen = [kernel.name for kernel in dialect.chosen(source)]
    for kernel in sorted(dialect.launched(source), key=lambda kernel: kernel.name not in chosen):
        tiles = []
        refused: dict[str, str] = {}
        for constant in tile_names(dialect, source, kernel, computed=True):
            try:
                tiles.append(
                    tile_of(dialect, source, kernel, constant, defaults=True, computed=True)
                )
            except NotApplicable as refusal:
                refused[constant] = str(refusal)
        reasons += of_constants(kernel.name, refused)
        if tiles and not _shared(tiles, kernels.values()):
            kernels[kernel.name] = tuple(tiles)
    return {name: kernels[name] for name in chosen if name in kernels}, tuple(reasons)


def _tied(tiles: tuple[TileConstant, ...]) -> list[list[TileConstant]]:
    """The tiles in groups that one integer sets, which can only change together."""
    groups: list[list[TileConstant]] = []
    for tile in tiles:
        integers = {literal.node for literal in tile.literals}
        for group in groups:
            if any(integers & {literal.node for literal in t.literals} for t in group):
                group.append(tile)
                break
        else:
            groups.append([tile])
    return groups


def _axes_changed(factors: tuple[float, ...]) -> int:
    return sum(factor != 1 for factor in factors)


def _matmul_names(
    dialect: Dialect, source: Source, tiles: tuple[TileConstant, ...]
) -> tuple[str, str, str] | None:
    """The constants that are M, N and K of a matrix product: M x N is its accumulator."""
    names = [t.constant for t in tiles]
    kernel = tiles[0].kernel
    body = kernel.function.node.body
    if len(names) != 3 or not dialect.has(source, body, dialect.dots):
        return None
    for call in dialect.find(source, body, dialect.accumulators):
        shape = dialect.shapes[dialect.called(source, call) or ""].of(call)
        if isinstance(shape, cst.Tuple | cst.List) and len(shape.elements) == 2:
            m, n = (source.code(element.value) for element in shape.elements)
            rest = [name for name in names if name not in (m, n)]
            if m in names and n in names and len(rest) == 1:
                return m, n, rest[0]
    return None


def _shared(tiles: Sequence[TileConstant], others: Iterable[tuple[TileConstant, ...]]) -> bool:
    """Whether the same integers set the tiles of another kernel: they change together."""
    integers = {literal.node for tile in tiles for literal in tile.literals}
    return any(
        integers & {literal.node for tile in group for literal in tile.literals} for group in others
    )


def _setting(size: int) -> Callable[[cst.BaseExpression], cst.Integer]:
    return lambda old: cst.Integer(str(size), lpar=old.lpar, rpar=old.rpar)
