"""A worker: one live pytest session over one checkout, driven by messages.

It collects once and then runs the tests it is told to, as often as it is told to: correctness
once, a perf test many times. Nothing is read from terminal text; every test's outcome, properties,
captured output and pytest-benchmark data travel as a structure.

    parent -> worker   the job, then {"nodeids": [...], "stepped": bool} as often as wanted;
                       it ends by closing
    worker -> parent   {"event": "ready", "items": [...], "errors": [...]}
                       {"event": "at", "nodeid": ..., "config": ...}   stepped: see `Stepper`
                       {"event": "ran", "tests": [...], "modules": [...], "seconds": ...}
                       {"event": "ended", "code": ...}   pytest gave up before it was ready
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tile_agent_pytest import artifacts, plugin, tuned
from tile_agent_pytest.bench import Sampler, Timing, open_sampler
from tile_agent_pytest.launch_detector import LaunchDetector
from tile_agent_pytest.wire import Channel, Closed, Message

MAX_TEXT = 20_000
"""Characters of a test's output that travel; the whole is in the worker's log."""
MAX_SAMPLES = 1000
_OUR_ENTRY_POINT = "tile_agent"


def work(channel: Channel) -> int:
    """Read a job and do it until the parent closes its end. Returns pytest's exit code.

    A job holds `cwd` (root of the checkout), `sys_path` (put first, in order), `log` (file for
    stdout and stderr), `args` (pytest arguments), `tests` (node ids to keep, or None for all),
    `kernel` (path of the kernel within the checkout), `tuned` (folder for what its tuner chooses),
    `env` (variables to set) and perhaps `detect_launches` (tell of each test whether it launched a
    kernel of the file) and `repeat` (Triton launches that are interpreted run twice; what differs
    comes back as `notes`). A job with `artifacts` is one for `tile_agent_pytest.artifacts`, which
    says what it holds besides; its end is told as {"event": "done"}.
    """
    job = channel.receive()
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(job["cwd"])
    os.environ.update(job["env"])
    if "artifacts" in job:
        artifacts.main(job["artifacts"])
        channel.send({"event": "done"})
        return 0
    sys.path[:0] = job["sys_path"]
    sys.dont_write_bytecode = True  # two candidates of one second and one size share a .pyc
    session = PytestSession(channel, job)
    arguments = [*job["args"], *_standing_arguments(session.scratch), *_guards(job)]
    try:
        code = int(pytest.main(arguments, plugins=[plugin, session]))
    finally:
        shutil.rmtree(session.scratch, ignore_errors=True)
    if not session.answered:
        with contextlib.suppress(OSError, ValueError):  # the parent reads in the log what was said
            sys.stdout.flush()
        with contextlib.suppress(Closed):
            channel.send({"event": "ended", "code": code})
    return code


def _standing_arguments(scratch: str) -> list[str]:
    """Arguments that every worker needs, whatever the project's own configuration says."""
    return [
        f"-pno:{_OUR_ENTRY_POINT}",  # registered by hand: it may not be installed here at all
        f"-ocache_dir={scratch}/cache",  # not in the checkout; without it `--lf` is no option
        "-Wignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning",
        "--maxfail=0",  # `-x` would end the collection without a word on the import that failed
        "--capture=fd",
        "--color=no",
    ]


def _guards(job: Message) -> list[str]:
    """Arguments for a worker whose Triton is interpreted: nothing else keeps a kernel in bounds."""
    if os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None:
        return []
    return ["--triton-guards", *(["--triton-repeat"] if job.get("repeat") else [])]


