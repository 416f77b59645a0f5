"""The tests that judge a run, fixed when it begins. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tile_agent_pytest.bench_command import OPTION, BenchCommand


@dataclass(frozen=True)
class TestPlan:
    """The frozen tests of a run: node ids, in pytest's order."""

    __test__ = False

    files: tuple[str, ...]
    correctness: tuple[str, ...]
    perf: tuple[str, ...]
    notes: tuple[str, ...] = ()
    benches: tuple[str, ...] = ()
    """Benchmark scripts that are perf tests, as `--bench` names them, relative to the root."""
    correctness_k: str = ""
    """The expression that chose the tests; empty where the defaults did."""
    perf_k: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """For pytest, so that it collects all of them."""
        return (*self.files, *map(_bench_argument, self.benches))

    def arguments_for(self, nodeids: Sequence[str]) -> tuple[str, ...]:
        """For pytest, so that it runs these alone: a script is no file to collect."""
        benches = {BenchCommand.parse(bench).nodeid: bench for bench in self.benches}
        return tuple(
            _bench_argument(benches[nodeid]) if nodeid in benches else nodeid for nodeid in nodeids
        )


def _bench_argument(bench: str) -> str:
    return f"{OPTION}={bench}"
