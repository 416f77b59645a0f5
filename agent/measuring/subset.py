"""Which configs a comparison measures where all of them would take too long. Pure.

TileGym's perf tests take from 17 s to minutes a pass, and a comparison takes some 25 passes. It is
made on a few configs then: the one with the longest latency, where most is at stake, the one with
the shortest, then those that halve the gaps between the chosen ones, as long as the time allows.
Where not even the longest fits, the shortest is the first. So every range of latencies is there,
and the choice hangs on the baseline alone: no later figure can move it. Configs are left out, never
pairs: the error rates of the decisions are those of as many pairs as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

ALIKE = 1.2
"""What the pair of one config may take, times that of another, to cost no more."""


@dataclass(frozen=True)
class PerfTestCost:
    """What one perf test costs and shows, as the baseline saw it."""

    nodeid: str
    seconds: float
    """Wall time of the test in one pass that is handed what the kernel's tuner has chosen."""
    latencies_ms: dict[str, float]
    """Config -> its latency."""
    stepped: bool
    """Whether its configs have their blocks taken inside it; else it times itself, as a whole."""

    def of(self, configs: Collection[str]) -> PerfTestCost:
        """With these of its configs alone."""
        latencies_ms = {name: ms for name, ms in self.latencies_ms.items() if name in configs}
        return replace(self, latencies_ms=latencies_ms)

    def units(self) -> list[tuple[str, ...]]:
        """The configs that can be measured without the others; of one that times itself, none."""
        if self.stepped:
            return [(config,) for config in self.latencies_ms]
        return [tuple(self.latencies_ms)]

    def shortest(self) -> tuple[str, ...]:
        """Of these, the one with the shortest latency; empty where it has no config."""
        units = [unit for unit in self.units() if unit]
        return min(units, key=lambda u: min(self.latencies_ms[c] for c in u), default=())


@dataclass(frozen=True)
class Subset:
    """The configs that are measured, where those are not all."""

    tests: tuple[str, ...]
    """The perf tests that hold them."""
    configs: tuple[str, ...]
    left_out: tuple[str, ...]
    too_large: tuple[str, ...] = ()
    """Those of the left out that cannot be compared: the GPU does not hold them twice."""

    @property
    def until_later(self) -> tuple[str, ...]:
        """Those of the left out that only lack time."""
        return tuple(config for config in self.left_out if config not in self.too_large)

    @property
    def coverage(self) -> str:
        """How many there are, for a person."""
        return f"{len(self.configs)} of {len(self.configs) + len(self.left_out)} configs"


def told_too_large(configs: Sequence[str]) -> list[str]:
    """A line on the configs that are never compared, for a person, where there are some."""
    if not configs:
        return []
    return [
        f"never compared: {in_brief(configs)}, for two versions of what these hold do not "
        "fit into the memory of this GPU"
    ]


def in_brief(configs: Sequence[str], most: int = 12) -> str:
    """Their names, for a person; the journal has them all."""
    more = [f"{len(configs) - most} more"] if len(configs) > most else []
    return ", ".join([*configs[:most], *more])


def of_names(costs: Sequence[PerfTestCost], names: Collection[str]) -> Subset | None:
    """The subset of these configs, and of what cannot be told from them; None where it is all."""
    configs, tests, left_out = [], [], []
    for cost in costs:
        chosen = [c for unit in cost.units() if not set(unit).isdisjoint(names) for c in unit]
        left_out += [config for config in cost.latencies_ms if config not in chosen]
        configs += chosen
        tests += [cost.nodeid] if chosen else []
    return Subset(tuple(tests), tuple(configs), tuple(left_out)) if left_out else None


def without(
    costs: Sequence[PerfTestCost], too_large: Collection[str], chosen: Subset | None
) -> Subset | None:
    """A subset of what the GPU holds twice, told of all; the same where it holds all.

    Args:
        costs: of all perf tests.
        too_large: the configs that it does not hold twice.
        chosen: of the others; None: all of them.
    """
    if not too_large:
        return chosen
    others = (config for cost in costs for config in cost.latencies_ms if config not in too_large)
    subset = of_names(costs, chosen.configs if chosen else tuple(others))
    return replace(subset, too_large=tuple(too_large)) if subset else None


