"""The symptoms that the rules look for: the cause that each stands for, and what to try first."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from agent.causes import Cause


class Symptom(StrEnum):
    """What a rule finds."""

    BANDWIDTH = "device memory is busy"
    BUSY_UNITS = "the arithmetic units are busy"
    NO_TENSOR_CORES = "a matrix product without tensor cores"
    OLD_TENSOR_CORES = "a matrix product by the instructions of an older GPU"
    SPILLS = "registers are spilled"
    SHORT = "the launch takes as long as the work"
    FEW_BLOCKS = "multiprocessors are idle"
    SHORT_BLOCKS = "blocks with little to do"
    LOW_OCCUPANCY = "few warps"
    NARROW = "narrow accesses"
    REREADS = "bytes are moved more than once"
    SMALL_TILES = "tiles that reuse little"
    NOT_PIPELINED = "loads that nothing hides"
    BEHIND_ATOMICS = "loads that wait for an atomic"
    MEMORY_ROOF = "bandwidth is the nearer roof"
    COMPUTE_ROOF = "arithmetic is the nearer roof"


CAUSES: Mapping[Symptom, Cause] = {
    Symptom.BANDWIDTH: Cause.MEMORY,
    Symptom.BUSY_UNITS: Cause.COMPUTE,
    Symptom.NO_TENSOR_CORES: Cause.COMPUTE,
    Symptom.OLD_TENSOR_CORES: Cause.COMPUTE,
    Symptom.SPILLS: Cause.OCCUPANCY,
    Symptom.SHORT: Cause.LATENCY,
    Symptom.FEW_BLOCKS: Cause.SCHEDULING,
    Symptom.SHORT_BLOCKS: Cause.LATENCY,
    Symptom.LOW_OCCUPANCY: Cause.OCCUPANCY,
    Symptom.NARROW: Cause.LOCALITY,
    Symptom.REREADS: Cause.LOCALITY,
    Symptom.SMALL_TILES: Cause.LOCALITY,
    Symptom.NOT_PIPELINED: Cause.LATENCY,
    Symptom.BEHIND_ATOMICS: Cause.LATENCY,
    Symptom.MEMORY_ROOF: Cause.MEMORY,
    Symptom.COMPUTE_ROOF: Cause.COMPUTE,
}
FAMILIES: Mapping[Symptom, tuple[str, ...]] = {
    Symptom.BANDWIDTH: ("passes", "fusion", "reuse", "cache"),
    Symptom.BUSY_UNITS: ("precision", "arithmetic", "tiles", "order", "cluster"),
    Symptom.NO_TENSOR_CORES: ("precision",),
    Symptom.OLD_TENSOR_CORES: ("operands", "tiles"),
    Symptom.SPILLS: ("tiles", "warps", "cluster"),
    Symptom.SHORT: ("launches", "fusion", "launch"),
    Symptom.FEW_BLOCKS: ("scheduling", "tiles"),
    Symptom.SHORT_BLOCKS: ("rows", "tiles"),
    Symptom.LOW_OCCUPANCY: ("occupancy", "warps", "tiles", "tma"),
    Symptom.NARROW: ("alignment", "static-shapes", "tma"),
    Symptom.REREADS: ("reuse", "passes", "order", "cache", "tiles"),
    Symptom.SMALL_TILES: ("tiles", "order", "warps"),
    Symptom.NOT_PIPELINED: ("pipelining", "tma", "warps"),
    Symptom.BEHIND_ATOMICS: ("atomics", "rows"),
    Symptom.MEMORY_ROOF: (),
    Symptom.COMPUTE_ROOF: (),
}
"""What to try first. None for a roof alone: the order of the kernel's class is made for that."""
