"""What the example of an entry is tried with: the tests compile it and compare its numbers.

Stated on the entry, so that an entry is one file. The tests take up every entry by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Shapes = tuple[tuple[tuple[int, ...], ...], ...]
"""Of the tensors of one call, several calls."""

P = "*fp32"
"""A pointer, as Triton writes its type."""
F16, F32 = "float16", "float32"
ROWS: Shapes = (((3, 1024),), ((5, 77),), ((1, 1),), ((4, 2500),))
"""One matrix a call; its rows end within a block, at the end of one, and need several."""
PAIRS: Shapes = tuple((shape, shape) for (shape,) in ROWS)
"""Two of the same shape."""
PRODUCTS: Shapes = (
    ((64, 64), (64, 64)),
    ((70, 36), (36, 132)),
    ((70, 33), (33, 130)),
    ((1, 7), (7, 3)),
)


@dataclass(frozen=True)
class TritonTrial:
    """For a Triton example; it runs in the interpreter and compiles for sm_80, sm_90, sm_100."""

    kernel: str
    types: tuple[str | int, ...]
    """Of the kernel's parameters, as Triton writes them; an integer is a constant."""
    function: str
    """The host's, which takes tensors alone."""
    calls: Shapes = ROWS
    types_after: tuple[str | int, ...] = ()
    """Where the transform changes the parameters."""
    options: Mapping[str, int] = field(default_factory=dict)
    """Of the launch: `num_warps`, `num_stages`."""
    options_after: Mapping[str, int] = field(default_factory=dict)
    reference: str = ""
    """What gives the right numbers where the example needs a Triton that few still have."""


Array = tuple[str, int] | tuple[str, int, tuple[int | None, ...]]
"""Type, dimensions, and extents where some are static."""


@dataclass(frozen=True)
class TileTrial:
    """For a cuTile example; the host's function is its last one."""

    kernel: str
    arguments: tuple[Array | str | int | float, ...]
    """Of the kernel: an array, the type of a scalar, or a constant."""
    arguments_after: tuple[Array | list[str | int] | str | int | float | bool, ...] = ()
    """Where the transform changes the parameters; a list is one of such arrays."""
    rows_of: int = 1
    """Its arrays have a multiple of so many rows."""
    columns: int = 0
    """Its arrays have so many columns; any number where it is zero."""
    fp32_only: bool = False
    """It stores products with an fp32 number as they are."""
