"""Which cards of a fleet are slow: they attain clearly less than others of their kind.

A comparison is of two kernels on one card, so that a slow card makes no gain wrong; what it costs
is time, and latencies that are not those of its neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from agent.fleet.home import KernelStanding

SLOW = 0.9
"""Of the median of its kind. Cards of one kind were not compared for this: it is a choice."""


def slow_cards(standings: Sequence[KernelStanding]) -> dict[str, str]:
    """Kernel's name -> what is slow of the card that its run had last.

    A kind is what a machine is told as; of fewer than three cards none is slow.
    """
    kinds = defaultdict[tuple[str, str], list[KernelStanding]](list)
    for standing in standings:
        for unit in standing.attained:
            kinds[standing.machine, unit].append(standing)
    found = {}
    for (_, unit), alike in kinds.items():
        cards = {(each.host, each.card): each.attained[unit] for each in alike}
        usual = median(cards.values())
        for each in alike:
            if len(cards) >= 3 and each.attained[unit] < SLOW * usual:
                found[each.name] = (
                    f"a slow card: {each.card} on {each.host} attains {each.attained[unit]:.0f} "
                    f"{unit}, others like it {usual:.0f}"
                )
    return found
