"""The parent's side of the process that compares results: it imports nothing of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.errors import WorkerDied
from agent.harness.processes.fork_server import ForkServer
from agent.harness.processes.results import ExaminedCall, understood
from agent.measuring.differences import ResultDifference


class NoRoom(Exception):
    """What is to be compared does not fit into the device's memory beside the test."""


class Comparer:
    """Holds results of one call and tells how others differ from them."""

    def __init__(self, server: ForkServer, log: Path) -> None:
        """Start it; its output goes to a log."""
        self.has_ended = False
        """An answer was missing: nothing can be asked of it any more."""
        self._worker = server.fork({"cwd": "/", "log": str(log), "env": {}, "compares": True})

    def keep(self, call: ExaminedCall, deadline: float) -> None:
        """Copy the results of a call: what comes next is compared with them.

        Raises:
            NoRoom: the call, or the copies, lack memory.
        """
        if call.lacks_memory:
            raise NoRoom
        answer = self._ask({"op": "keep", "results": list(call.results)}, deadline)
        if not answer.get("fits"):
            raise NoRoom

    def compare(self, call: ExaminedCall, deadline: float) -> tuple[ResultDifference, ...]:
        """How the results of a call differ from those kept, one by one.

        Raises:
            NoRoom: the call lacked memory.
            WorkerDied: the process could not do it.
            WorkerTimedOut: it took too long.
        """
        if call.lacks_memory:
            raise NoRoom
        answer = self._ask({"op": "compare", "results": list(call.results)}, deadline)
        with understood():
            return tuple(_difference(found) for found in answer["found"])

    def filling_ms(self, count: int, method: str, deadline: float) -> float:
        """How long the device takes to write so many bytes and nothing else; 0 without room.

        Args:
            count: of the bytes.
            method: name of the sampler that times it.
            deadline: for the answer.
        """
        answer = self._ask({"op": "fill", "count": count, "method": method}, deadline)
        with understood():
            return float(answer["ms"])

    def has_room(self, deadline: float) -> bool:
        """Whether at least half of the device's memory is free, whoever holds the rest."""
        answer = self._ask({"op": "room"}, deadline)
        with understood():
            return bool(answer["room"])

    def forget(self, deadline: float) -> None:
        """Give back the memory of what is kept."""
        self._ask({"op": "forget"}, deadline)

    def close(self) -> None:
        """End it."""
        self._worker.kill()

    def _ask(self, request: dict[str, Any], deadline: float) -> dict[str, Any]:
        try:
            self._worker.send(request)
            answer = self._worker.receive(deadline)
        except BaseException:  # an interruption, too: the next request would get this one's answer
            self.has_ended = True
            self.close()
            raise
        with understood():
            if answer["event"] != request["op"]:
                raise WorkerDied(f"the comparing process answered {answer['event']!r}")
        return answer


def _difference(found: dict[str, Any]) -> ResultDifference:
    name, dtype = str(found["name"]), str(found["dtype"])
    if "problem" in found:
        return ResultDifference(name, dtype, problem=str(found["problem"]))
    return ResultDifference(
        name,
        dtype,
        elements=int(found["elements"]),
        unequal=int(found["unequal"]),
        misplaced=int(found["misplaced"]),
        rms_ulps=float(found["rms_ulps"]),
        max_ulps=float(found["max_ulps"]),
    )
