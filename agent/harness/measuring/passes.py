"""Blocks of whole passes, for tests that time in ways of their own: nothing stops those inside."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.harness.measuring.arms import at_arm
from agent.harness.measuring.failures import blame, crash, paired_failure
from agent.harness.measuring.gpu import GpuWatch
from agent.harness.measuring.records import RecordError, read_records
from agent.harness.measuring.spent import PairSpent
from agent.harness.processes.worker_session import WorkerSession
from agent.measuring.blocks import Block, ConfigBlocks, RawPair
from agent.measuring.measurement import Failure


@dataclass(frozen=True)
class WholePasses:
    """Both arms run the tests in turn; what a pass records is a block."""

    tests: tuple[str, ...]
    """Node ids of those to run, which have been run once already."""
    names: Mapping[str, str]
    """Node id -> name of its configs."""
    framework: str
    deadline: float
    watch: GpuWatch | None
    spent: PairSpent

    def take(self, arms: Mapping[bool, WorkerSession], order: Sequence[bool]) -> RawPair | Failure:
        """One pass for each place in the order; True is the incumbent's."""
        blocks: dict[str, list[Block]] = {}
        found: dict[bool, set[str]] = {}
        chosen: dict[bool, Mapping[str, str]] = {}
        for whose in order:
            begin = time.perf_counter()
            with at_arm(whose):
                done = arms[whose].run(self.tests, self.deadline, timed=True)
            wall_ms = (time.perf_counter() - begin) * 1e3
            for test in done.tests:
                self.spent.on_test(test.nodeid, test.seconds)
            if bad := done.not_passed():
                return paired_failure(bad, incumbent=whose)
            try:
                records = read_records(done.tests, self.framework, self.names)
            except RecordError as problem:
                return blame(crash(str(problem)), incumbent=whose)
            configs = {record.config for record in records}
            if configs != found.setdefault(whose, configs):
                return blame(crash("it recorded a changing set of configs"), incumbent=whose)
            if done.chosen:
                chosen[whose] = done.chosen
            telemetry = self.watch.look() if self.watch else None
            for record in records:
                blocks.setdefault(record.config, []).append(
                    Block(whose, record.latency_ms, record.latency_ms, wall_ms, telemetry)
                )
        if found[True] != found[False]:
            return crash("the two arms recorded different sets of configs")
        return RawPair(
            tuple(ConfigBlocks(name, tuple(each)) for name, each in blocks.items()), chosen
        )
