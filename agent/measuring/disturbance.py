"""Why a process pair is no evidence: throttled, shared, or reported falsely. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from agent.measuring.blocks import Block, ConfigBlocks, RawPair
from agent.measuring.statistics import geometric_mean

THROTTLE_REASONS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""NVML's clock event reasons that spoil a measurement. The software power cap is not among them:
for a matrix product it is the normal state."""
CLOCK_SLACK = 1.02
"""A worker may report at most so much more GPU time than passed on the parent's clock."""
SHORTEST_CHECKED_MS = 0.2
"""Below it the launches of a burst may wait for the host, and a burst says nothing."""
LEAST_SHARE = 0.75
"""A cold launch takes longer than a warm one, so a report below this part of the latency that the
parent's clock shows for warm launches is false."""

FALSE_SHARE = 0.5
"""Of the incumbent's share of the time, over a whole comparison: chance does not reach it."""


def disturbance(raw: RawPair) -> str | None:
    """Why a pair is no evidence, or None when it is."""
    for config in raw.configs:
        for block in config.blocks:
            if problem := _block_problem(block):
                return problem
        for incumbent in (True, False):
            reported = geometric_mean(config.arm(incumbent=incumbent))
            warm = config.warm_ms.get(incumbent)
            if warm and warm >= SHORTEST_CHECKED_MS and reported < LEAST_SHARE * warm:
                whose = "incumbent" if incumbent else "candidate"
                return (
                    f"the {whose}'s worker reports {reported:.6f} ms a launch where the clock "
                    f"outside shows {warm:.6f} ms"
                )
        if problem := _share_problem(config):
            return problem
    return None


def _share_problem(config: ConfigBlocks) -> str | None:
    """Of the time that passed on the parent's clock, the candidate's worker reports too little.

    On a CPU, where every call's time is the host's: what a message takes, both arms take.
    """
    if config.blocks[0].telemetry is not None:
        return None
    for share_of in (_whole_share, _median_share):
        ours, theirs = (
            share_of([block for block in config.blocks if block.incumbent is whose])
            for whose in (True, False)
        )
        # of blocks that are whole passes, little is time that is reported
        if ours >= LEAST_SHARE and theirs < LEAST_SHARE * ours:
            return (
                f"the candidate's worker reports {theirs:.0%} of the time that passed on "
                f"{config.config}, the incumbent's {ours:.0%}"
            )
    return None


def false_clock(pairs: Sequence[RawPair]) -> str | None:
    """Why a comparison is no evidence though each of its pairs is, on a CPU; None when it is.

    On a machine so busy that both workers report little of the time, one pair says nothing of
    either; what waits is the same for both in all of them together.
    """
    for name in pairs[0].blocks():
        configs = [c for pair in pairs for c in pair.configs if c.config == name and c.stepped]
        blocks = [block for config in configs for block in config.blocks]
        if not blocks or any(block.telemetry or not block.wall_ms for block in blocks):
            continue
        ours, theirs = (
            _median_share([block for block in blocks if block.incumbent is whose])
            for whose in (True, False)
        )
        if theirs < FALSE_SHARE * ours:
            return (
                f"the candidate's worker reports {theirs:.0%} of the time that passed on "
                f"{name}, the incumbent's {ours:.0%}"
            )
    return None


def _whole_share(blocks: Sequence[Block]) -> float:
    """Of all blocks together: whoever reports falsely in some of them only is found."""
    return math.fsum(b.reported_ms for b in blocks) / math.fsum(b.wall_ms for b in blocks)


def _median_share(blocks: Sequence[Block]) -> float:
    """Of a typical block: on a busy machine a few of them wait for long, and hide the rest."""
    return statistics.median(b.reported_ms / b.wall_ms for b in blocks)


def level_problem(raw: RawPair, levels_ms: Mapping[str, float], band: float) -> str | None:
    """Why the incumbent is not what it was: only a GPU is steady enough to say so.

    Args:
        raw: the pair.
        levels_ms: config -> the incumbent's latency when it was calibrated.
        band: how far it may be from that, as a fraction.
    """
    for config in raw.configs:
        level = levels_ms.get(config.config)
        if level is None or config.blocks[0].telemetry is None:
            continue
        now = geometric_mean(config.arm(incumbent=True))
        if abs(math.log(now / level)) > band:
            return (
                f"the incumbent takes {now:.6f} ms on {config.config} where it took "
                f"{level:.6f} ms: the machine has changed"
            )
    return None


def _block_problem(block: Block) -> str | None:
    if block.reported_ms > CLOCK_SLACK * block.wall_ms + 1.0:
        return f"a worker reports {block.reported_ms:.1f} ms of work within {block.wall_ms:.1f} ms"
    if block.telemetry is None:
        return None
    for bit, name in THROTTLE_REASONS.items():
        if block.telemetry.event_reasons & bit:
            return f"the GPU throttled ({name}, {block.telemetry.temperature_c} C)"
    if block.telemetry.foreign_pids:
        pids = ", ".join(map(str, block.telemetry.foreign_pids))
        return f"another process uses the GPU (pid {pids})"
    return None
