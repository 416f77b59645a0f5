"""A worker: one live pytest session over one checkout, driven by messages.

It collects once and then runs the tests it is told to, as often as it is told to: correctness
once, a perf test many times. Nothing is read from terminal text; every test's outcome, properties,
captured output and pytest-benchmark data travel as a structure.

    parent -> worker   the job, then {"nodeids": [...]} as often as wanted; it ends by closing
    worker -> parent   {"event": "ready", "items": [...], "errors": [...]}
                       {"event": "ran", "tests": [...], "modules": [...], "seconds": ...}
                       {"event": "ended", "code": ...}   pytest gave up before it was ready
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tile_agent_pytest import plugin
from tile_agent_pytest.wire import Channel, Closed, Message

MAX_TEXT = 20_000
"""Characters of a test's output that travel; the whole is in the worker's log."""
MAX_SAMPLES = 1000
_OUR_ENTRY_POINT = "tile_agent"


def work(channel: Channel) -> int:
    """Read a job and do it until the parent closes its end. Returns pytest's exit code.

    A job holds `cwd` (root of the checkout), `sys_path` (put first, in order), `log` (file for
    stdout and stderr), `args` (pytest arguments), `tests` (node ids to keep, or None for all),
    `kernel` (path of the kernel within the checkout) and `env` (variables to set).
    """
    job = channel.receive()
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(job["cwd"])
    os.environ.update(job["env"])
    sys.path[:0] = job["sys_path"]
    sys.dont_write_bytecode = True  # two candidates of one second and one size share a .pyc
    session = Session(channel, job)
    code = int(pytest.main([*job["args"], *_standing_arguments()], plugins=[plugin, session]))
    if not session.answered:
        with contextlib.suppress(Closed):
            channel.send({"event": "ended", "code": code})
    return code


def _standing_arguments() -> list[str]:
    """Arguments that every worker needs, whatever the project's own configuration says."""
    arguments = [
        f"-pno:{_OUR_ENTRY_POINT}",  # registered by hand: it may not be installed here at all
        "-pno:cacheprovider",  # writes into the checkout
        "--capture=fd",
        "--color=no",
    ]
    with contextlib.suppress(ImportError):
        import xdist  # noqa: F401

        arguments.append("-n0")
    return arguments


class Session:
    """The pytest plugin that puts a run loop of our own in place of pytest's."""

    def __init__(self, channel: Channel, job: Message) -> None:
        self._channel = channel
        self._wanted: list[str] | None = job["tests"]
        self._kernel_name = Path(job["kernel"]).name
        self._collect_errors: list[Message] = []
        self._reports: list[pytest.TestReport] = []
        self._benchmark_s: list[float] = []
        self._exception = ""
        self.answered = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember what could not be collected."""
        if report.failed:
            self._collect_errors.append(
                {"nodeid": report.nodeid, "text": _clip(str(report.longrepr))}
            )

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: list[pytest.Item]) -> None:
        """Keep the frozen tests, in the frozen order."""
        if self._wanted is None:
            return
        by_id = {item.nodeid: item for item in items}
        kept = [by_id[nodeid] for nodeid in self._wanted if nodeid in by_id]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do as the parent says until it closes its end."""
        items = {item.nodeid: item for item in session.items}
        self._channel.send(
            {
                "event": "ready",
                "items": [_describe(item) for item in session.items],
                "errors": self._collect_errors,
            }
        )
        self.answered = True
        with contextlib.suppress(Closed):
            while True:
                request = self._channel.receive()
                self._channel.send(self._run([items[nodeid] for nodeid in request["nodeids"]]))
        return True

    def _run(self, items: list[pytest.Item]) -> Message:
        begin = time.perf_counter()
        tests = []
        for index, item in enumerate(items):
            item.user_properties.clear()
            item._report_sections.clear()
            self._reports.clear()
            self._benchmark_s.clear()
            self._exception = ""
            following = items[index + 1] if index + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            outcome = _outcome(item.nodeid, self._reports)
            tests.append(
                outcome | {"benchmark_s": list(self._benchmark_s), "exception": self._exception}
            )
        return {
            "event": "ran",
            "tests": tests,
            "modules": loaded_from(self._kernel_name),
            "seconds": time.perf_counter() - begin,
        }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the reports of the test that is running."""
        self._reports.append(report)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Any:
        """Take pytest-benchmark's samples while the fixture still holds them."""
        yield
        if call.excinfo is not None and call.when != "teardown":
            self._exception = call.excinfo.typename
        if call.when == "call":
            fixture = (getattr(item, "funcargs", None) or {}).get("benchmark")
            data = getattr(getattr(getattr(fixture, "stats", None), "stats", None), "data", None)
            self._benchmark_s.extend(_thinned(data or ()))


def _describe(item: pytest.Item) -> Message:
    return {
        "nodeid": item.nodeid,
        "name": item.name,
        "fixtures": sorted(getattr(item, "fixturenames", ())),
    }


def _outcome(nodeid: str, reports: list[pytest.TestReport]) -> Message:
    """One test: setup, call and teardown folded into one outcome."""
    failed = [report for report in reports if report.failed]
    skipped = [report for report in reports if report.skipped]
    call = next((report for report in reports if report.when == "call"), None)
    outcome = "failed" if failed else "skipped" if skipped else "passed" if call else "failed"
    text = str((failed or skipped)[0].longrepr) if failed or skipped else ""
    return {
        "nodeid": nodeid,
        "outcome": outcome,
        "text": _clip(text),
        "properties": [list(pair) for pair in call.user_properties] if call else [],
        "stdout": _clip(call.capstdout) if call else "",
    }


def _thinned(samples: Sequence[float]) -> list[float]:
    """At most `MAX_SAMPLES` of them, evenly spaced in time; pytest-benchmark may take 10^5."""
    step = -(-len(samples) // MAX_SAMPLES) or 1
    return list(samples[::step])


def loaded_from(file_name: str) -> list[str]:
    """Files of the imported modules that bear the kernel's file name, symlinks resolved."""
    files = {
        os.path.realpath(file)
        for module in list(sys.modules.values())
        if isinstance(file := getattr(module, "__file__", None), str)
        and os.path.basename(file) == file_name  # noqa: PTH119 - may be no path at all
    }
    return sorted(files)


def _clip(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n... {len(text) - MAX_TEXT} characters left out ...\n{text[-half:]}"
