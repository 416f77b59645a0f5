"""How far tests have come that may take minutes, told on stderr while they run."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from agent.cli import output
from agent.errors import Interrupted

EVERY_S = 10.0


class DoneTests:
    """Tells how many tests run, then every few seconds how many are done, if another one began.

    Use it in a `with` around what runs them. An interruption of the block says how far it came:
    what the tests found until then is kept nowhere.
    """

    def __init__(self, total: int, every_s: float = EVERY_S) -> None:
        self._total = total
        self._every_s = every_s
        self._now: tuple[int, str] | None = None
        self._over = threading.Event()
        self._telling = threading.Thread(target=self._tell, daemon=True)

    def begins(self, done: int, nodeid: str) -> None:
        """A test begins, after so many that are done."""
        self._now = (done, nodeid)

    def _tell(self) -> None:
        told = None
        while not self._over.wait(self._every_s):
            now = self._now
            if now is not None and now != told:
                told = now
                output.progress(f"{now[0]} of {self._total} tests done, now {now[1]}")

    def __enter__(self) -> Self:
        output.progress(f"running {self._total} test{'s' if self._total != 1 else ''}")
        self._telling.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._telling.join()
        if isinstance(value, Interrupted) and not str(value):
            done = "" if self._now is None else f" with {self._now[0]} of {self._total} tests done"
            raise Interrupted(
                f"interrupted{done}: nothing is kept, and the next time all of them run"
            ) from None
