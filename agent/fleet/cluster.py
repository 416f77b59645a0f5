"""The fleet on Ray: the only file that imports it, and only when a fleet runs.

Which task runs where, and when, is Ray's; so is who is alive. A task that Ray reports as lost is
handed to it again with what came home of its run: a repetition by Ray itself would begin anew.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from agent.environment import Environment
from agent.errors import Interrupted, UsageError
from agent.fleet.bundles import packed, past_journals
from agent.fleet.home import FleetOutcome, Home, KernelStanding, spent
from agent.fleet.jobs import (
    KernelJob,
    PackedRepository,
    Placed,
    RefusedByMachine,
    ResumePoint,
    Told,
)
from agent.fleet.worker import attempt

MOST_LOSSES = 3
"""So often in a row a task may be lost without its run getting any further."""
MOST_TRIES = 12
"""So often in a row Ray's object store may have no room, while no run may make some."""
_FULL = "Ray's object store is full"
_REACH_S = 10.0
_LOOK_S = 1.0
"""How soon somebody is heard who wants the fleet to end."""
_CANCEL_S = 20.0
"""A task that was cancelled has ended its run and removed its clone by then."""
_NODE = "ray.io/node-id"
"""The label that Ray gives to every node."""


@contextmanager
def connected(address: str, gpus_per_run: int) -> Iterator[None]:
    """Be a driver of a cluster while the block lasts; without an address of one on this machine.

    Raises:
        UsageError: there is no cluster at the address, or this machine has not the GPUs.
    """
    if "://" in address:
        raise UsageError(
            f"--address {address}: a fleet is driven on a machine of the cluster; name it by "
            "host:port, or as auto"
        )
    _reach(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    ours = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    local = {"address": "local", "include_dashboard": False}
    try:
        ray.init(
            **({"address": address} if address else local),
            logging_level="warning",
            log_to_driver=False,
        )
    except (ConnectionError, ValueError, RuntimeError) as problem:
        why = str(problem).strip().partition("\n")[0]
        raise UsageError(f"Ray at {address or 'this machine'} cannot be used: {why}") from None
    for number, handler in ours.items():
        signal.signal(number, handler)
    try:
        found = ray.cluster_resources().get("GPU", 0)
        if found < gpus_per_run and not address:
            raise UsageError(
                f"this machine has {found:.0f} GPUs: name a cluster with --address, or run in "
                "the interpreter with --gpus-per-run 0"
            )
        yield
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Look whether anybody answers: Ray would try for minutes.

    Raises:
        UsageError: nobody does.
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S):
            pass
    except (OSError, OverflowError) as problem:
        raise UsageError(
            f"--address {address}: nobody answers there ({problem}); on the cluster's head "
            "`ray start --head` says what its address is"
        ) from None


@contextmanager
def _asked_to_end() -> Iterator[list[int]]:
    """The signals that ask this process to end, as they come; they interrupt nothing.

    An exception that a handler raises within a call of Ray's is lost there.
    """
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {each: signal.signal(each, lambda number, _: came.append(number)) for each in numbers}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_node(
    job: KernelJob,
    source: PackedRepository,
    begun_on: Environment,
    point: ResumePoint | None,
    past: Sequence[bytes],
) -> Iterator[Told]:
    """What the task of a kernel is."""
    import ray

    # Ray cancels a task by a KeyboardInterrupt, which never comes where its daemons were started
    # with SIGINT ignored: what a script starts in the background inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    node_id = ray.get_runtime_context().get_node_id()
    yield from attempt(job, source, begun_on, point, node_id, past)


