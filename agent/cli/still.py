"""A line where a run is silent for long, for who reads its lines and no live view."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from agent.cli import output
from agent.measuring.subset import in_brief

if TYPE_CHECKING:
    from agent.measuring.pair_cost import PairTime
    from agent.options import Request
    from agent.session import Session

SILENT_S = 60.0
"""After so long without a line, one says where the run is."""
MOST_NAMED = 2
"""Tests, in a line."""
SOON_S = 10.0
"""The same of a command that answers in seconds, as a rule."""
_LOOK_S = 0.5


class Still:
    """When the last line was shown."""

    def __init__(self, silent_s: float = SILENT_S) -> None:
        """Lines are due after so long."""
        self._silent_s = silent_s
        self._shown = time.monotonic()

    def shown(self) -> None:
        """A line was."""
        self._shown = time.monotonic()

    def say(self, line: str) -> None:
        """Show a line."""
        self.shown()
        output.progress(line)

    @contextmanager
    def telling(self, tell: Callable[[], None]) -> Iterator[None]:
        """While the block lasts, have it told whenever nothing was shown for long.

        Args:
            tell: shows a line; a second thread calls it.
        """
        over = threading.Event()

        def watch() -> None:
            while not over.wait(min(_LOOK_S, self._silent_s)):
                if time.monotonic() - self._shown >= self._silent_s:
                    with suppress(Exception):  # the run does not end for want of a line
                        tell()
                    self.shown()

        thread = threading.Thread(target=watch, name="still", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def opened_aloud(request: Request, needs: tuple[str, ...] | None = None) -> Iterator[Session]:
    """`agent.session.opened`, with a line where it is silent for long: a command that is captured
    may be, and what tests import.

    Args:
        request: what the user asked for.
        needs: the kinds of tests without which nothing can be done; all when left out.
    """
    from agent.session import opened

    still, begin = Still(SOON_S), time.monotonic()
    first = "capturing, trying what was captured, and " if request.capture else ""

    def tell() -> None:
        took_s = time.monotonic() - begin
        output.progress(f"still      {first}importing what the tests import, {took_s:.0f} s")

    with ExitStack() as stack:
        with still.telling(tell):
            given = (request, still.say)
            opening = opened(*given) if needs is None else opened(*given, needs)
            session = stack.enter_context(opening)
        yield session


@contextmanager
def comparing_with_itself() -> Iterator[Callable[[PairTime], None]]:
    """While the block compares code with itself, say so; its value is told of the first pair."""
    still, begin = Still(SOON_S), time.monotonic()

    def after_first(pair: PairTime) -> None:
        still.shown()
        output.progress(
            f"a pair of processes takes about {pair.seconds:.0f} s; 5 to 8 are compared"
        )

    def tell() -> None:
        took_s = time.monotonic() - begin
        output.progress(f"still      comparing the code with itself, {took_s:.0f} s")

    with still.telling(tell):
        yield after_first


@contextmanager
def capturing(silent_s: float = SOON_S) -> Iterator[Callable[[str], None]]:
    """While the block captures, say so whenever nothing was shown for long; its value shows a line.

    Args:
        silent_s: a line is due after so long.
    """
    still, begin = Still(silent_s), time.monotonic()

    def tell() -> None:
        output.progress(
            f"still capturing, {time.monotonic() - begin:.0f} s; Ctrl-C ends the command, and is "
            "content with the calls that it made until then"
        )

    with still.telling(tell):
        yield still.say


@contextmanager
def waiting_for(what: str, silent_s: float | None = None) -> Iterator[None]:
    """While the block lasts, say what it is at whenever nothing was shown for long.

    Args:
        what: is done, as "translating".
        silent_s: a line is due after so long; `SOON_S` where it is None.
    """
    begin = time.monotonic()

    def tell() -> None:
        output.progress(f"still {what}: {time.monotonic() - begin:.0f} s until now")

    with Still(SOON_S if silent_s is None else silent_s).telling(tell):
        yield


@contextmanager
def recording_launches(
    tests: Sequence[str], timeout_s: float, silent_s: float = SOON_S
) -> Iterator[None]:
    """While the block records what tests launch, say so whenever nothing was shown for long.

    Args:
        tests: node ids of those that run, or files.
        timeout_s: after half of it no other is begun, and after it they are given up.
        silent_s: a line is due after so long.
    """
    begin = time.monotonic()

    def tell() -> None:
        if not tests:
            output.progress(f"still compiling, {time.monotonic() - begin:.0f} s")
            return
        output.progress(
            f"still running {in_brief(tests, MOST_NAMED)} to see what is launched, "
            f"{time.monotonic() - begin:.0f} s; after half of {timeout_s:g} s what was seen counts"
            "; fewer: --tests FILE::TEST"
        )

    with Still(silent_s).telling(tell):
        yield
