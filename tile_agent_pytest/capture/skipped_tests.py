"""How many tests of a command of pytest's were skipped, and why; which one it cannot call."""

from __future__ import annotations

import atexit
import functools
import types
from collections.abc import Callable
from typing import Any

REPORTS = "_pytest.reports"
"""The module by which pytest says what became of a test, in the process that runs it."""
_MARK = "_tile_agent_counts"


class SkippedTests:
    """Counts those of one process, and tells of them when it ends."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        """Take who is told."""
        self._tell = tell
        self._ran = self._skipped = 0
        self._files: dict[str, None] = {}
        """What skips itself while it is collected: each of its tests would be."""
        self._why = ""
        self._has_failed = False
        self._no_fixture: tuple[str, str] = ("", "")
        """The first test that takes what is no fixture, and that; a script's own function."""

    def watch(self, reports: types.ModuleType) -> None:
        """Look at each report that is made of a test, or of a file."""
        if hasattr(reports, _MARK):
            return
        setattr(reports, _MARK, True)
        of_test = reports.TestReport.from_item_and_call.__func__
        of_file = reports.CollectReport.__init__

        @functools.wraps(of_test)
        def from_item_and_call(owner: Any, item: Any, call: Any) -> Any:
            report = of_test(owner, item, call)
            self._add(report, getattr(report, "when", ""))
            self._look_at(report, getattr(call, "excinfo", None))
            return report

        @functools.wraps(of_file)
        def made(report: Any, *args: Any, **kwargs: Any) -> None:
            of_file(report, *args, **kwargs)
            self._add(report, "collect")

        reports.TestReport.from_item_and_call = classmethod(from_item_and_call)
        reports.CollectReport.__init__ = made
        atexit.register(self._end)

    def _add(self, report: Any, when: str) -> None:
        if report.outcome == "failed" and not self._has_failed:
            self._has_failed = True
            self._tell({"failure": str(report.longrepr)})
        if report.outcome == "skipped":
            if when == "collect":
                self._files[str(report.nodeid)] = None
            else:
                self._skipped += 1
            told = report.longrepr
            if not self._why and isinstance(told, tuple):
                self._why = str(told[-1]).removeprefix("Skipped: ")
        elif when == "call" or (when == "setup" and report.outcome == "failed"):
            self._ran += 1

    def _look_at(self, report: Any, raised: Any) -> None:
        error = getattr(raised, "value", None)
        if type(error).__name__ == "FixtureLookupError" and not self._no_fixture[0]:
            self._no_fixture = (str(report.nodeid), str(getattr(error, "argname", "")))

    def _end(self) -> None:
        told: dict[str, Any] = {"ran": self._ran, "skipped": self._skipped, "why": self._why}
        told["no_fixture"] = [*self._no_fixture]
        if self._ran or self._skipped or self._files:
            self._tell({"tests": {**told, "files": [*self._files]}})
