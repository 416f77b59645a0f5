"""The nine templates of a search, T1 to T9: what each searches, and the configs it starts from.

A row of a space is the sizes of the template's tile axes, then occupancy, then, where the template
searches it, num_ctas. A space is small on purpose: the compiler takes from 0.2 to 2 seconds for
each row, and the first call waits for all of them.

Most rows are those of TileGym's autotuning recipes, but for 512 x 256 x 64 on sm_100, which takes
cuda-tile 1.7 35 s to compile. The rows of products for sm_90 come from a search of 76 configs on an
NVIDIA H200 with cuda-tile 1.7, in bf16: kept are the fastest for each M x N x K, what came within a
tenth of it, and the recipes' smallest tile.

    4096 x 4096 x 4096  0.196 ms   256 x 128 x 64, occupancy 2, num_ctas 2
    8192 x 8192 x 1024  0.212 ms   128 x 128 x 64, occupancy 2
     512 x 4096 x 4096  0.0287 ms  128 x 128 x 64
      64 x 4096 x 4096  0.0173 ms   64 x 64 x 128

Blocks that stay hold their loop over tiles in registers as well: of 11 configs, in groups of 8, and
of 9 for a batch in fp16, these were fastest. 128 x 128 x 64 takes 0.65 ms with an occupancy of 2.

    4096 x 4096 x 4096      0.187 ms  128 x 128 x 64; 0.207 ms  256 x 128 x 64, num_ctas 2
    8 x 2048 x 2048 x 2048  0.210 ms  128 x 128 x 64; 0.220 ms  256 x 128 x 64, num_ctas 2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Row: TypeAlias = tuple[int, ...]
Space: TypeAlias = Mapping[int, tuple[Row, ...]]
"""Compute capability times ten -> rows; each serves the GPUs from there up to the next."""

MOST_CONFIGS = 30
"""Of one search, the fixed config included."""
MOST_ACCUMULATED = 65536
"""Elements of a block's accumulators, all together: more do not fit its registers."""
CLUSTERS = (90, 100)
"""Where several blocks may share a tile (num_ctas above 1); sm_103 counts as sm_100."""
OCCUPANCIES = (1, 2, 4, 8)
RESIDENT_OCCUPANCIES = (*OCCUPANCIES, 16, 32)
"""Where memory is the limit and the grid follows. The hint goes to 32, but cuda-tile 1.7 gives a
thread no fewer registers from 9 on, for sm_80, sm_90 and sm_100: a copy, an activation and a
softmax have those of 8. So more pays only by the blocks that are launched for it."""


def rows_for(space: Space, sm: int) -> tuple[Row, ...]:
    """The rows that serve a GPU of that compute capability times ten."""
    return space[max((known for known in space if known <= sm), default=min(space))]


class NotTunable(Exception):
    """The kernel, or the file around it, does not let a search be written; one line says why."""


@dataclass(frozen=True)
class Template:
    """A kind of kernel, and what to search for it."""

    name: str
    kind: str
    axes: tuple[str, ...] = ()
    """Tile axes: M and N of the result, K or the keys' N that a loop runs over."""
    rows: Space | None = None
    """What to try where the tile sizes can change; None where only the occupancy is searched."""
    expected: str = ""
    """The gain that TileGym's recipes claim for the kind."""
    rounds_sizes: bool = False
    """Extents up to the same powers of two share a config."""

    @property
    def clusters(self) -> bool:
        """Whether num_ctas is searched."""
        width = len(self.axes) + 2
        return any(len(row) == width for rows in (self.rows or {}).values() for row in rows)


