"""One command of tile-agent as a child process: its JSON, its progress, and how it is cancelled."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process

from agent.lock import CLIENT
from agent.settings import as_words

EXIT_TIMEOUT_S = 30.0
"""A command that was asked to end and has not ended by then is killed."""
PULSE_S = 15.0
"""Many clients give a call up after a minute without progress."""
_CHILD = Path(__file__).with_name("child.py")
_TAIL_LINES = 20

Value = str | int | float | bool | Sequence[str] | None
Report = Callable[[str], Awaitable[None]]
"""Takes a line of progress."""


def command_line(*words: str, options: Mapping[str, Value], names: Sequence[str] = ()) -> list[str]:
    """The arguments of a command: `words`, its options, then `names` as they are.

    An option is left out when its value is None, False or empty, stands alone when it is True, and
    is repeated for a list. None of the values can be taken for an option.
    """
    given: list[str] = []
    for name, value in options.items():
        if value is not False:
            given += as_words(f"--{name.replace('_', '-')}", value)
    return [*words, "--json", *given, *(["--", *names] if names else [])]


async def call(
    arguments: Sequence[str],
    folder: Path,
    report: Report,
    *,
    pulse: Report | None = None,
    client: str = "",
) -> dict[str, Any]:
    """Run `tile-agent ARGUMENTS` in a folder and wait for its answer.

    What goes wrong is an answer too: `error` says what and how to mend it, in one line, and
    `exit_code` is the command's.

    When the caller is cancelled, the command is interrupted as by Ctrl-C; a run goes on where it
    was with the next command.

    Args:
        arguments: as `command_line` makes them.
        folder: where a relative path among the arguments starts.
        report: called with every line that the command writes to stderr.
        pulse: called with the last one again while it is silent; `report` where left out.
        client: for whom it is run; others that meet it are told.
    """
    pulse = pulse or report
    # -P: a folder `agent` of the user's, where the command runs, must not be taken for this one.
    # A session of its own: a signal for the server's group reaches it once, from the server.
    process = await anyio.open_process(
        [sys.executable, "-P", str(_CHILD), *arguments],
        cwd=folder,
        env=os.environ | ({CLIENT: client} if client else {}),
        stdin=None,  # the null device: the server reads its client through another descriptor
        start_new_session=True,
    )
    assert process.stdout and process.stderr
    last: deque[str] = deque(maxlen=_TAIL_LINES)

    async def follow(stream: ByteReceiveStream) -> None:
        async for line in _lines(stream):
            last.append(line)
            await report(line)

    async def pulses() -> None:
        begin = anyio.current_time()
        while True:
            await anyio.sleep(PULSE_S)
            said = last[-1] if last else "working"
            await pulse(f"{said} ({anyio.current_time() - begin:.0f} s so far)")

    async with process:
        try:
            async with anyio.create_task_group() as beating:
                beating.start_soon(pulses)
                async with anyio.create_task_group() as group:
                    group.start_soon(follow, process.stderr)
                    printed = b"".join([chunk async for chunk in process.stdout])
                    code = await process.wait()
                beating.cancel_scope.cancel()
        finally:
            if process.returncode is None:
                await _interrupt(process)
    return _parsed(printed) or _without_answer(arguments, code, last)


async def _interrupt(process: Process) -> None:
    """End a command cleanly if it can; its pipes are emptied meanwhile, lest it block on one."""
    assert process.stdout and process.stderr
    with anyio.move_on_after(EXIT_TIMEOUT_S, shield=True):
        process.send_signal(signal.SIGINT)
        async with anyio.create_task_group() as group:
            group.start_soon(_drain, process.stdout)
            group.start_soon(_drain, process.stderr)
        await process.wait()
    if process.returncode is None:
        process.kill()


async def _drain(stream: ByteReceiveStream) -> None:
    async for _ in stream:
        pass


async def _lines(stream: ByteReceiveStream) -> AsyncIterator[str]:
    rest = b""
    async for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _parsed(printed: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(printed)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _without_answer(arguments: Sequence[str], code: int, last: Sequence[str]) -> dict[str, Any]:
    """A command that died, as an error like those it reports itself."""
    end = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    said = " / ".join(line.strip() for line in last if line.strip()) or "nothing"
    return {
        "error": f"tile-agent {arguments[0]} {end} and gave no answer; it said: {said}",
        "exit_code": code,
    }
