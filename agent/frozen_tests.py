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

    def arguments_with(self, nodeids: Sequence[str]) -> tuple[str, ...]:
        """For pytest, so that it collects these among others: what imports nothing of theirs, and
        may take long to import, is no part of it."""
        benches = {BenchCommand.parse(bench).nodeid: bench for bench in self.benches}
        parts = [file for file in self.files if "::" in file]
        named = [part for part in parts if any(_is_below(n, part) for n in nodeids)]
        rest = [n for n in nodeids if not any(_is_below(n, part) for part in named)]
        files = dict.fromkeys(n.partition("::")[0] for n in rest if n not in benches)
        given = [file.partition("::")[0].rstrip("/") for file in self.files]
        if not all(any(holds(path, file) for path in given) for file in files):
            return self.arguments  # files elsewhere, which ids do not lead to
        scripts = [_bench_argument(bench) for n, bench in benches.items() if n in nodeids]
        return (*named, *files, *scripts)

    def arguments_for(self, nodeids: Sequence[str]) -> tuple[str, ...]:
        """For pytest, so that it runs these alone: a script is no file to collect."""
        benches = {BenchCommand.parse(bench).nodeid: bench for bench in self.benches}
        return tuple(
            _bench_argument(benches[nodeid]) if nodeid in benches else nodeid for nodeid in nodeids
        )


def holds(path: str, file: str) -> bool:
    """Whether a path is a file's, or that of a folder around it; both from the root."""
    return path in (file, ".") or file.startswith(f"{path}/")


def _is_below(nodeid: str, part: str) -> bool:
    """Whether a test is one, or one of a class, that an argument names."""
    return nodeid == part or nodeid.startswith((f"{part}::", f"{part}["))


def _bench_argument(bench: str) -> str:
    return f"{OPTION}={bench}"
