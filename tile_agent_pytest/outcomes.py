"""A test as it was collected, and what became of it, as messages."""

from __future__ import annotations

import pytest

from tile_agent_pytest.timed_through import TimingNames
from tile_agent_pytest.wire import Message

MAX_TEXT = 20_000
"""Characters of a test's output that travel; the whole is in the worker's log."""
_OUT_OF_MEMORY = "OutOfMemoryError"
_MOST_CAUSES = 8


def outcome_of(nodeid: str, reports: list[pytest.TestReport]) -> Message:
    """One test: setup, call and teardown folded into one outcome."""
    failed = [report for report in reports if report.failed]
    skipped = [report for report in reports if report.skipped]
    calls = [report for report in reports if report.when == "call"]
    call = calls[-1] if calls else None  # its subtests report before a test does
    outcome = "failed" if failed else "skipped" if skipped else "passed" if call else "failed"
    text = account((failed or skipped)[0]) if failed or skipped else ""
    return {
        "nodeid": nodeid,
        "outcome": outcome,
        "text": clipped(text),
        "properties": [list(pair) for pair in call.user_properties] if call else [],
        "stdout": clipped(call.capstdout) if call else "",
    }


def exception_of(error: BaseException) -> str:
    """Type name of what a test raised; of the want of memory, where it raised that because of one.

    `torch.testing.assert_close` does: a RuntimeError takes the place of whatever ends a comparison.
    """
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if cause is None:
            break
        if type(cause).__name__ == _OUT_OF_MEMORY:
            return _OUT_OF_MEMORY
        cause = cause.__cause__
    return type(error).__name__


def account(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test failed or was skipped; a skip is (file, line, reason)."""
    told = report.longrepr
    return str(told[2] if isinstance(told, tuple) else told)


def clipped(text: str) -> str:
    """A text's begin and end, where it is long."""
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n... {len(text) - MAX_TEXT} characters left out ...\n{text[-half:]}"


def described(item: pytest.Item, names: TimingNames) -> Message:
    """A test as it was collected; `names` finds what it times with."""
    return {
        "nodeid": item.nodeid,
        "name": item.name,
        "fixtures": sorted(getattr(item, "fixturenames", ())),
        "through": names.of(item),
        "lacking": _lacking(item),
    }


def _lacking(item: pytest.Item) -> list[str]:
    """What a test takes that nothing gives it: a function called `test_...` may be a script's."""
    info = getattr(item, "_fixtureinfo", None)
    if info is None:
        return []
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    given = {"request", *parameters, *info.name2fixturedefs, *getattr(item, "funcargs", {})}
    return [name for name in info.names_closure if name not in given]