def without_tests(
    costs: Sequence[PerfTestCost], tests: Collection[str], chosen: Subset | None
) -> Subset | None:
    """The rest of a subset, where the GPU does not hold twice what some of its tests hold.

    Args:
        costs: of all perf tests.
        tests: those that ran out of memory.
        chosen: the subset; None: all configs.

    Returns:
        None where that leaves nothing, or nothing out.
    """
    poor = {config for cost in costs if cost.nodeid in tests for config in cost.latencies_ms}
    there = chosen.configs if chosen else [name for cost in costs for name in cost.latencies_ms]
    left = [name for name in there if name not in poor]
    subset = of_names(costs, left) if left and len(left) < len(there) else None
    if subset is None:
        return None
    too_large = (*(chosen.too_large if chosen else ()), *(n for n in there if n in poor))
    return replace(subset, too_large=too_large)


def representative(
    costs: Sequence[PerfTestCost],
    most_pair_s: float,
    pair_s: Callable[[frozenset[str] | None], float],
    kernels: Mapping[str, Collection[str]] | None = None,
    *,
    longest_alone: bool = False,
    besides: Collection[str] = (),
) -> Subset | None:
    """The configs whose pair takes so long at most; at least one, and None where all fit.

    What a config does not launch it cannot show. So after the first those come that launch another
    kernel, the cheapest of each, before the gaps between latencies are filled.

    Args:
        costs: of the perf tests.
        most_pair_s: what a process pair may take.
        pair_s: what one on these configs takes; on all, where None is given.
        kernels: perf test -> the kernels that it was seen to launch.
        longest_alone: where none fits, the one that stays is the longest, if it costs no more than
            the shortest.
        besides: configs that are there in any case.
    """
    latency_ms = {name: ms for cost in costs for name, ms in cost.latencies_ms.items()}
    units = [unit for cost in costs for unit in cost.units()]
    ranked = sorted(units, key=lambda unit: min(latency_ms[config] for config in unit))
    if pair_s(None) <= most_pair_s:
        return None
    order = [ranked[index] for index in spread(len(ranked))]
    if len(order) > 1:
        shortest_s, longest_s = (pair_s(frozenset(unit)) for unit in order[:2])
        none_fits = longest_alone and shortest_s > most_pair_s
        if longest_s <= most_pair_s or (none_fits and longest_s <= ALIKE * shortest_s):
            order[:2] = order[1], order[0]
    others = _of_other_kernels(costs, order[:1], pair_s, kernels or {})
    chosen = frozenset(besides)
    for unit in [*order[:1], *others, *order[1:]]:
        more = chosen.union(unit)
        if not chosen or pair_s(more) <= most_pair_s:
            chosen = more
    return of_names(costs, chosen)


def _of_other_kernels(
    costs: Sequence[PerfTestCost],
    chosen: Sequence[tuple[str, ...]],
    pair_s: Callable[[frozenset[str] | None], float],
    kernels: Mapping[str, Collection[str]],
) -> list[tuple[str, ...]]:
    """For each kernel that the chosen configs do not launch, the cheapest that does."""
    launched = {
        kernel
        for cost in costs
        if any(unit in chosen for unit in cost.units())
        for kernel in kernels.get(cost.nodeid, ())
    }
    found = []
    for cost in sorted(costs, key=lambda cost: pair_s(frozenset(cost.shortest()))):
        own = set(kernels.get(cost.nodeid, ()))
        if own - launched and cost.latencies_ms:
            found.append(cost.shortest())
            launched |= own
    return found


def spread(count: int) -> list[int]:
    """Indices in the order first, last, middle, and so on: the widest gap is halved next."""
    order = [0, count - 1][:count]
    while len(order) < count:
        known = sorted(order)
        gaps = [(b - a, a, b) for a, b in pairwise(known) if b - a > 1]
        _, low, high = max(gaps, key=lambda gap: (gap[0], -gap[1]))
        order.append((low + high) // 2)
    return order