@dataclass
class Driver:
    """Hands the kernels of a fleet to Ray and keeps what comes back, until all have ended."""

    home: Home
    say: Callable[[str], None]
    task: Callable[..., Iterator[Told]] = _on_node
    """What Ray is handed for each kernel."""
    again_s: float = 10.0
    """After so long a run is handed over again for which Ray's object store had no room."""

    def drive(self) -> None:
        """Run what has not ended yet.

        Raises:
            Interrupted: the user asked for it; the fleet can be resumed.
        """
        import ray

        self._fleet = fleet = self.home.fleet()
        self._standings = {each.name: each for each in self.home.standings()}
        self._remote = ray.remote(num_gpus=fleet.gpus_per_run, max_retries=0)(self.task)
        self._past = past_journals(self.home.repository)
        self._source: Any = None
        self._running: dict[Any, KernelJob] = {}
        self._withheld: dict[Any, Any] = {}
        self._without_room: list[KernelJob] = []
        self._tries = 0
        for job in fleet.jobs:
            if not self._standings[job.name].outcome.final:
                self._submit(job)
        if self._running and ray.cluster_resources().get("GPU", 0) < fleet.gpus_per_run:
            self.say(f"no node has {fleet.gpus_per_run} GPU yet: the runs wait for one")
        with _asked_to_end() as asked:
            try:
                while (self._running or self._withheld or self._without_room) and not asked:
                    self._look()
            finally:
                self._cancel()
        if asked:
            raise Interrupted("stopped; what came home of the runs is kept")

    def _look(self) -> None:
        """Hear what has been told, and hand over again what found no room."""
        import ray

        if self._running or self._withheld:
            heard = [*self._running, *self._withheld]
            ready, _ = ray.wait(heard, num_returns=1, timeout=_LOOK_S)
            for each in ready:
                if each in self._withheld:
                    del self._withheld[each]
                else:
                    self._listen(each)
        else:
            time.sleep(min(_LOOK_S, self.again_s))
        if self._without_room and time.monotonic() >= self._again_at:
            waiting, self._without_room = self._without_room, []
            for job in waiting:
                self._submit(job)

    # --- handing over -----------------------------------------------------------------------------

    def _submit(self, job: KernelJob) -> None:
        if ended := self.home.ended(job.name):  # what was lost had only its exit code to tell
            self._standings[job.name] = ended
            self.say(f"{job.name}: {_told(self._take_in(job))}")
            return
        spent = self._spent()
        self._keep(job, outcome=FleetOutcome.WAITING, reason=spent)
        if spent:
            self.say(f"{job.name}: not begun, {spent}")
        elif not self._without_room and self._has_room(job):
            self._tries = 0
        elif self._without_room or self._running or self._tries < MOST_TRIES:
            self._wait_for_room(job)
        else:
            self._keep(job, reason=_FULL)
            self.say(f"{job.name}: not begun, {_FULL}")

    def _has_room(self, job: KernelJob) -> bool:
        """Have Ray begin a job when it can, unless its object store has no room for that."""
        import ray

        refused = self._standings[job.name].refused_by
        selector = {_NODE: f"!in({','.join(refused)})"} if refused else None
        task = self._remote.options(name=f"tile-agent {job.name}", label_selector=selector)
        point = self.home.point(job.name)
        try:
            if self._source is None:
                self._source = ray.put(packed(self.home.repository, self._fleet.ref))
            past = self._past.get(job.kernel, ())
            generator = task.remote(job, self._source, self._fleet.begun_on, point, past)
        except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError):
            return False
        self._running[generator] = job
        return True

    def _wait_for_room(self, job: KernelJob) -> None:
        self._keep(job, reason=_FULL)
        if not self._without_room:
            self._tries += 1
            self._again_at = time.monotonic() + self.again_s
            if self._tries == 1:
                self.say(f"{job.name}: {_FULL}; what waits is handed over again and again")
        self._without_room.append(job)

    # --- hearing ----------------------------------------------------------------------------------

    def _listen(self, generator: Any) -> None:
        """Take the next thing that a task tells, or its end."""
        import ray

        job = self._running[generator]
        try:
            told = ray.get(next(generator))
        except StopIteration:
            del self._running[generator]
            if not self._standings[job.name].outcome.final:
                self._lost(job, "its process was ended")
        except (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError):
            del self._running[generator]
            ray.cancel(generator, recursive=False)  # what was full may be the store of this machine
            self._lost(job, "the object store of its machine was full")
        except ray.exceptions.RayTaskError as problem:
            del self._running[generator]
            self._end(job, FleetOutcome.LOST, f"a fault of tile-agent: {_cause(problem)}")
        except ray.exceptions.RayError as problem:
            del self._running[generator]
            self._lost(job, f"its machine was lost ({type(problem).__name__})")
        else:
            self._heard(generator, told)

    def _heard(self, generator: Any, told: Told) -> None:
        job = self._running[generator]
        before = self._standings[job.name]
        now = self._standings[job.name] = self.home.heard(job.name, told)
        if isinstance(told, RefusedByMachine):
            del self._running[generator]
            self._elsewhere(job, now)
        elif isinstance(told, Placed):
            doing = "goes on" if before.run_id else "begins"
            self.say(f"{job.name}: {doing} on {now.host} ({now.machine})")
        elif now.outcome.final:
            self.say(f"{job.name}: {_told(self._take_in(job))}")
        if not isinstance(told, Placed) and (spent := self._spent()):
            self._withhold(spent)

    def _withhold(self, spent: str) -> None:
        """Take back what waits for a GPU: its hours are spent."""
        import ray

        for generator, job in list(self._running.items()):
            if self._standings[job.name].outcome is FleetOutcome.WAITING:
                del self._running[generator]
                self._withheld[generator.completed()] = generator
                ray.cancel(generator, recursive=False)
                self._keep(job, reason=spent)
                self.say(f"{job.name}: not begun, {spent}")

    def _elsewhere(self, job: KernelJob, now: KernelStanding) -> None:
        """A node refused a kernel: another may take it, and this one is not asked again."""
        import ray

        others = [
            node
            for node in ray.nodes()
            if node["Alive"]
            and node["NodeID"] not in now.refused_by
            and node["Resources"].get("GPU", 0) >= self._fleet.gpus_per_run
            and node["Resources"].get("CPU", 0) >= 1
        ]
        if others:
            self.say(f"{job.name}: refused by {now.reason}; it is tried elsewhere")
            self._submit(job)
        else:
            self._end(job, FleetOutcome.REFUSED, now.reason)

    def _lost(self, job: KernelJob, why: str) -> None:
        now = self._keep(job, losses=self._standings[job.name].losses + 1, reason=why)
        if now.losses < MOST_LOSSES:
            self.say(f"{job.name}: {why}; it goes on elsewhere")
            self._submit(job)
        else:
            self._end(job, FleetOutcome.LOST, f"{why}, {now.losses} times without getting further")

    def _end(self, job: KernelJob, outcome: FleetOutcome, reason: str) -> None:
        self._keep(job, outcome=outcome, reason=reason)
        self._take_in(job)
        self.say(f"{job.name}: {reason}")

    def _cancel(self) -> None:
        """End what still runs, so that the workers leave nothing behind."""
        import ray

        for job in self._running.values():
            if not self._standings[job.name].outcome.final:
                self._keep(job, outcome=FleetOutcome.WAITING)
        for generator in self._running:
            ray.cancel(generator, recursive=False)
        # Not by what they tell next: that may wait for a task that does not end, and without limit.
        ends = [*self._withheld, *(generator.completed() for generator in self._running)]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=_CANCEL_S)

    # --- how the kernels stand --------------------------------------------------------------------

    def _spent(self) -> str:
        return spent(self._standings.values(), self._fleet.gpus_per_run, self._fleet.gpu_hours)

    def _keep(self, job: KernelJob, **changes: Any) -> KernelStanding:
        before = self._standings[job.name]
        now = replace(before, **changes)
        if now != before:
            self._standings[job.name] = self.home.write(now)
        return now

    def _take_in(self, job: KernelJob) -> KernelStanding:
        now = self._standings[job.name] = self.home.take_in(job)
        if problem := self.home.remember(job):
            self.say(f"{job.name}: nothing of it is remembered: {problem}")
        return now


def _told(now: KernelStanding) -> str:
    if now.outcome is FleetOutcome.ENDED:
        return f"ended, {now.branch or 'no gain'}; {now.held_s:.0f} s on {now.host}"
    return now.reason


def _cause(problem: Exception) -> str:
    return str(getattr(problem, "cause", problem)).strip().splitlines()[-1]
