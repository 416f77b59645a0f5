"""Projects that time in their own ways, and a walk through what a worker does with them."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.harness.processes.results import Pass, PreparedTiming, Stop
from agent.harness.processes.worker_session import WorkerSession, deadline_in
from tests.support.workers import nodeids

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2.0, mask=mask)


def double_into(x, out):
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


def double(x):
    return double_into(x, torch.empty_like(x))
"""
WRONG_BEYOND = KERNEL.replace("mask = offsets < n", "mask = offsets < tl.minimum(n, {limit})")
"""Right for as many elements, and for no more."""
HEAD = """
import pytest
import torch
import triton
from kernel import double, double_into

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_double():
    x = torch.randn(70, device=DEVICE)
    assert torch.equal(double(x), 2 * x)

"""


@dataclass
class Walked:
    """A stepped pass over all tests of a project, with one block of each timing."""

    stops: list[Stop] = field(default_factory=list)
    prepared: list[PreparedTiming] = field(default_factory=list)
    done: Pass | None = None

    @property
    def configs(self) -> list[tuple[str, str]]:
        """Config and what it was to be timed with, of the timings that launch the kernel."""
        both = zip(self.stops, self.prepared, strict=True)
        return [(stop.config, stop.through) for stop, prepared in both if prepared.method]

    @property
    def bad(self) -> list[str]:
        """What failed, and why."""
        assert self.done is not None
        return [f"{test.nodeid}: {test.text}" for test in self.done.not_passed()]


def walk(arm: WorkerSession, *, samples: int = 3) -> Walked:
    """Have each timing prepared and sampled, then let its test go on."""
    walked = Walked()
    arm.begin(nodeids(arm), deadline_in(60))
    while isinstance(stop := arm.next_stop(deadline_in(60)), Stop):
        prepared = arm.prepare(None, deadline_in(60))
        if isinstance(prepared, str):  # it cannot be captured, and is timed by events
            prepared = arm.prepare("OnGpu", deadline_in(60))
        assert isinstance(prepared, PreparedTiming), prepared
        if prepared.method:
            arm.block(samples, deadline_in(60))
        walked.stops.append(stop)
        walked.prepared.append(prepared)
        arm.go()
    walked.done = stop
    return walked