class PytestSession:
    """The pytest plugin that puts a run loop of our own in place of pytest's."""

    def __init__(self, channel: Channel, job: Message) -> None:
        self._channel = channel
        self._wanted: list[str] | None = job["tests"]
        self._kernel_name = Path(job["kernel"]).name
        self._collect_errors: list[Message] = []
        self._reports: list[pytest.TestReport] = []
        self._benchmark_s: list[float] = []
        self._exception = ""
        self._running = ""
        self._config: Any = None
        self._detector = LaunchDetector(self._kernel_name)
        self._watches = bool(job.get("detect_launches"))
        self._chosen = tuned.hold(Path(job["tuned"]), lambda: self._running)
        self._pid = os.getpid()
        self.scratch = f"{job['log']}.scratch"
        """A folder for what plugins keep between sessions; it goes with this one."""
        self.answered = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: Any) -> None:
        """Keep the tests in this process, and the checkout clean, whatever the project says.

        Options of plugins, which may be installed, or loaded, or neither: no argument fits all.
        """
        self._config = config
        if hasattr(config.option, "dist"):
            config.option.dist, config.option.tx = "no", []
        if hasattr(config.option, "benchmark_storage"):
            config.option.benchmark_storage = f"file://{self.scratch}/benchmarks"

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
        self._stay_alone()
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
                plugin.gate = self._step if request.get("stepped") else None
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
            self._running = item.nodeid
            _seed(item.nodeid)
            following = items[index + 1] if index + 1 < len(items) else None
            started = time.perf_counter()
            with self._detector.watching() if self._watches else contextlib.nullcontext():
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._stay_alone()
            outcome = _outcome(item.nodeid, self._reports)
            outcome["launched"] = self._watches and self._detector.seen
            outcome["seconds"] = time.perf_counter() - started
            tests.append(
                outcome | {"benchmark_s": list(self._benchmark_s), "exception": self._exception}
            )
        modules = loaded_from(self._kernel_name)
        guards = self._config.stash.get(plugin.GUARDS, None)
        return {
            "event": "ran",
            "tests": tests,
            "modules": sorted({os.path.realpath(module.__file__) for module in modules}),
            "chosen": self._chosen | tuned.triton_choices(modules),
            "notes": list(guards.notes) if guards else [],
            "seconds": time.perf_counter() - begin,
        }

    def _step(self, config: str, fn: Callable[[], Any]) -> Timing:
        """Measure `fn` as the parent orders it, then let the test go on."""
        self._stay_alone()
        self._channel.send({"event": "at", "nodeid": self._running, "config": config})
        try:
            return Stepper(config, fn, self._channel, self._detector).serve()
        except Closed:
            raise
        except BaseException as problem:
            text = _clip(f"{type(problem).__name__}: {problem}")
            self._channel.send({"event": "failed", "nodeid": self._running, "text": text})
            raise

    def _stay_alone(self) -> None:
        """End a child that the user's code forked and let escape: it would answer in our place."""
        if os.getpid() != self._pid:
            os._exit(1)

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


class Stepper:
    """One callable, measured block by block on the parent's orders.

    prepare (method or null)  -> prepared (method, label, estimate_ms), or its error
    block (count)             -> block (samples_ms)
    burst (count)             -> burst, once the work is over; the parent times it
    go                           the test goes on

    Where the callable raises, the answer is `failed` and the test fails with it.
    """

    def __init__(
        self, config: str, fn: Callable[[], Any], channel: Channel, detect_launches: LaunchDetector
    ) -> None:
        self._config = config
        self._fn = fn
        self._channel = channel
        self._detector = detect_launches
        self._sampler: Sampler | None = None
        self._samples_ms: list[float] = []

    def serve(self) -> Timing:
        """Obey until the parent says go."""
        while True:
            request = self._channel.receive()
            match request["op"]:
                case "prepare":
                    self._channel.send(self._prepare(request["method"]))
                case "block" if self._sampler:
                    samples_ms = self._sampler.sample(request["count"])
                    self._samples_ms += samples_ms
                    self._channel.send({"event": "block", "samples_ms": samples_ms})
                case "burst" if self._sampler:
                    self._sampler.burst(request["count"])
                    self._channel.send({"event": "burst"})
                case _:
                    method = self._sampler.method if self._sampler else ""
                    return Timing(self._config, tuple(_thinned(self._samples_ms)), method)

    def _prepare(self, method: str | None) -> Message:
        try:
            with self._detector.watching():
                self._fn()
            self._sampler, estimate_ms = open_sampler(self._fn, method)
        except RuntimeError as problem:
            if method is None:
                raise
            return {"event": "prepared", "error": str(problem)}
        return {
            "event": "prepared",
            "method": type(self._sampler).__name__,
            "label": self._sampler.method,
            "estimate_ms": estimate_ms,
            "launched": self._detector.seen,
        }


def _seed(nodeid: str) -> None:
    """Give both arms of a comparison the same random bytes: a product's power depends on them."""
    seed = zlib.crc32(nodeid.encode())
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)


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
    calls = [report for report in reports if report.when == "call"]
    call = calls[-1] if calls else None  # its subtests report before a test does
    outcome = "failed" if failed else "skipped" if skipped else "passed" if call else "failed"
    text = _account((failed or skipped)[0]) if failed or skipped else ""
    return {
        "nodeid": nodeid,
        "outcome": outcome,
        "text": _clip(text),
        "properties": [list(pair) for pair in call.user_properties] if call else [],
        "stdout": _clip(call.capstdout) if call else "",
    }


def _account(report: pytest.TestReport) -> str:
    """Why a test failed or was skipped; a skip is (file, line, reason)."""
    account = report.longrepr
    return str(account[2] if isinstance(account, tuple) else account)


def _thinned(samples: Sequence[float]) -> list[float]:
    """At most `MAX_SAMPLES` of them, evenly spaced in time; pytest-benchmark may take 10^5."""
    step = -(-len(samples) // MAX_SAMPLES) or 1
    return list(samples[::step])


def loaded_from(file_name: str) -> list[Any]:
    """The imported modules whose file bears the kernel's name."""
    return [
        module
        for module in list(sys.modules.values())
        if isinstance(file := getattr(module, "__file__", None), str)
        and os.path.basename(file) == file_name  # noqa: PTH119 - may be no path at all
    ]


def _clip(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n... {len(text) - MAX_TEXT} characters left out ...\n{text[-half:]}"
