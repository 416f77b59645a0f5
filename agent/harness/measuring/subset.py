"""Which perf tests a comparison runs where all of them would not fit into an iteration. Pure.

TileGym's perf tests take from 17 s to minutes a pass, and a comparison takes some 25 passes. It is
made on a few of them then: the test with the shortest latency, the one with the longest, then
those that halve the gaps between the chosen ones, as long as the time allows. The final word of a
run covers all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

PASSES_A_PAIR = 5
"""Of tests that time themselves: one to warm up, four that count."""
BLOCKS_S = 1.5
"""What the blocks of one `tile_bench` call take in a pair, about."""
SHARE = 0.6
"""The part of an iteration's time that a comparison may take."""


@dataclass(frozen=True)
class Cost:
    """What one perf test costs and shows."""

    nodeid: str
    seconds: float
    """Wall time of the test in one pass."""
    latency_ms: float
    """The shortest latency it recorded."""
    stepped: bool
    """It uses `tile_bench`, so its blocks are taken inside it."""

    @property
    def pair_s(self) -> float:
        """Its part of the wall time of a process pair."""
        if self.stepped:
            return 2 * self.seconds + BLOCKS_S
        return PASSES_A_PAIR * self.seconds


def comparison_s(costs: Sequence[Cost], pairs: int) -> float:
    """What a comparison on these tests takes, about."""
    return pairs * sum(cost.pair_s for cost in costs)


def representative(
    costs: Sequence[Cost], pairs: int, iteration_timeout_s: float
) -> tuple[str, ...]:
    """The node ids to compare on; all of them where they fit, and always at least one."""
    budget_s = SHARE * iteration_timeout_s
    if comparison_s(costs, pairs) <= budget_s:
        return tuple(cost.nodeid for cost in costs)
    ranked = sorted(costs, key=lambda cost: cost.latency_ms)
    chosen: list[Cost] = []
    for index in _spread(len(ranked)):
        if not chosen or comparison_s([*chosen, ranked[index]], pairs) <= budget_s:
            chosen.append(ranked[index])
    return tuple(cost.nodeid for cost in costs if cost in chosen)


def _spread(count: int) -> list[int]:
    """Indices in the order first, last, middle, and so on: the widest gap is halved next."""
    order = [0, count - 1][:count]
    while len(order) < count:
        known = sorted(order)
        gaps = [(b - a, a, b) for a, b in pairwise(known) if b - a > 1]
        _, low, high = max(gaps, key=lambda gap: (gap[0], -gap[1]))
        order.append((low + high) // 2)
    return order
