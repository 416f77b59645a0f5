"""One block of samples of one arm, with what the parent and the system saw of it."""

from __future__ import annotations

import statistics
import time

from agent.harness.measuring.gpu import GpuWatch
from agent.harness.measuring.spent import PairSpent
from agent.harness.measuring.timed_calls import check_block
from agent.harness.processes.results import PreparedTiming
from agent.harness.processes.worker_session import WorkerSession
from agent.measuring.blocks import Block
from tile_agent_pytest.process_tree import ProcessorTimes, own_waited_ms


def timed_block(
    arm: WorkerSession,
    count: int,
    prepared: PreparedTiming,
    deadline: float,
    *,
    incumbent: bool,
    watch: GpuWatch | None,
    spent: PairSpent,
) -> Block:
    """Take it.

    Args:
        arm: the worker, which waits inside a test.
        count: how many samples.
        prepared: what its first call did: the others must do the same.
        deadline: on the monotonic clock, in seconds.
        incumbent: whose block it is.
        watch: of the GPU; None on a CPU, where the system tells how long the worker ran.
        spent: where reading the GPU's state is counted.

    Raises:
        NoLaunch: a launch is missing, or something runs beside the calls.
    """
    on_cpu = watch is None
    before = arm.processor_times() if on_cpu else ProcessorTimes()
    own_before_ms = own_waited_ms() if on_cpu else 0.0
    begin = time.perf_counter()
    taken = arm.block(count, deadline)
    wall_ms = (time.perf_counter() - begin) * 1e3
    own_ms = own_waited_ms() - own_before_ms if on_cpu else 0.0
    used = arm.processor_times().since(before) if on_cpu else ProcessorTimes()
    with spent.on("telemetry"):
        telemetry = watch.look() if watch else None
    check_block(prepared, count, taken)
    return Block(
        incumbent=incumbent,
        latency_ms=statistics.median(taken.samples_ms),
        reported_ms=sum(taken.samples_ms),
        wall_ms=wall_ms,
        telemetry=telemetry,
        processor_ms=used.on_ms,
        waited_ms=used.waited_ms + own_ms,
    )
