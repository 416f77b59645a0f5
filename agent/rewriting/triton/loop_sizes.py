"""Blocks of a product's loop that launches can be given together with warps and stages."""

from __future__ import annotations

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.given_sizes import GivenSize, given_sizes
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.tuners import why_tuned
from agent.rewriting.common.tile_sizes import ChangeableTiles
from agent.rewriting.triton.kernel_options import options_of
from agent.rewriting.triton.launch_options import DEFAULTS
from agent.syntax import Source

SHRUNK = "the first one may hold minus infinity alone then, whose exponential is no number"


def loop_sizes(source: Source, kernel: Kernel) -> tuple[tuple[GivenSize, ...], tuple[str, ...]]:
    """Those of a kernel, and why there are no others, in words.

    None that an integer of the file sets which can be another: that reaches the grid, too.
    """
    if not TRITON.has_dot(source, kernel):
        return (), (f"{kernel.name} does not multiply tiles",)
    if why := why_tuned(source, kernel, "blocks and warps"):
        return (), (why,)
    try:
        options_of(source, kernel, DEFAULTS)
    except NotApplicable as reason:
        return (), (str(reason),)
    sizes, why_not = given_sizes(TRITON, source, kernel, _changeable(source, kernel))
    fixed = [size for size in sizes if not size.changes.may_shrink]
    why_not += tuple(f"{size.constant} of {kernel.name} cannot shrink: {SHRUNK}" for size in fixed)
    return tuple(size for size in sizes if size not in fixed), why_not


def _changeable(source: Source, kernel: Kernel) -> dict[str, str]:
    """The constants whose sizes are integers of the file that can be others, and what does so."""
    try:
        tiles = ChangeableTiles.of(TRITON, source).kernels.get(kernel.name, ())
    except NotApplicable:
        return {}
    return {tile.constant: "blocks-and-warps sets it where it is made" for tile in tiles}
