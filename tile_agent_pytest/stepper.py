"""One callable of a test, measured and examined on the orders of the parent.

    first (chooses)              -> first, once the callable was called, which compiles it; where it
                                    does not choose, a tuner puts its choice off to `prepare`
    prepare (method, processor)  -> prepared (method, label, estimate_ms, launched, processor,
                                    launches_per_call, skipped_launches), or its error; method
                                    and processor may be null. An empty method: it launches no
                                    kernel of the file, and is not measured
    block (count)                -> block (samples_ms, launches, children)
    burst (count)                -> burst (keeps_host), once the work is over; the parent times it
    pick (seed, count)           -> pick, answered as block is: timed calls on fresh bytes
    show                         -> show (results): what the last of them computed
    rest                         -> rest: that is given up, and the inputs are the test's own
    examine (seed, poison, idle) -> examine: see `Examination.examine`
    given (names)                -> given (results): inputs, as the test made them
    take (contents)              -> take: another process's, in place of these
    go                              the test goes on, with its own bytes

Where the callable raises, the answer is `failed` and the test fails with it.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from time import perf_counter
from typing import Any

from tile_agent_pytest import missing_gpu
from tile_agent_pytest.bench import Sampler, Timing, has_gpu, open_sampler
from tile_agent_pytest.examining.examination import Examination
from tile_agent_pytest.examining.tensors import synchronize
from tile_agent_pytest.launch_detector import LaunchDetector
from tile_agent_pytest.one_processor import OneProcessor
from tile_agent_pytest.process_tree import running_children
from tile_agent_pytest.sampling import thinned
from tile_agent_pytest.tuning_effort import NotNow
from tile_agent_pytest.wire import Channel, Message


class Stepper:
    """Serves one callable until the parent says go.

    Args:
        nodeid: of the test.
        config: which of its timings.
        function: what is timed.
        channel: to the parent.
        detector: sees launches of the kernel's file.
        kernel_name: name of that file.
        folder: for results that the parent has compared.
        rebuilt: its arguments are copies of a test's; see `Examination`.
        through: what the test times it with, where that is no `tile_bench`. It may launch no kernel
            of the file then, and its samples may mean something to the test.
        undecided: makes a block in which a tuner compiles its configs and puts its choice off.
    """

    def __init__(
        self,
        nodeid: str,
        config: str,
        function: Callable[[], Any],
        channel: Channel,
        detector: LaunchDetector,
        kernel_name: str,
        folder: Path,
        *,
        rebuilt: bool = False,
        through: str = "",
        undecided: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._nodeid = nodeid
        self._config = config
        self._function = function
        self._through = through
        self._channel = channel
        self._detector = detector
        self._sampler: Sampler | None = None
        self._samples_ms: list[float] = []
        self._launched: int | None = None
        self._undecided = undecided
        self._chose = True
        self._first_ms = 0.0
        self._processor = OneProcessor()
        self._examination = Examination(
            function,
            detector,
            kernel_name,
            folder,
            lambda: seed_generators(nodeid),
            rebuilt=rebuilt,
        )

    def serve(self) -> Timing:
        """Obey until the parent says go.

        What was asked differs between the arms, and some callables draw random numbers: from here
        on both draw the same again, so that a test which times several makes the same inputs.
        """
        try:
            while True:
                request = self._channel.receive()
                answer = self._answer(request)
                if answer is None:
                    self._examination.close()
                    timing = self._timing()
                    seed_generators(self._nodeid)
                    return timing
                self._channel.send({"event": request["op"]} | answer)
        finally:
            self._processor.leave()

    def _timing(self) -> Timing:
        """What the test is told; where nothing was timed, how long one call took.

        A test that times by itself is left with what its callable computed, and may look at it.
        """
        last_ms = self._last_ms() if self._through else 0.0
        if self._sampler is None or not self._samples_ms:
            if self._through:
                return Timing(self._config, (last_ms,), "one call")
            if self._launched is None:
                self._first_ms = self._one_call_ms()
            return Timing(self._config, (max(self._first_ms, 1e-6),), "its first call")
        return Timing(self._config, tuple(thinned(self._samples_ms)), self._sampler.label)

    def _last_ms(self) -> float:
        """A call on the test's own bytes, after the first one where that has compiled it."""
        if self._launched is None:
            self._function()
        return max(self._one_call_ms(), 1e-6)

    def _one_call_ms(self) -> float:
        begin = perf_counter()
        self._function()
        synchronize()
        return (perf_counter() - begin) * 1e3

    def _answer(self, request: Message) -> Message | None:
        examination = self._examination
        match request["op"]:
            case "first":
                self._first(chooses=request["chooses"])
                return {}
            case "prepare":
                return {"event": "prepared"} | self._prepare(
                    request["method"], request["processor"]
                )
            case "examine":
                self._first()
                return examination.examine(request)
            case "block" if self._sampler:
                with self._detector.watching():
                    samples_ms = self._sampler.sample(request["count"])
                self._samples_ms += samples_ms
                return {
                    "samples_ms": samples_ms,
                    "launches": len(self._detector.launches),
                    "children": len(running_children(os.getpid())),
                }
            case "burst" if self._sampler:
                self._sampler.burst(request["count"])
                return {"keeps_host": self._sampler.keeps_host}
            case "pick" if sampler := self._sampler:
                count = request["count"]
                picked = examination.pick(request["seed"], lambda: sampler.sample(count))
                return picked | {"children": len(running_children(os.getpid()))}
            case "show":
                return examination.show()
            case "rest":
                examination.rest()
                return {}
            case "given":
                self._first()
                return examination.given(request["names"])
            case "take":
                examination.take(request["contents"])
                return {}
        return None

    def _first(self, *, chooses: bool = True) -> int:
        """How much the first call of all launched; a tuner chooses in it, or only compiles.

        One that can do neither now ends the call, which is made again where it may choose.
        """
        if self._launched is None:
            begin = perf_counter()
            try:
                with contextlib.nullcontext() if chooses else self._undecided():
                    self._launched = self._examination.first()
            except NotNow:
                return 0
            self._first_ms = (perf_counter() - begin) * 1e3
            self._chose = chooses
        return self._launched

    def _prepare(self, method: str | None, processor: int | None) -> Message:
        examination = self._examination
        stays = None if has_gpu() else self._processor.stay(processor)
        try:
            launched = self._first()
            if self._through and not launched:
                return self._aside()
            if not self._chose:
                examination.call()
                self._chose = True
            with self._detector.watching():
                examination.call()
            per_call = len(self._detector.launches)
            examination.calls = 0
            with self._detector.watching(), examination.holding():
                self._sampler, estimate_ms = open_sampler(
                    examination.call, method, examination.inputs.to_be_moved()
                )
        except RuntimeError as problem:
            if method is None and not self._through:
                raise
            return {"error": str(problem)}
        if self._sampler.calls:
            examination.rest()
        else:
            examination.captured(self._sampler.turns)
        return {
            "method": self._sampler.method,
            "label": self._sampler.label,
            "estimate_ms": estimate_ms,
            "launched": launched > 0,
            "processor": stays,
            "launches_per_call": per_call,
            "calls": self._sampler.calls,
            "children": len(running_children(os.getpid())),
            "skipped_launches": examination.calls * per_call - len(self._detector.launches),
        }

    def _aside(self) -> Message:
        """What it says of a callable that is no timing of the kernel: a reference, as a rule."""
        return {
            "method": "",
            "label": "",
            "estimate_ms": max(self._first_ms, 1e-6),
            "launched": False,
            "processor": None,
            "launches_per_call": 0,
            "calls": False,
            "children": len(running_children(os.getpid())),
            "skipped_launches": 0,
        }


def seed_generators(nodeid: str) -> None:
    """Give both arms of a comparison the same random bytes: a product's power depends on them."""
    seed = zlib.crc32(nodeid.encode())
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    if torch := sys.modules.get("torch"):
        # Without a GPU: else each kind of device notes where it was called from, for its first use.
        cpu_alone = missing_gpu.stands_in()
        (torch.default_generator if cpu_alone else torch).manual_seed(seed)
