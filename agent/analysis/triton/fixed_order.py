"""Kernels whose names promise sums in one order: batch-invariant ones, deterministic ones."""

from __future__ import annotations

import re
from pathlib import PurePath

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.provenance import tile_names
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.analysis.triton.operations import DOTS, SCANS, SUMS, operations_of
from agent.syntax import Source, descendants, names_in

PROMISES = re.compile(r"batch_?invarian|(?<!non)(?<!non_)deterministic", re.IGNORECASE)


def check_order_may_change(source: Source, kernel: Kernel) -> None:
    """Raise `NotApplicable` where a name promises an order that a tuner would choose by sizes.

    Blocks decide in which parts a loop adds up, and warps in which order `tl.sum` does.
    """
    hosts = [launch.function.name for launch in kernel.launches if launch.function is not None]
    named = next((n for n in (kernel.name, *hosts) if PROMISES.search(n)), "")
    if not named and PROMISES.search(PurePath(source.path).name):
        named = PurePath(source.path).name
    if named and _adds_up(source, kernel):
        raise NotApplicable(
            f"{named} promises sums in one order, and a tuner would choose that of {kernel.name} "
            "anew for each key, by timings"
        )


def _adds_up(source: Source, kernel: Kernel) -> bool:
    """Whether a kernel sums elements, within a block or over blocks."""
    if any(True for _ in operations_of(source, kernel).find(DOTS | SUMS | SCANS)):
        return True
    tiles = set(tile_names(TRITON, source, kernel))
    return any(
        names_in(value_of(source, part.value)) & tiles
        for loop in descendants(kernel.function.node.body, cst.For)
        if isinstance(loop.iter, cst.Call)
        for part in loop.iter.args
    )
