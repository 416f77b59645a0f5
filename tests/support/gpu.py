"""Watching a GPU that several test processes share."""

from __future__ import annotations

import os

from agent.environment import Gpu
from agent.harness.measuring.gpu import GpuWatch

FAMILY = "TILE_AGENT_TEST_FAMILY"
"""A process id. Set it to the shell's to run tests that watch the GPU side by side: what descends
from that process is then no stranger. Nothing that is said of speed counts there."""


def watched(gpu: Gpu) -> GpuWatch:
    """Watch a GPU; strangers are the processes outside this one, or outside the family if set."""
    family = os.environ.get(FAMILY)
    return GpuWatch(gpu, int(family) if family else None)
