"""Watches the GPU through NVML while blocks are taken, and keeps other runs off it.

NVML is read by the parent, which never runs candidate code. Nothing here changes a setting of the
card.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from agent.environment import Gpu
from agent.errors import UsageError
from agent.measuring.blocks import Telemetry
from agent.workspace import state_dir

LOCK_PATIENCE_S = 600.0


class GpuWatch:
    """Reads one GPU's clocks, power, temperature, throttling and processes."""

    def __init__(self, gpu: Gpu, family: int | None = None) -> None:
        """Watch a GPU.

        Args:
            gpu: which one.
            family: the process whose descendants are ours; this one when not given.
        """
        import pynvml

        self._nvml: Any = pynvml
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        self._family = family or os.getpid()

    def look(self) -> Telemetry | None:
        """The GPU now; None when the driver does not answer."""
        nvml, handle = self._nvml, self._handle
        try:
            return Telemetry(
                sm_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
                power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
                temperature_c=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
                event_reasons=self._event_reasons(),
                foreign_pids=self._foreign(),
            )
        except nvml.NVMLError:
            return None

    def used_share(self) -> float:
        """The part of the GPU's memory that is taken; all of it when the driver does not answer."""
        try:
            memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        except self._nvml.NVMLError:
            return 1.0
        return float(memory.used) / float(memory.total)

    def setting(self) -> str:
        """What changes a latency and is somebody's choice: driver, limits of clock and power."""
        nvml, handle = self._nvml, self._handle
        reads = {
            "driver": nvml.nvmlSystemGetDriverVersion,
            "MHz at most": lambda: nvml.nvmlDeviceGetMaxCustomerBoostClock(
                handle, nvml.NVML_CLOCK_SM
            ),
            "application MHz": lambda: nvml.nvmlDeviceGetApplicationsClock(
                handle, nvml.NVML_CLOCK_SM
            ),
            "mW at most": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle),
        }
        found = []
        for name, read in reads.items():
            with suppress(nvml.NVMLError):
                found.append(f"{name} {read()}")
        return ", ".join(found)

    def close(self) -> None:
        """Let NVML go."""
        self._nvml.nvmlShutdown()

    def _event_reasons(self) -> int:
        nvml = self._nvml
        read = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        read = read or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        return int(read(self._handle))

    def _foreign(self) -> tuple[int, ...]:
        """Processes on the GPU that are not ours.

        Inside a container NVML may name processes by numbers that mean nothing here; a number
        without a process is passed over rather than blamed.
        """
        pids = {p.pid for p in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)}
        return tuple(sorted(pid for pid in pids if psutil.pid_exists(pid) and not self._ours(pid)))

    def _ours(self, pid: int) -> bool:
        with suppress(psutil.Error):
            process: psutil.Process | None = psutil.Process(pid)
            while process is not None:
                if process.pid == self._family:
                    return True
                process = process.parent()
            return False
        return True  # it has ended meanwhile


@contextmanager
def exclusive(
    gpu: Gpu, folder: Path, say: Callable[[str], None], patience_s: float | None = None
) -> Iterator[None]:
    """Hold a GPU against other runs of tile-agent on this machine while the block lasts.

    Args:
        gpu: which one.
        folder: of the locks.
        say: told in a line that another run is waited for, where one has to be.
        patience_s: for how long, `LOCK_PATIENCE_S` when left out; 0 does not wait.

    Raises:
        UsageError: another run holds it for longer.
    """
    patience_s = LOCK_PATIENCE_S if patience_s is None else patience_s
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{gpu.uuid}.lock")
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if patience_s:
                say(
                    f"waits      another tile-agent run measures on {gpu.name}: for its end, or "
                    f"for {patience_s / 60:.0f} min"
                )
            lock.acquire(timeout=patience_s)
    except Timeout:
        raise UsageError(
            f"another tile-agent run measures on {gpu.name} ({gpu.uuid}): wait for it, or choose "
            "another GPU with CUDA_VISIBLE_DEVICES"
        ) from None
    try:
        yield
    finally:
        lock.release()


def taken(
    stack: ExitStack, gpu: Gpu, say: Callable[[str], None], patience_s: float | None = None
) -> GpuWatch:
    """Hold a GPU against other runs and watch it, until the stack ends. See `exclusive`."""
    stack.enter_context(exclusive(gpu, state_dir() / "gpus", say, patience_s))
    watch = GpuWatch(gpu)
    stack.callback(watch.close)
    return watch
