"""Runs a callable so that what it computes can be judged elsewhere.

Each call is made on bytes that the parent's seed chooses, in memory where no earlier result is
left, and is told with all that was seen of it: what it launched, which operators of torch it used,
which of its inputs it changed, where its results lie.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tile_agent_pytest.examining.exchange import Message, hand_out, take
from tile_agent_pytest.examining.inputs import Inputs
from tile_agent_pytest.examining.operators import called_operators
from tile_agent_pytest.examining.tensors import (
    KNOWN_BYTE,
    blocks_of,
    digest,
    distinct_bytes,
    give_back_cached,
    make_known,
    overlap,
    reachable,
    set_aside,
    spoil,
    synchronize,
    torch,
    within,
)
from tile_agent_pytest.input_sets import Turns
from tile_agent_pytest.launch_detector import LaunchDetector
from tile_agent_pytest.launch_functions import unwrapped

_Seen = TypeVar("_Seen")


class Examination:
    """One callable with what it has at hand.

    Args:
        function: called without arguments.
        detector: sees what it launches.
        kernel_name: name of the kernel's file.
        folder: for results that go through files.
        reseed: gives the random generators their seed before each call.
        rebuilt: its arguments are copies: they stay where they are, and what it writes may hold
            anything before, for a test need not fill what a function fills.
    """

    def __init__(
        self,
        function: Callable[[], Any],
        detector: LaunchDetector,
        kernel_name: str,
        folder: Path,
        reseed: Callable[[], None],
        *,
        rebuilt: bool = False,
    ) -> None:
        self._function = function
        self._detector = detector
        self._folder = folder
        self._reseed = reseed
        self._held: Any = None
        self._holds = False
        self._is_captured = False
        self._turns: Turns | None = None
        self._lacks_memory = False
        self.calls = 0
        """How often it was called by a sampler."""
        self._results: dict[str, Any] = {}
        self._result_bytes: list[tuple[Any, int]] = []
        """Device and bytes of each result that lies in memory of its own."""
        self._earlier: tuple[dict[str, Any], list[tuple[int, int]]] = ({}, [])
        self._written: tuple[str, ...] = ()
        self._rebuilt = rebuilt
        self.inputs = Inputs(reachable(function, kernel_name), may_move=not rebuilt)

    def call(self) -> Any:
        """What a sampler times: the callable, whose result is kept where it was asked for."""
        self.calls += 1
        if self._holds:
            self._held = None  # its memory is there for the next result, as where nobody holds it
        result = self._function()
        if self._holds:
            self._held = result
        return result

    def first(self) -> int:
        """Call it for the first time and see what it writes. Returns how much it launched.

        The bytes of all tensors are kept meanwhile: what it writes cannot be computed back.
        """
        inputs = self.inputs
        before = self._fitting(self._copied)
        if before is None:
            inputs.keep_saved(())
        returned = self._fitting(self._watched)
        if returned is None:
            before = None  # it may fit, but not beside the copies
            inputs.keep_saved(())
            torch().cuda.empty_cache()
            self._watched()
        launched = len(self._detector.launches)
        if before is not None and returned is not None:
            written = self._changed_from(before)
            if self._rebuilt or returned - written:
                written |= self._written_on_other_bytes()
            if self._rebuilt:
                inputs.make_up(written)
            self._written = tuple(name for name in inputs.tensors if name in written)
            inputs.keep_saved(self._written)
        give_back_cached()
        return launched

    def _watched(self) -> set[str]:
        """Call it; returns the names of inputs in whose memory it returns something."""
        with self._detector.watching():
            results = within(self._function(), "result")
        synchronize()
        every = self.inputs.tensors.items()
        returned = {n for n, tensor in every if any(overlap(tensor, r) for r in results.values())}
        self._result_bytes = blocks_of(
            result
            for result in results.values()
            if not any(overlap(tensor, result) for _, tensor in every)
        )
        return returned

    def _written_on_other_bytes(self) -> set[str]:
        """What a second call writes: the first may have found its own result, or turned by 0."""
        self.inputs.replace()
        before = {name: digest(tensor) for name, tensor in self.inputs.tensors.items()}
        self._function()
        synchronize()
        written = self._changed_from(before)
        self.inputs.restore()
        return written

    def _changed_from(self, before: Mapping[str, tuple[int, int]]) -> set[str]:
        return {n for n, tensor in self.inputs.tensors.items() if digest(tensor) != before[n]}

    def examine(self, request: Mapping[str, Any]) -> Message:
        """Call it once on the bytes of a seed and say what was seen.

        `seed` may be null: then the bytes are the test's own. `poison` names written tensors whose
        bytes are not read. `jitter`: the last bits of the inputs are those of a draw. `special`:
        there are rows of special values. `idle`: nothing is launched; what its result owes to the
        kernel is missing then, whatever lay in its memory. `fill`: the byte that new memory holds.
        `unseen`: as anybody would call it, with nothing in place of what launches, by code that
        drops the result; only the results are told.
        """
        seen = self._fitting(
            lambda: self._unseen(request) if request.get("unseen") else self._examined(request)
        )
        return seen or {"lacks_memory": True, "results": []}

    def _unseen(self, request: Mapping[str, Any]) -> Message:
        self._fresh(request["seed"], request.get("poison", ()))
        returned: list[Any] = []
        make_known(self._result_bytes)
        with unwrapped():
            # By its code this frame drops the result, which `extend` has kept by then.
            returned.extend(map(operator.call, (self._function,)))
        synchronize()
        results = self._results_of(returned[0])
        self._remember(results)
        return {"results": hand_out(results, self._folder)}

    def _remember(self, results: dict[str, Any]) -> None:
        self._keep(results)
        self._earlier = (results, [digest(tensor) for tensor in results.values()])

    def _keep(self, results: dict[str, Any]) -> None:
        give_back_cached()
        self._results = results
        self._result_bytes = blocks_of(t for n, t in results.items() if n not in self._written)

    def _examined(self, request: Mapping[str, Any]) -> Message:
        inputs = self.inputs
        self._fresh(request["seed"], request.get("poison", ()))
        if draw := request.get("jitter"):
            inputs.jitter(draw)
        if request.get("special"):
            inputs.specialize(request["seed"])
        idle, fill = bool(request.get("idle")), request.get("fill")
        if idle and fill is None:
            fill = KNOWN_BYTE
        before = {name: digest(tensor) for name, tensor in inputs.tensors.items()}
        operators: Counter[str] = Counter()
        problem = ""
        result: Any = None
        make_known(self._result_bytes)  # at last: a digest leaves its own bytes
        with (
            self._detector.watching(suppress=idle),
            called_operators(operators, fill),
        ):
            try:
                result = self._function()
            except Exception as error:
                if not idle:
                    raise
                problem = type(error).__name__
        synchronize()
        launches = list(self._detector.launches)
        after = {name: digest(tensor) for name, tensor in inputs.tensors.items()}
        results = self._results_of(result)
        message: Message = {
            "inputs": {name: [*before[name]] for name in before},
            "changed": [n for n in after if after[n] != before[n] and n not in self._written],
            "written": list(self._written),
            "launches": launches,
            "streams": len(self._detector.streams),
            "launching_threads": len(self._detector.threads),
            "operators": dict(operators),
            "aliases": self._aliases(results),
            "reused": self._reused(),
            "kinds": {n: type(t).__name__ for n, t in results.items()},
            "threads": len(sys._current_frames()),  # autograd's that wait, run no Python code
            "problem": problem,
            "written_bytes": self._written_bytes(results, request.get("poison", ())),
        }
        self._remember(results)
        return message | {"results": hand_out(results, self._folder)}

    def given(self, names: Iterable[str]) -> Message:
        """Hand out inputs as the test made them."""
        own = self._fitting(self._given_back)
        every = self.inputs.tensors
        tensors = {name: every[name] for name in names if own and name in every}
        return {"lacks_memory": not own, "results": hand_out(tensors, self._folder)}

    def take(self, contents: Iterable[Message]) -> None:
        """Have another process's inputs for those that the test made.

        Args:
            contents: as that has handed them out, by the names that they have here.
        """
        if self._fitting(self._given_back):
            for described in contents:
                self.inputs.take(described["name"], take(described))
            synchronize()

    def pick(self, seed: int, sample: Callable[[], list[float]]) -> Message:
        """Have a few calls timed on fresh bytes and keep the last one's result; where calls take
        turns with several sets of inputs, the last one's on a set that the seed draws."""
        if self._turns:
            self._held = self._turns.look_at(seed)
        self._fitting(lambda: self._fresh(seed, ()))
        if self._turns:
            self._turns.spread()
        self._fitting(lambda: make_known(self._result_bytes))
        with self._detector.watching(), self.holding():
            samples_ms = sample()
        return {"launches": len(self._detector.launches), "samples_ms": samples_ms}

    def show(self) -> Message:
        """Hand out what the picked call computed."""
        if self._lacks_memory:
            return {"lacks_memory": True, "results": []}
        synchronize()
        self._keep(self._results_of(self._held))
        return {"results": hand_out(self._results, self._folder)}

    def rest(self) -> None:
        """Give up the picked call's result; the inputs are the test's own, where they were.

        What a call takes depends on its bytes: on an H200 a softmax divides more slowly where a
        part of a row is so large that the rest underflows, and takes 0.54 to 0.60 ms for 0.52.
        They are there when it returns: the other arm is timed next, on the same GPU.
        """
        synchronize()
        self._results = {}
        if not self._is_captured:
            self._held = None
        self._fitting(self._given_back)
        if self._turns:
            self._turns.spread()
        synchronize()

    def _given_back(self) -> bool:
        self.inputs.move_back()
        with set_aside():
            self.inputs.restore()
        return True

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Keep what the last call in the block returns."""
        self._holds = True
        try:
            yield
        finally:
            self._holds = False

    def captured(self, turns: Turns | None = None) -> None:
        """A graph was captured: its tensors stay where they are, its result is the last one.

        Args:
            turns: what its calls take turns with, where they do.
        """
        self.inputs.may_move = False
        self._is_captured = True
        self._turns = turns

    def close(self) -> None:
        """Give the test its bytes back; first the memory of results, which that may take."""
        self._held = None
        self._results = {}
        self._earlier = ({}, [])
        give_back_cached()
        self.inputs.move_back()
        self.inputs.restore()
        if self._turns:
            self._turns.spread()
            self._turns.end()
            self._turns = None
        give_back_cached()

    def _fitting(self, do: Callable[[], _Seen]) -> _Seen | None:
        """What it returns; None where copies do not fit beside the test, which goes on unseen."""
        if self._lacks_memory:
            return None
        try:
            return do()
        except torch().OutOfMemoryError:
            self._lacks_memory = True
        self._results, self._earlier = {}, ({}, [])
        torch().cuda.empty_cache()  # out of the block: an exception holds what its frames held
        return None

    def _copied(self) -> dict[str, tuple[int, int]]:
        """Keep the bytes of every tensor; returns their digests."""
        self.inputs.save(self.inputs.tensors)
        return {name: digest(tensor) for name, tensor in self.inputs.tensors.items()}

    def _fresh(self, seed: int | None, poison: Iterable[str]) -> None:
        """New bytes in the inputs, none of an earlier result where a graph writes again."""
        self._results = {}
        if not self._is_captured:
            self._held = None
        with set_aside():
            if seed is None:
                self.inputs.restore()
            else:
                self.inputs.refresh(seed)
        for name in poison:
            if name in self._written:
                spoil(self.inputs.tensors[name])
        for result in within(self._held, "result").values():  # of a graph: it is written again
            if not any(overlap(result, tensor) for tensor in self.inputs.tensors.values()):
                spoil(result)
        self._reseed()

    def _results_of(self, returned: Any) -> dict[str, Any]:
        """What was returned, what was written, and the gradients."""
        tensors = self.inputs.tensors
        gradients = {f"{n}.grad": t.grad for n, t in tensors.items() if t.grad is not None}
        written = {name: tensors[name] for name in self._written}
        return {**within(returned, "result"), **written, **gradients}

    def _aliases(self, results: Mapping[str, Any]) -> list[list[str]]:
        """Results that lie in the memory of an input or of another result."""
        found = []
        others = dict(self.inputs.tensors)
        for name, result in results.items():
            for other, tensor in others.items():
                if result is not tensor and name != other and overlap(result, tensor):
                    found.append([name, other])
            others[name] = result
        return found

    def _reused(self) -> list[str]:
        """Results of the call before this one that are not what they were."""
        results, digests = self._earlier
        return [
            name
            for (name, tensor), known in zip(results.items(), digests, strict=True)
            if name.startswith("result") and digest(tensor) != known
        ]

    def _written_bytes(self, results: Mapping[str, Any], overwritten: Iterable[str]) -> int:
        """What the call wrote at the least: results in memory of their own, and whole arguments."""
        inputs, (earlier, _) = self.inputs.tensors, self._earlier
        known = [*inputs.values(), *earlier.values()]
        counted = [inputs[name] for name in overwritten if name in self._written]
        for result in results.values():
            if not any(overlap(result, other) for other in (*known, *counted)):
                counted.append(result)
        return sum(map(distinct_bytes, counted))
