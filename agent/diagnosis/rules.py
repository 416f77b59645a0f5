"""The rules: each looks for one symptom.

A kernel that tunes itself compiles to several things, and which of them ran is not known here: it
shows a symptom when all of them do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod

from agent.analysis.common.kernels import KernelClass
from agent.diagnosis.symptoms import Symptom
from agent.diagnosis.view import Facts, View
from agent.evidence.advice import FEW, LOW_OCCUPANCY, WIDE_BITS, behind_atomics, old_products
from agent.evidence.model import Artifact

SHORT_MS = 0.01
"""A launch costs the host a few microseconds: a kernel below this may be waiting for it."""
HALF_OCCUPANCY = 0.5
"""Below this a kernel that is known to wait may lack warps."""
RAGGED = 0.8
"""Filled slots of all rounds of blocks; below this the last round leaves many idle."""
THREAD_BYTES = 32
"""A load and a store of 128 bits: a thread that moves less than both leaves again at once."""
MANY_ROUNDS = 8
"""Blocks for each multiprocessor that are left to share out when each does as many times more."""
REREAD = 1.5
"""Bytes moved, or asked for, over those that must be: above this some are read again."""


@dataclass(frozen=True)
class Observation:
    """A symptom and the figures that show it."""

    symptom: Symptom
    line: str


def _busy_memory(view: View) -> Observation | None:
    if (figures := view.memory_busy) is None:
        return None
    return Observation(
        Symptom.BANDWIDTH, f"measured: {figures}: what is left is to move fewer bytes"
    )


def _busy_compute(view: View) -> Observation | None:
    if (figures := view.compute_busy) is None:
        return None
    return Observation(Symptom.BUSY_UNITS, f"measured: {figures}: what is left is less arithmetic")


def _no_tensor_cores(view: View) -> Observation | None:
    for name in sorted(view.facts.multiplying & view.kernels.keys()):
        if not any(a.instructions.tensor_core for a in view.kernels[name]):
            line = f"compiled: {name} multiplies matrices, and no instruction is a tensor core's"
            return Observation(Symptom.NO_TENSOR_CORES, line)
    return None


def _old_tensor_cores(view: View) -> Observation | None:
    for name, artifact in _all(view, lambda a: bool(old_products(a))):
        line = (
            f"compiled: {name} multiplies at line {_listed(old_products(artifact))} by the "
            f"instructions of sm_80: the tensor cores of sm_{artifact.sm} take 64 rows and more"
        )
        return Observation(Symptom.OLD_TENSOR_CORES, line)
    return None


def _spills(view: View) -> Observation | None:
    for name, artifact in _all(view, lambda a: a.stack_bytes > 0 and a.instructions.spills > 0):
        line = (
            f"compiled: {name} spills {artifact.stack_bytes} bytes a thread at "
            f"{artifact.registers} registers ({artifact.instructions.spills} accesses)"
        )
        return Observation(Symptom.SPILLS, line)
    return None


def too_short(view: View) -> Observation | None:
    """A launch that takes a few times what it costs to start one."""
    if not 0 < view.latency_ms < SHORT_MS:
        return None
    line = f"measured: {view.latency_ms * 1e3:.1f} us"
    if view.at is None:
        return Observation(Symptom.SHORT, f"{line}, a few times what a launch costs")
    least_ms = max(view.at.memory_ms, view.at.compute_ms)
    if least_ms > view.latency_ms / 2:
        return None
    return Observation(Symptom.SHORT, f"{line}, of which the work needs {least_ms * 1e3:.1f}")


def _few_blocks(view: View) -> Observation | None:
    peaks = view.facts.peaks
    if view.work is None or peaks is None or not view.waits:
        return None
    for name in view.work.kernels:
        grids = [prod(grid) for kernel, grid in view.work.launches if kernel == name and grid]
        if (blocks := max(grids, default=0)) == 0:
            continue
        if blocks < peaks.multiprocessors:
            line = f"launched: {name} with {blocks} blocks for {peaks.multiprocessors}"
            return Observation(Symptom.FEW_BLOCKS, f"{line} multiprocessors")
        held = [a.occupancy.blocks for a in view.kernels.get(name, ()) if a.occupancy]
        if len(grids) > 1 or not held or min(held) == 0:
            continue  # which of several configs ran is not known
        rounds = blocks / (peaks.multiprocessors * min(held))
        filled = rounds / ceil(rounds)
        if rounds > 1 and filled < RAGGED:
            line = (
                f"launched: {name} with {blocks} blocks, {rounds:.2f} rounds of "
                f"{peaks.multiprocessors} x {min(held)}: {filled:.0%} of the slots are filled"
            )
            return Observation(Symptom.FEW_BLOCKS, line)
    return None


def _short_blocks(view: View) -> Observation | None:
    """What the threads of a block move, where there are so many blocks that fewer could do more."""
    peaks, work = view.facts.peaks, view.work
    if work is None or peaks is None or len(work.launches) != 1 or view.memory_busy:
        return None
    ((name, grid),) = work.launches
    threads = max((a.threads for a in view.kernels.get(name, ())), default=0)
    blocks = prod(grid) if grid else 0
    if not threads or blocks < MANY_ROUNDS * peaks.multiprocessors:
        return None
    moved = work.tensor_bytes / (blocks * threads)
    if moved >= THREAD_BYTES:
        return None
    line = f"launched: {name} with {blocks} blocks of {threads} threads that move {moved:.2g} bytes"
    return Observation(
        Symptom.SHORT_BLOCKS, f"{line} each: fewer blocks with more to do start less"
    )


def _low_occupancy(view: View) -> Observation | None:
    limit = HALF_OCCUPANCY if view.waits else LOW_OCCUPANCY
    if view.memory_busy or view.compute_busy:
        return None

    def few(artifact: Artifact) -> bool:
        found = artifact.occupancy
        return (
            found is not None and found.fraction < limit and not artifact.instructions.tensor_core
        )

    for name, artifact in _all(view, few):
        line = f"compiled: {name} for {artifact.target}: {artifact.occupancy}"
        return Observation(Symptom.LOW_OCCUPANCY, line)
    return None


def _narrow(view: View) -> Observation | None:
    def narrow(artifact: Artifact) -> bool:
        mix = artifact.instructions
        return any(_is_narrow(widths) for widths in (mix.load_widths, mix.global_stores))

    for name, artifact in _all(view, narrow):
        mix = artifact.instructions
        parts = [
            f"{_below(widths)} of {sum(widths.values())} global {what}"
            for what, widths in (("loads", mix.load_widths), ("stores", mix.global_stores))
            if _is_narrow(widths)
        ]
        line = f"compiled: {name}: {' and '.join(parts)} move less than {WIDE_BITS} bits"
        return Observation(Symptom.NARROW, line)
    return None


def _rereads(view: View) -> Observation | None:
    """What the counters saw moved, against what must be."""
    if view.work is None or len(view.work.kernels) > 1:
        return None
    for counters in view.facts.counters[:1]:
        least = view.at.tensor_bytes if view.at else view.work.tensor_bytes
        if counters.dram_bytes is not None and least and counters.dram_bytes > REREAD * least:
            line = (
                f"measured: {counters.kernel} moves {counters.dram_bytes / 1e6:.1f} MB of device "
                f"memory for {least / 1e6:.1f} MB of tensors"
            )
            return Observation(Symptom.REREADS, line)
    return None


def _small_tiles(view: View) -> Observation | None:
    """What the tiles of a product ask for, against what device memory can give."""
    at, peaks = view.at, view.facts.peaks
    if at is None or peaks is None or not view.waits:
        return None
    asked_gb_s = at.asked_bytes / at.latency_ms / 1e6
    if asked_gb_s < REREAD * peaks.bandwidth_gb_s:
        return None
    line = (
        f"launched: at {at.tflops:.0f} TFLOP/s tiles of this grid ask for about "
        f"{asked_gb_s:.0f} GB/s, {asked_gb_s / peaks.bandwidth_gb_s:.1f} times what device memory "
        "gives: larger ones reuse more"
    )
    return Observation(Symptom.SMALL_TILES, line)


def _not_pipelined(view: View) -> Observation | None:
    for counters in view.facts.counters[:1]:
        worst = counters.worst_stall
        if view.waits and worst is not None and worst[0] == "long_scoreboard" and worst[1] > 0.5:
            return Observation(Symptom.NOT_PIPELINED, f"measured: warps wait for loads: {counters}")

    def bare(artifact: Artifact) -> bool:
        mix = artifact.instructions
        return bool(mix.tensor_core and mix.global_loads and not mix.tma and not mix.async_copies)

    for name, _ in _all(view, bare):
        line = f"compiled: {name} feeds its tensor cores without cp.async or TMA"
        return Observation(Symptom.NOT_PIPELINED, line)
    return None


def _behind_atomics(view: View) -> Observation | None:
    for name, artifact in _all(view, lambda a: bool(behind_atomics(a)[0])):
        loads, atomics = map(_listed, behind_atomics(artifact))
        line = f"compiled: {name} loads nothing at line {loads} ahead of line {atomics}"
        return Observation(Symptom.BEHIND_ATOMICS, f"{line}, which acquires")
    return None


def _far_above_the_floor(view: View) -> Observation | None:
    """Warps enough, memory not busy: an inference, so it comes last."""
    found = [a.occupancy for artifacts in view.kernels.values() for a in artifacts]
    fed = bool(found) and all(o is not None and o.fraction >= HALF_OCCUPANCY for o in found)
    if view.at is None or view.at.flop or not (view.waits and fed):
        return None
    line = (
        f"measured: {1 / view.at.memory_share:.1f} times the least for its bytes, with warps "
        "enough: it suggests that bytes are moved more than once"
    )
    return Observation(Symptom.REREADS, line)


RULES: tuple[Callable[[View], Observation | None], ...] = (
    _busy_memory,
    _busy_compute,
    _no_tensor_cores,
    _old_tensor_cores,
    _spills,
    too_short,
    _few_blocks,
    _short_blocks,
    _low_occupancy,
    _rereads,
    _narrow,
    _behind_atomics,
    _not_pipelined,
    _small_tiles,
    _far_above_the_floor,
)


def by_roof(view: View) -> Observation:
    """Without a symptom: the nearer roof, and where nothing was measured the kernel's class.

    The class is enough to name a roof: up to 50 operations a byte, bandwidth is the lower one on
    every GPU of the table.
    """
    facts, at = view.facts, view.at
    if at is not None and view.roofs_known:
        compute = at.compute_share > at.memory_share
        what = "the tensor cores' peak" if compute else "the peak bandwidth"
        line = f"measured: {at.nearest_share:.0%} of {what}, the nearer roof"
    else:
        compute = facts.kernel_class is KernelClass.COMPUTE
        line = source_line(facts)
    return Observation(Symptom.COMPUTE_ROOF if compute else Symptom.MEMORY_ROOF, line)


def source_line(facts: Facts) -> str:
    """The kernel's class, as evidence."""
    return f"source: {facts.kernel_class.value}, about {facts.flop_per_byte:.3g} FLOP/B"


# --- what the rules have in common --------------------------------------------------------------


def _all(view: View, has: Callable[[Artifact], bool]) -> Iterator[tuple[str, Artifact]]:
    """Kernels that show something whatever config a tuner chooses, with one example."""
    for name, artifacts in view.kernels.items():
        if all(map(has, artifacts)):
            yield name, artifacts[0]


def _listed(lines: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(lines)))


def _below(widths: Mapping[int, int]) -> int:
    return sum(count for bits, count in widths.items() if bits < WIDE_BITS)


def _is_narrow(widths: Mapping[int, int]) -> bool:
    return _below(widths) >= FEW and _below(widths) > sum(widths.values()) / 2
