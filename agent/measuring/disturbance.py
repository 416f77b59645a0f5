"""Why a process pair is no evidence: throttled, shared, or reported falsely. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from agent.measuring.blocks import Block, ConfigBlocks, RawPair
from agent.measuring.statistics import middle_ms

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
MESSAGE_MS = 1.0
"""What a worker may need of a processor to be told of a block, and to tell of it."""
WAIT_MS = 10.0
"""What it may wait for a processor meanwhile: a few turns of others."""


def disturbance(raw: RawPair) -> str | None:
    """Why a pair is no evidence, or None when it is."""
    for config in raw.configs:
        for block in config.blocks:
            if problem := _block_problem(block):
                return problem
        reported_ms = {whose: middle_ms(config.arm(incumbent=whose)) for whose in (True, False)}
        if problem := clock_problem(reported_ms, config.warm_ms, keeps_host=config.keeps_host):
            return problem
        if problem := _share_problem(config) or _processor_problem(config):
            return problem
    return None


def clock_problem(
    reported_ms: Mapping[bool, float], warm_ms: Mapping[bool, float], *, keeps_host: bool
) -> str | None:
    """A worker reports less than our own clock shows.

    Where a call of the incumbent keeps the host, as a backward pass does, our clock shows the
    host's time, too. What it shows beyond the incumbent's report is the host's, and excuses as much
    of the candidate's: what hides work shows more.

    Args:
        reported_ms: incumbent? -> a launch, by its worker.
        warm_ms: incumbent? -> a warm launch, by the parent's clock; nothing where it did not look.
        keeps_host: whether a call of the incumbent keeps the host.
    """
    known_ms = 0.0
    for incumbent in (True, False):
        its_ms, shown_ms = reported_ms[incumbent], warm_ms.get(incumbent, 0.0)
        if incumbent and keeps_host:
            known_ms = max(0.0, shown_ms - its_ms)
        elif _is_too_little(its_ms + known_ms, shown_ms):
            whose = "incumbent" if incumbent else "candidate"
            return (
                f"the {whose}'s worker reports {its_ms:.6f} ms a launch where the clock "
                f"outside shows {shown_ms:.6f} ms"
            )
    return None


def _is_too_little(reported_ms: float, warm_ms: float) -> bool:
    """Whether a worker reports less for a cold launch than a warm one takes by our own clock."""
    return warm_ms >= SHORTEST_CHECKED_MS and reported_ms < LEAST_SHARE * warm_ms


def _share_problem(config: ConfigBlocks) -> str | None:
    """Of the time that passed on the parent's clock, the candidate's worker reports too little.

    On a CPU, where every call's time is the host's: what a message takes, both arms take. What
    they wait for a processor falls into the calls or between them, and only the worker knows where:
    as much of it as is not reported is no time that passed, up to `WAIT_MS` a block. A candidate
    can make itself wait, for a process that does its work.
    """
    if config.blocks[0].telemetry is not None:
        return None
    share, of_wall = {}, {}
    for whose in (True, False):
        blocks = [block for block in config.blocks if block.incumbent is whose]
        share[whose] = math.fsum(b.reported_ms for b in blocks) / math.fsum(
            max(b.reported_ms, b.wall_ms - min(b.waited_ms, WAIT_MS)) for b in blocks
        )
        of_wall[whose] = math.fsum(b.reported_ms for b in blocks) / math.fsum(
            b.wall_ms for b in blocks
        )
    if of_wall[True] < LEAST_SHARE or share[False] >= LEAST_SHARE * share[True]:
        return None  # of blocks that are whole passes, little is time that is reported
    return (
        f"the candidate's worker reports {share[False]:.0%} of the time that passed on "
        f"{config.config}, the incumbent's {share[True]:.0%}"
    )


def _processor_problem(config: ConfigBlocks) -> str | None:
    """A part of the candidate's work is missing in what its worker reports.

    Who waits for a processor reports more than it was on one, never less: this holds on a machine
    so busy that `_share_problem` can say nothing. What a message takes, both arms take.
    """
    hidden_ms, took_ms = {}, {}
    for whose in (True, False):
        blocks = [b for b in config.blocks if b.incumbent is whose]
        took_ms[whose] = math.fsum(b.processor_ms for b in blocks)
        hidden_ms[whose] = math.fsum(max(0.0, b.processor_ms - b.reported_ms) for b in blocks)
    expected_ms = max(MESSAGE_MS * len(config.blocks) / 2, 2 * hidden_ms[True])
    if hidden_ms[False] <= expected_ms + (1 - LEAST_SHARE) * took_ms[False]:
        return None
    return (
        f"the candidate's worker was on a processor for {took_ms[False]:.1f} ms on "
        f"{config.config}, and does not report {hidden_ms[False]:.1f} ms of them"
    )


@dataclass(frozen=True)
class LevelProblem:
    """The incumbent is not what it was: only a GPU is steady enough to say so."""

    reason: str
    is_faster: bool
    """Wherever it is outside of the band it takes less time than before."""


def level_problem(raw: RawPair, levels_ms: Mapping[str, float], band: float) -> LevelProblem | None:
    """What the incumbent's latencies of a pair differ by from those it had, if they do.

    Args:
        raw: the pair.
        levels_ms: config -> the incumbent's latency when it was calibrated.
        band: how far it may be from that, as a fraction.
    """
    found: list[tuple[str, float]] = []
    for config, now_ms in incumbent_ms(raw).items():
        level_ms = levels_ms.get(config)
        if level_ms is not None and abs(change := math.log(now_ms / level_ms)) > band:
            reason = f"takes {now_ms:.6f} ms on {config} where it took {level_ms:.6f} ms"
            found.append((reason, change))
    if not found:
        return None
    reason = f"the incumbent {found[0][0]}: the machine has changed"
    return LevelProblem(reason, is_faster=all(change < 0 for _, change in found))


def incumbent_ms(raw: RawPair) -> dict[str, float]:
    """Config -> the incumbent's latency in a pair, of those that ran on a GPU."""
    on_gpu = (config for config in raw.configs if config.blocks[0].telemetry is not None)
    return {config.config: middle_ms(config.arm(incumbent=True)) for config in on_gpu}


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