_PRODUCT: Space = {
    80: (
        (64, 64, 32, 1, 1),
        (64, 128, 32, 1, 1),
        (128, 64, 32, 1, 1),
        (128, 128, 32, 1, 1),
        (128, 64, 64, 1, 1),
        (64, 64, 64, 2, 1),
    ),
    90: (
        (32, 32, 64, 2, 1),
        (64, 64, 128, 1, 1),
        (64, 128, 64, 2, 1),
        (64, 256, 32, 2, 1),
        (128, 64, 64, 2, 1),
        (128, 128, 32, 2, 1),
        (128, 128, 64, 1, 1),
        (128, 128, 64, 2, 1),
        (256, 128, 64, 2, 2),
    ),
    100: (
        (64, 64, 64, 2, 1),
        (128, 64, 64, 2, 1),
        (128, 128, 32, 1, 1),
        (128, 128, 64, 2, 1),
        (256, 128, 64, 1, 2),
        (256, 256, 64, 1, 2),
        (256, 256, 64, 1, 4),
    ),
    120: (
        (64, 64, 32, 2, 1),
        (64, 64, 64, 1, 1),
        (128, 64, 32, 2, 1),
        (128, 64, 64, 1, 1),
        (128, 128, 32, 1, 1),
    ),
}
_STAYING_PRODUCT: Space = {
    **_PRODUCT,
    90: (
        (64, 64, 64, 2, 1),
        (64, 128, 64, 1, 1),
        (128, 64, 64, 1, 1),
        (128, 128, 32, 1, 1),
        (128, 128, 64, 1, 1),
        (128, 256, 64, 1, 2),
        (256, 128, 64, 1, 2),
        (256, 128, 64, 2, 2),
    ),
}
_ATTENTION: Space = {
    80: ((64, 64, 2, 1), (128, 64, 2, 1), (128, 128, 1, 1)),
    90: (
        (64, 64, 2, 1),
        (128, 64, 2, 1),
        (128, 128, 2, 1),
        (256, 128, 1, 1),
        (256, 128, 2, 1),
        (256, 128, 2, 2),
    ),
    120: ((64, 64, 2, 1), (128, 64, 2, 1)),
}
_EIGHT_BIT: Space = {
    80: ((16, 2, 1), (32, 2, 1), (64, 1, 1), (64, 2, 1), (128, 1, 1), (128, 2, 1)),
    90: (
        (16, 2, 1),
        (32, 2, 1),
        (64, 1, 1),
        (64, 2, 1),
        (128, 1, 1),
        (128, 2, 1),
        (128, 1, 2),
        (256, 1, 2),
    ),
    120: ((16, 2, 1), (32, 2, 1), (64, 1, 1), (64, 2, 1), (128, 1, 1), (128, 2, 1)),
}
_TWO_PRODUCTS: Space = {
    80: (
        (64, 64, 32, 1),
        (64, 64, 32, 2),
        (64, 64, 64, 1),
        (128, 64, 32, 1),
        (64, 128, 32, 1),
        (128, 64, 64, 1),
    ),
    90: (
        (64, 64, 64, 1),
        (64, 64, 64, 2),
        (128, 64, 32, 1),
        (128, 64, 64, 1),
        (128, 64, 64, 2),
        (64, 128, 64, 1),
        (128, 128, 32, 1),
        (128, 128, 64, 1),
    ),
}

_PRODUCT_AXES = ("M", "N", "K")
_ROWS = "2-15 %; 0-3 % where memory bounds it"

TEMPLATES: Mapping[str, Template] = {
    t.name: t
    for t in (
        Template("T1", "elementwise or reduction", expected=_ROWS),
        Template("T2", "in place, searched on a split buffer", expected=_ROWS),
        Template(
            "T3", "matrix product", _PRODUCT_AXES, _PRODUCT, expected="5-30 %", rounds_sizes=True
        ),
        Template(
            "T4", "persistent matrix product", _PRODUCT_AXES, _STAYING_PRODUCT,
            expected="5-30 %", rounds_sizes=True,
        ),
        Template("T5", "attention", ("M", "N"), _ATTENTION, expected="5-20 %", rounds_sizes=True),
        Template(
            "T6", "8-bit product with scales a group", ("M",), _EIGHT_BIT,
            expected="10-50 %", rounds_sizes=True,
        ),
        Template("T7", "grouped product", expected="2-10 %", rounds_sizes=True),
        Template(
            "T8", "attention over sequences of varied length", ("M", "N"), _ATTENTION,
            expected="5-20 %", rounds_sizes=True,
        ),
        Template(
            "T9", "two products in one loop", _PRODUCT_AXES, _TWO_PRODUCTS,
            expected="5-30 %", rounds_sizes=True,
        ),
    )
}  # fmt: skip
