"""Two clients at one repository, each with a server of its own: who is told what of whom."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from mcp_types import Implementation, LoggingMessageNotificationParams

from tests.mcp.client import TIMEOUT_S, client_in, text_of
from tests.support.project import COUNTED
from tests.support.repo import isolate, make_repo

pytestmark = pytest.mark.full  # each begins a run


@pytest.mark.parametrize("legacy", [True, False], ids=["legacy", "modern"])
def test_a_call_at_work_is_told_as_ones_own_or_anothers_and_logged(
    legacy: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    isolate(monkeypatch, tmp_path)
    test = COUNTED["tests/test_double.py"].replace(
        "    # Counted", "    time.sleep(0.5)\n    # Counted"
    )
    repo = make_repo(tmp_path, COUNTED | {"tests/test_double.py": test})  # it is at work for long
    logged: list[str] = []
    progress: list[str] = []

    async def log(message: LoggingMessageNotificationParams) -> None:
        assert (message.level, message.logger) == ("info", "tile-agent")
        logged.append(message.data)

    async def both() -> None:
        mine = client_in(
            repo,
            legacy=legacy,
            logging_callback=log,
            log_level=None if legacy else "info",
            client_info=Implementation(name="first-client", version="1"),
        )
        others = client_in(repo, legacy=not legacy)
        with anyio.fail_after(TIMEOUT_S):
            async with mine, others, anyio.create_task_group() as group:
                begun = anyio.Event()

                async def on_progress(_n: float, _of: float | None, line: str | None) -> None:
                    progress.append(line or "")
                    if line and line.startswith("baseline"):
                        begun.set()

                async def begin() -> None:
                    kernel = {"kernel": "double.py"}
                    await mine.call_tool("begin", kernel, progress_callback=on_progress)

                group.start_soon(begin)
                await begun.wait()
                own = await mine.call_tool("next", {})
                assert own.is_error
                assert text_of(own).startswith("your run double-")
                assert "double.py in another call (pid " in text_of(own)
                foreign = await others.call_tool("next", {})
                assert foreign.is_error
                assert "for another client (first-client over MCP, server " in text_of(foreign)
                stopped = await others.call_tool("stop", {})
                assert not stopped.is_error, "the way out that it names"

    anyio.run(both)
    assert any(line.startswith("baseline") for line in logged)
    assert {line for line in progress if not line.endswith("so far)")} <= set(logged)
