"""Waiting for a coroutine so that a signal ends the waiting at once.

tile-agent's signal handlers raise in the main thread. An event loop there would swallow what is
raised within one of its callbacks; a loop on a thread of its own is never interrupted.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")
GRACE_S = 2.0
"""What a cancelled coroutine may take to close its connections."""


def wait_for(make: Callable[[], Coroutine[Any, Any, Result]], timeout_s: float) -> Result:
    """Run a coroutine to its end.

    Whatever ends the waiting, the coroutine is cancelled; the thread is a daemon, so that one that
    does not end holds up nobody.

    Raises:
        TimeoutError: it has not ended after `timeout_s`.
    """
    outcome: Future[Result] = Future()
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Result]]] = Future()

    async def body() -> Result:
        task = asyncio.current_task()
        assert task is not None
        running.set_result((asyncio.get_running_loop(), task))
        return await make()

    def work() -> None:
        try:
            with asyncio.Runner() as runner:
                result = runner.run(body())
        except BaseException as problem:
            outcome.set_exception(problem)
        else:
            outcome.set_result(result)

    thread = threading.Thread(target=work, name="model", daemon=True)
    thread.start()
    try:
        return outcome.result(timeout_s)
    finally:
        if not outcome.done():
            with suppress(RuntimeError, TimeoutError):  # it has ended, or never begun
                loop, task = running.result(GRACE_S)
                loop.call_soon_threadsafe(task.cancel)
        thread.join(GRACE_S)
