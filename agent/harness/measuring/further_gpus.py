"""GPUs beside the run's own, on which variants of a sweep are looked at.

Each has a fork server of its own, whose workers see that GPU alone. It is started when a sweep
begins, in a thread: importing what the tests need takes longer than many a look, so that looks go
on without a GPU until its server is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from agent.environment import Gpu
from agent.errors import TileAgentError, UsageError
from agent.harness.measuring.gpu import GpuWatch, taken
from agent.harness.processes.fork_server import ForkServer


@dataclass(eq=False)
class FurtherGpu:
    """One of them."""

    name: str
    """For the user."""
    start: Callable[[], ForkServer]
    """Starts its server."""
    is_free: Callable[[], bool]
    """Whether no process of anybody else is on it now."""
    server: ForkServer | None = field(init=False, default=None)
    """Once it has started."""
    problem: str = field(init=False, default="")
    """Why it could not be."""
    _thread: threading.Thread | None = field(init=False, default=None)
    _closed: bool = field(init=False, default=False)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def start_soon(self) -> None:
        """Have its server started, once, and do not wait."""
        if self._thread is None:
            # A daemon: where the program ends meanwhile, the server does by itself.
            self._thread = threading.Thread(target=self._bring_up, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End its server with all workers."""
        with self._lock:
            self._closed = True
        if self.server is not None:
            self.server.close()

    def _bring_up(self) -> None:
        try:
            server = self.start()
        except (TileAgentError, OSError) as problem:
            self.problem = str(problem)
            return
        with self._lock:
            if not self._closed:
                self.server = server
                return
        server.close()


@dataclass
class FurtherGpus:
    """All of a run; none where there is one GPU, or nobody asked for more."""

    gpus: list[FurtherGpu] = field(default_factory=list)
    say: Callable[[str], None] = lambda _: None
    """Told in a line which of them the run goes on without, and why."""

    def start_soon(self) -> None:
        """Have their servers started; those that are there already stay."""
        for gpu in self.gpus:
            gpu.start_soon()

    def ready(self) -> list[FurtherGpu]:
        """Those on which a look can begin now."""
        for gpu in [gpu for gpu in self.gpus if gpu.problem]:
            self.drop(gpu, gpu.problem)
        return [gpu for gpu in self.gpus if gpu.server is not None and gpu.is_free()]

    def drop(self, gpu: FurtherGpu, why: str) -> None:
        """Do without one from here on."""
        self.gpus.remove(gpu)
        gpu.close()
        self.say(f"gpus       {gpu.name} is left out from here on: {why}")

    def close(self) -> None:
        """End the servers with all workers."""
        for gpu in self.gpus:
            gpu.close()


def further_gpus(
    stack: ExitStack,
    visible: Sequence[Gpu],
    most: int,
    start: Callable[[Gpu], ForkServer],
    say: Callable[[str], None],
) -> FurtherGpus:
    """Hold those that are of the first one's model and free, until the stack ends.

    Args:
        stack: gives them back.
        visible: the GPUs of this machine that may be used, the run's own first.
        most: how many are wanted, the run's own counted in.
        start: starts the server of one.
        say: told in a line each which are not there, or not free.
    """
    found = FurtherGpus(say=say)
    stack.callback(found.close)
    if most < 2:
        return found
    alike = [gpu for gpu in visible[1:] if gpu.name == visible[0].name]
    if len(alike) + 1 < most:
        there = f"{len(alike) + 1} {visible[0].name}" if visible else "no GPU"
        say(f"gpus       {most} were asked for, and {there} can be seen")
    for gpu in alike:
        if len(found.gpus) + 1 == most:
            break
        name = f"{gpu.name} ({gpu.uuid})"
        with ExitStack() as own:
            try:
                watch = taken(own, gpu, say, patience_s=0)
            except UsageError:
                say(f"gpus       another tile-agent run measures on {name}: it is left out")
                continue
            if not _is_free(watch):
                say(f"gpus       other processes are on {name}: it is left out")
                continue
            stack.enter_context(own.pop_all())
        found.gpus.append(FurtherGpu(name, partial(start, gpu), partial(_is_free, watch)))
    return found


def _is_free(watch: GpuWatch) -> bool:
    seen = watch.look()
    return seen is not None and not seen.foreign_pids
