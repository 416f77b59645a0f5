"""Orders to a worker that waits at a callable of a test; what it answers is checked, not believed.

The worker's side is `tile_agent_pytest.stepper`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agent.errors import CallFailed, WorkerDied, WorkerError
from agent.harness.processes.fork_server import WorkerProcess
from agent.harness.processes.results import (
    ExaminedCall,
    PreparedTiming,
    TimedBlock,
    read_call,
    read_latencies,
    read_pass,
    understood,
)
from tile_agent_pytest.examining.calls import ArgumentLayout
from tile_agent_pytest.process_tree import ProcessorTimes


@dataclass(frozen=True)
class WarmLaunch:
    """A launch behind others, by the parent's clock."""

    ms: float
    keeps_host: bool
    """By the worker's word a call keeps the host, so that the GPU may have to wait for it."""


class CallOrders:
    """What can be asked of the callable at which a worker waits.

    All of it raises `WorkerTimedOut` when the deadline passes, `WorkerDied` when the worker ends,
    and `CallFailed` where the callable raises and the worker goes on.
    """

    _worker: WorkerProcess

    def order_first(self, *, chooses: bool = True) -> None:
        """Have the callable called for the first time, which compiles it; `await_first` waits.

        Args:
            chooses: whether a tuner may choose then; else it compiles, or is put off, and
                chooses when the callable is prepared, because others are at work beside it.
        """
        self._worker.send({"op": "first", "chooses": chooses})

    def await_first(self, deadline: float) -> None:
        """Return when the first call is over."""
        self._answer("first", deadline)

    def prepare(
        self, method: str | None, deadline: float, processor: int | None = None
    ) -> PreparedTiming | str:
        """Have the callable compiled and its sampler chosen; the error's text if that fails.

        Args:
            method: the name of a sampler's class; chosen by the worker if not given.
            deadline: for the answer.
            processor: where it is timed without a GPU; where it runs already if not given.
        """
        self._worker.send({"op": "prepare", "method": method, "processor": processor})
        answer = self._worker.receive(deadline)
        with understood():
            if answer["event"] != "prepared":
                raise WorkerDied(_early_end(answer))
            if "error" in answer:
                return str(answer["error"])
            (estimate_ms,) = read_latencies([answer["estimate_ms"]], 1)
            return PreparedTiming(
                str(answer["method"]),
                str(answer["label"]),
                estimate_ms,
                bool(answer["launched"]),
                int(answer["launches_per_call"]),
                int(answer["skipped_launches"]),
                bool(answer["calls"]),
                int(answer["children"]),
                None if answer["processor"] is None else int(answer["processor"]),
            )

    def block(self, count: int, deadline: float) -> TimedBlock:
        """So many samples, in ms."""
        return _timed(self._ask({"op": "block", "count": count}, deadline), count)

    def processor_times(self) -> ProcessorTimes:
        """How long the worker has been on a processor and has waited for one, as the system saw."""
        return self._worker.processor_times()

    def pick(self, seed: int, calls: int, deadline: float) -> TimedBlock:
        """So many timed calls on the bytes of a seed; the last one's result is kept."""
        return _timed(self._ask({"op": "pick", "seed": seed, "count": calls}, deadline), calls)

    def show(self, deadline: float) -> ExaminedCall:
        """Where the results of the picked call lie."""
        answer = self._ask({"op": "show"}, deadline)
        with understood():
            return read_call(answer)

    def rest(self, deadline: float) -> None:
        """Give the picked call's result up: the next calls are made on the test's own bytes."""
        self._ask({"op": "rest"}, deadline)

    def examine(
        self,
        seed: int | None,
        deadline: float,
        *,
        poison: Sequence[str] = (),
        jitter: int = 0,
        special: bool = False,
        idle: bool = False,
        fill: int | None = None,
        unseen: bool = False,
    ) -> ExaminedCall:
        """One call that is not timed, on the bytes of a seed or, without one, of the test.

        Args:
            seed: says how the inputs differ from the test's.
            deadline: for the answer.
            poison: written tensors whose bytes are spoilt before.
            jitter: with other last bits in the inputs of type float32, by this draw.
            special: with rows of zeros, of tiny and of large values.
            idle: launch nothing.
            fill: byte that memory holds before anything is written to it; anything if not given.
            unseen: as anybody would call it: nothing is watched, and only results are told.
        """
        request: dict[str, object] = {
            "op": "examine",
            "seed": seed,
            "poison": list(poison),
            "jitter": jitter,
            "special": special,
            "idle": idle,
            "fill": fill,
            "unseen": unseen,
        }
        answer = self._ask(request, deadline)
        with understood():
            return read_call(answer)

    def given(self, names: Sequence[str], deadline: float) -> ExaminedCall:
        """Where inputs of the callable lie, as the test made them."""
        answer = self._ask({"op": "given", "names": list(names)}, deadline)
        with understood():
            return read_call(answer)

    def take(self, inputs: ExaminedCall, deadline: float) -> None:
        """Have inputs that another worker has given, in place of those that the test made."""
        self._ask({"op": "take", "contents": list(inputs.results)}, deadline)

    def compile_first(self, calls: Sequence[tuple[int, ArgumentLayout]], deadline: float) -> None:
        """Have what calls of the last recorded pass launch in layouts compiled side by side.

        Args:
            calls: the place of each among those that the worker keeps, and its layout.
            deadline: for all of it.
        """
        self._worker.send({"compile": [_in_layout(call, layout) for call, layout in calls]})
        if (answer := self._worker.receive(deadline)).get("event") != "compiled":
            raise WorkerDied(_early_end(answer))

    @contextmanager
    def laid_out(self, call: int, layout: ArgumentLayout, deadline: float) -> Iterator[None]:
        """Wait before a call of the last recorded pass, in another layout, for `examine`.

        Args:
            call: its place among those that the worker keeps.
            layout: how its arguments differ from those of the test.
            deadline: for whatever the worker has to do.

        Raises:
            CallFailed: the call raised; the worker goes on.
            WorkerDied: the worker ended.
        """
        self._worker.send(_in_layout(call, layout))
        answer = self._worker.receive(deadline)
        if answer.get("event") != "at":
            raise WorkerDied(_early_end(answer))
        try:
            yield
        except CallFailed:
            self._await_end(deadline)
            raise
        except WorkerError:
            raise
        except BaseException:
            self.go()
            self._await_end(deadline)
            raise
        self.go()
        self._await_end(deadline)

    def _await_end(self, deadline: float) -> None:
        while (answer := self._worker.receive(deadline)).get("event") != "called":
            if answer.get("event") == "failed":
                raise WorkerDied(_early_end(answer))

    def burst(self, count: int, deadline: float) -> bool:
        """So many launches; it returns when they are over.

        Returns:
            Whether a call keeps the host for so long that the GPU may wait for it, by the worker's
            word.
        """
        answer = self._ask({"op": "burst", "count": count}, deadline)
        with understood():
            return bool(answer["keeps_host"])

    def warm_launch(self, size: int, deadline: float) -> WarmLaunch:
        """The time of a launch by our own clock: the difference between two bursts and one."""

        def burst_ms(launches: int) -> float:
            begin = time.perf_counter()
            self.burst(launches, deadline)
            return (time.perf_counter() - begin) * 1e3

        # Memory that was given up meanwhile is the caller's again after a first one.
        keeps_host = self.burst(1, deadline)
        return WarmLaunch(max(0.0, burst_ms(2 * size) - burst_ms(size)) / size, keeps_host)

    def go(self) -> None:
        """Let the test go on."""
        self._worker.send({"op": "go"})

    def _ask(self, request: dict[str, object], deadline: float) -> dict[str, Any]:
        self._worker.send(request)
        return self._answer(request["op"], deadline)

    def _answer(self, op: object, deadline: float) -> dict[str, Any]:
        answer = self._worker.receive(deadline)
        with understood():
            if answer["event"] == "failed":
                raise CallFailed(_early_end(answer))
            if answer["event"] != op:
                raise WorkerDied(_early_end(answer))
        return answer


def _timed(answer: dict[str, Any], count: int) -> TimedBlock:
    with understood():
        samples_ms = read_latencies(answer["samples_ms"], count)
        return TimedBlock(samples_ms, int(answer["launches"]), int(answer["children"]))


def _in_layout(call: int, layout: ArgumentLayout) -> dict[str, object]:
    """A recorded call in another layout, as a worker is told of it."""
    return {
        "call": call,
        "sizes": [list(pair) for pair in layout.sizes],
        "pitch": layout.pitch,
        "offset": layout.offset,
        "spread": layout.spread,
    }


def _early_end(message: dict[str, Any]) -> str:
    """A test ended where it should have waited: its callable failed."""
    if message["event"] == "failed":
        return f"{message['nodeid']}: {message['text']}"
    if message["event"] == "ran":
        bad = read_pass(message).not_passed()
        if bad:
            return f"{bad[0].nodeid}: {bad[0].headline}"
    return f"the worker answered {message['event']!r} out of turn"
