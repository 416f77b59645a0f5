"""What a process pair costs, how many configs fit into a time, how many pairs. Pure.

A pair has a fixed part (two workers start, import and collect), a part for each perf test (its
inputs, its own checks, the compiler; of tests that time themselves, all of it) and a part for each
config whose blocks are taken inside a test. The baseline tells roughly what they are: it runs a
test once, warmed up and timed, which a pair does not. The first pair tells where its own time went,
and so what another pair on other configs will take.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from agent.measuring.subset import PerfTestCost, Subset, representative

PASSES_A_PAIR = 5
"""Of tests that time themselves: one to warm up, four that count."""
RUNS_A_PAIR = 2
"""Of a test that waits for its blocks, as long as at the baseline: one of each arm."""
CONFIG_S = 1.0
"""What the blocks of one config take in a pair, before one was seen."""


@dataclass(frozen=True)
class PairTime:
    """Where the wall time of a process pair went, in seconds; or the mean of several."""

    fixed_s: float
    """What it took whatever it measures: workers start, import and collect."""
    tests_s: dict[str, float]
    """Node id of a perf test -> what it took beside its blocks, in the order they ran."""
    configs_s: float
    """What the blocks took, with the first call, the warm-up and the comparison of results."""
    configs: int
    """How many configs those were."""

    @property
    def seconds(self) -> float:
        """The whole."""
        return self.fixed_s + sum(self.tests_s.values()) + self.configs_s

    @classmethod
    def mean(cls, times: Sequence[PairTime]) -> PairTime:
        """The mean of pairs on the same configs; at least one."""
        count = len(times)
        return cls(
            round(sum(t.fixed_s for t in times) / count, 4),
            {
                n: round(sum(t.tests_s.get(n, 0.0) for t in times) / count, 4)
                for n in times[0].tests_s
            },
            round(sum(t.configs_s for t in times) / count, 4),
            times[0].configs,
        )


@dataclass(frozen=True)
class PairCost:
    """The model: by the baseline alone, or by what a pair was seen to take."""

    costs: tuple[PerfTestCost, ...]
    fixed_s: float = 0.0
    test_s: Mapping[str, float] = field(default_factory=dict)
    """Node id -> its part of a pair; where there is none, what the baseline says of it."""
    config_s: float = CONFIG_S

    @classmethod
    def expected(cls, costs: Sequence[PerfTestCost], start_s: float = 0.0) -> Self:
        """By the baseline.

        Args:
            costs: of its perf tests.
            start_s: what its worker took until the tests were collected; 0 where nobody looked.
        """
        return cls(tuple(costs), start_s)

    def seen(self, time: PairTime) -> Self:
        """By where the time of a pair went.

        Tests that were not in it are taken to differ from the baseline as those that were. The
        first test of a worker pays for what the others find done, at the baseline and in a pair:
        how much it differs counts only where there is no other.
        """
        known = {cost.nodeid: cost for cost in self.costs}
        measured = {n: s for n, s in time.tests_s.items() if n in known}
        test_s = dict(measured)
        for stepped in (True, False):
            ran = [n for n in measured if known[n].stepped is stepped]
            telling = [n for n in ran if n != next(iter(measured))] or ran
            before = sum(_by_baseline(known[n]) for n in telling)
            scale = sum(measured[n] for n in telling) / before if before > 0 else 1.0
            test_s |= {
                cost.nodeid: scale * _by_baseline(cost)
                for cost in self.costs
                if cost.stepped is stepped and cost.nodeid not in measured
            }
        config_s = time.configs_s / time.configs if time.configs else self.config_s
        return replace(self, fixed_s=time.fixed_s, test_s=test_s, config_s=config_s)

    def scaled(self, subset: Subset | None, took_s: float) -> Self:
        """By what a pair on a subset took where nobody looked where its time went."""
        scale = took_s / max(self.pair_s(subset), 1e-9)
        return replace(
            self,
            fixed_s=scale * self.fixed_s,
            test_s={cost.nodeid: scale * self._test_s(cost) for cost in self.costs},
            config_s=scale * self.config_s,
        )

    def of(self, configs: Collection[str]) -> Self:
        """The same where there are these configs alone."""
        parts = (cost.of(configs) for cost in self.costs)
        return replace(self, costs=tuple(part for part in parts if part.latencies_ms))

    def pair_s(self, subset: Subset | None) -> float:
        """What a pair on these configs takes, about; on all where there is no subset."""
        return self._seconds(None if subset is None else frozenset(subset.configs))

    def pairs(self, within_s: float, subset: Subset | None) -> int:
        """How many pairs on these configs fit into a time."""
        return max(0, int(within_s // max(self.pair_s(subset), 1e-9)))

    def fitting(
        self,
        most_pair_s: float,
        kernels: Mapping[str, Collection[str]] | None = None,
        *,
        longest_alone: bool = False,
        besides: Collection[str] = (),
    ) -> Subset | None:
        """The configs whose pair takes so long at most; at least one, and None where all fit.

        Args:
            most_pair_s: what a pair may take.
            kernels: perf test -> the kernels that it was seen to launch.
            longest_alone: see `representative`.
            besides: configs that are there in any case.
        """
        return representative(
            self.costs,
            most_pair_s,
            self._seconds,
            kernels,
            longest_alone=longest_alone,
            besides=besides,
        )

    def _seconds(self, configs: frozenset[str] | None) -> float:
        seconds = 0.0
        for cost in self.costs:
            count = sum(configs is None or config in configs for config in cost.latencies_ms)
            if count:
                seconds += self._test_s(cost) + (count * self.config_s if cost.stepped else 0.0)
        return self.fixed_s + seconds

    def _test_s(self, cost: PerfTestCost) -> float:
        return self.test_s.get(cost.nodeid, _by_baseline(cost))


def _by_baseline(cost: PerfTestCost) -> float:
    return (RUNS_A_PAIR if cost.stepped else PASSES_A_PAIR) * cost.seconds
