"""One pass of the perf tests on a checkout, of as many as a limit allows.

What a test costs is known once it has run. TileGym times its matrix product in 180 tests, of which
each tunes the kernel for its shape: all of them take an hour, and a comparison is made on a few of
them anyway. So tests run in an order in which those that have run stand for the others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from agent.events import Record
from agent.harness.measuring.records import RecordError, read_records, records_something
from agent.harness.processes.results import Pass, TestResult
from agent.harness.processes.worker_session import WorkerSession
from agent.launches import ObservedLaunch
from agent.measuring.subset import PerfTestCost, spread
from tile_agent_pytest.plugin import PROPERTY


@dataclass(frozen=True)
class TimedPass:
    """One pass of the perf tests: a record a config, and the wall time of the pass."""

    records: tuple[Record, ...]
    pass_s: float
    skipped: tuple[str, ...] = ()
    """Tests that skipped themselves, where that was allowed."""
    costs: tuple[PerfTestCost, ...] = ()
    """What each perf test costs, for choosing the configs that comparisons measure."""
    launches: tuple[ObservedLaunch, ...] = ()
    left_out: tuple[str, ...] = ()
    """Tests that a limit left no time for."""
    start_s: float = 0.0
    """What the worker took until it had collected them."""


@dataclass(frozen=True)
class PassLimit:
    """After how long no further test is begun."""

    within_s: float
    named: tuple[str, ...] = ()
    """Tests whose ids hold one of these parts run in any case, and first."""


def run_some(
    arm: WorkerSession,
    nodeids: Sequence[str],
    deadline: float,
    limit: PassLimit | None,
    framework: str,
) -> Pass:
    """A pass that observes launches and takes timings over: of all tests, or of those that fit.

    Args:
        arm: the worker, which has collected them.
        nodeids: of all tests, in their order.
        deadline: for what hangs.
        limit: of the time. While nothing that ran records anything for the framework, more tests
            run beyond it.
        framework: 'cutile' or 'triton'.

    Returns:
        What ran, in the order of the list.

    Raises:
        WorkerError: as `WorkerSession.run`.
    """
    if limit is None:
        return arm.run(nodeids, deadline, observes=True, timed=True)
    ends = time.monotonic() + limit.within_s
    first = [nodeid for nodeid in nodeids if any(part in nodeid for part in limit.named)]
    rest = [nodeid for nodeid in nodeids if nodeid not in first]
    left = [rest[index] for index in spread(len(rest))]
    passes = [arm.run(first, deadline, observes=True, timed=True)] if first else []
    while left and not (passes and time.monotonic() > ends and _is_enough(passes, framework)):
        within_s = max(0.0, ends - time.monotonic())
        ran = arm.run(left, deadline, observes=True, timed=True, within_s=within_s)
        passes.append(ran)
        left = left[max(1, len(ran.tests)) :]
    return reduce(Pass.joined, passes).in_order(nodeids)


def _is_enough(passes: Sequence[Pass], framework: str) -> bool:
    tests = [test for done in passes for test in done.tests]
    passed = [test for test in tests if test.outcome == "passed"]
    failed = any(test.outcome == "failed" for test in tests)
    return failed or records_something(passed, framework)


def waits(test: TestResult) -> bool:
    """Whether a test has its blocks taken inside it, instead of timing itself."""
    return any(name == PROPERTY for name, _ in test.properties)


def costs_of(
    tests: Sequence[TestResult], framework: str, names: Mapping[str, str]
) -> tuple[PerfTestCost, ...]:
    """What each test of a pass costs; nothing of one that times other frameworks only.

    Args:
        tests: that passed.
        framework: 'cutile' or 'triton'.
        names: node id -> what its configs are called.
    """
    found = []
    for test in tests:
        try:
            records = read_records([test], framework, names)
        except RecordError:
            continue
        latencies_ms = {record.config: record.latency_ms for record in records}
        later_s = round(max(0.0, test.seconds - test.tuned_s), 4)
        found.append(PerfTestCost(test.nodeid, later_s, latencies_ms, waits(test)))
    return tuple(found)
