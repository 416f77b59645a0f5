"""A worker: one live pytest session over one checkout, driven by messages.

It collects once and then runs the tests it is told to, as often as it is told to: correctness
once, a perf test many times. Nothing is read from terminal text; every test's outcome, properties,
captured output and pytest-benchmark data travel as a structure.

    parent -> worker   the job, then {"nodeids": [...], "stepped": bool, "timed": bool,
                       "records": bool, "observes": bool, "tells": bool, "short": bool,
                       "as_timed": bool} as often as wanted; it ends by closing
                       {"call": index, "sizes": ..., "pitch": int, "offset": int, "spread": int}
                       a recorded call in another layout, stepped: see `CallRecorder`; before,
                       {"compile": [calls]}, what those launch, side by side
    worker -> parent   {"event": "ready", "items": [...], "errors": [...], "installed": {...}}
                       {"event": "at", "nodeid": ..., "config": ..., "through": ...}
                       stepped: see `Stepper`; through what the test times, '' for `tile_bench`
                       {"event": "begins"}   the next of the tests, where that is to be told
                       {"event": "ran", "tests": [...], "modules": [...], "seconds": ...}
                       {"event": "called"}   a recorded call is over, or failed; or "compiled"
                       {"event": "ended", "code": ...}   pytest gave up before it was ready
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tile_agent_pytest import (
    artifacts,
    keywords,
    mended_interpreter,
    plugin,
    sandbox,
    since_fork,
    timing_adapters,
    tuned,
    worker_arguments,
)
from tile_agent_pytest.bench import Timing, open_gpu
from tile_agent_pytest.benchmark_options import judged
from tile_agent_pytest.examining import comparer
from tile_agent_pytest.examining.calls import CallRecorder
from tile_agent_pytest.examining.originals import Originals
from tile_agent_pytest.examining.programs import StartedPrograms
from tile_agent_pytest.examining.tensors import give_back_all, give_back_cached
from tile_agent_pytest.launch_detector import LaunchDetector
from tile_agent_pytest.observed_launches import LaunchObserver
from tile_agent_pytest.outcomes import account, clipped, described, exception_of, outcome_of
from tile_agent_pytest.preloading import InstalledImports
from tile_agent_pytest.sampling import thinned
from tile_agent_pytest.stepper import Stepper, seed_generators
from tile_agent_pytest.timed_through import TimingNames
from tile_agent_pytest.timing_takeover import TimingTakeover
from tile_agent_pytest.tuning_effort import TuningEffort
from tile_agent_pytest.wire import Channel, Closed, Message
from tile_agent_pytest.worker_folders import link_cache, user_cache


def work(channel: Channel) -> int:
    """Read a job and do it until the parent closes its end. Returns pytest's exit code.

    A job holds `cwd` (root of the checkout), `sys_path` (put first, in order), `log` (file for
    stdout and stderr), `args` (pytest arguments), `tests` (node ids to keep, or None for all),
    `kernel` (path of the kernel within the checkout), `tuned` (folder for what its tuner chooses),
    `env` (variables to set), `limits` (`file_bytes`), `sandbox` (null, or what it may `write`, what
    it may `read` in any case, and what to `hide` from it) and perhaps `detect_launches` (tell of
    each test whether it launched a kernel of the file) and `repeat` (Triton launches that are
    interpreted run twice; what differs comes back as `notes`), `opens_gpu` (before it is ready) and
    `keywords` (which tests each would choose).
    A job with `artifacts` is one for `tile_agent_pytest.artifacts`, which says what it holds
    besides; its end is told as {"event": "done"}. One with `compares` serves
    `tile_agent_pytest.examining.comparer` and imports nothing of the user's.
    """
    job = channel.receive()
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(job["cwd"])
    cache = user_cache()
    os.environ.update(job["env"])
    link_cache(cache)
    sandbox.enter(job)
    if "artifacts" in job:
        artifacts.main(job["artifacts"])
        channel.send({"event": "done"})
        return 0
    if job.get("compares"):
        comparer.serve(channel)
        return 0
    sys.path[:0] = job["sys_path"]
    sys.dont_write_bytecode = True  # two candidates of one second and one size share a .pyc
    session = PytestSession(channel, job)
    standing = worker_arguments.standing(session.scratch)
    arguments = [*job["args"], *standing, *worker_arguments.guards(job)]
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


class PytestSession:
    """The pytest plugin that puts a run loop of our own in place of pytest's."""

    def __init__(self, channel: Channel, job: Message) -> None:
        self._channel = channel
        self._is_timed = False
        self._within_s = math.inf
        self._tells = False
        self._wanted: list[str] | None = job["tests"]
        self._keywords: list[str] = job.get("keywords", [])
        self._opens_gpu = bool(job.get("opens_gpu"))
        self._kernel_name = Path(job["kernel"]).name
        self._collect_errors: list[Message] = []
        self._skipped: list[Message] = []
        self._reports: list[pytest.TestReport] = []
        self._benchmark_s: list[float] = []
        self._exception = ""
        self._running = ""
        self._config: Any = None
        self._detector = LaunchDetector(self._kernel_name)
        self._observer: LaunchObserver | None = None
        self._recorder = CallRecorder(self._kernel_name)
        self._takeover = TimingTakeover(self._kernel_name)
        timing_adapters.install(self._takeover, self._kernel_name)
        mended_interpreter.mend_all()  # what takes the place of a GPU is an original, too
        self._originals = Originals(self._takeover.replacements)
        self._takeover.watch = self._originals.watch
        self._programs = StartedPrograms(self._kernel_name)
        self._watches = bool(job.get("detect_launches"))
        self._imports: InstalledImports | None = None
        if self._wanted is None:  # who asks for all tests asks what they import, too
            self._imports = InstalledImports([job["cwd"], *job["sys_path"]], job["env"])
        first = Path(job["tuned_first"])
        self._tuning = tuned.hold(Path(job["tuned"]), lambda: self._running, first)
        self._pid = os.getpid()
        self._ended = 0
        self.scratch = tempfile.mkdtemp(prefix="pytest-")
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
        judged(config.option, storage=f"file://{self.scratch}/benchmarks")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember what could not be collected, and what skips all of its tests."""
        if report.failed or report.skipped:
            kept = self._collect_errors if report.failed else self._skipped
            kept.append({"nodeid": report.nodeid, "text": clipped(account(report))})

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
        known = self._takeover.known if self._wanted is None else []  # else they have been chosen
        if self._opens_gpu:
            open_gpu()
        names = TimingNames(known, Path.cwd(), self._kernel_name)
        self._channel.send(
            {
                "event": "ready",
                "items": [described(item, names) for item in session.items],
                "errors": self._collect_errors,
                "skipped": self._skipped,
                "by_keyword": keywords.chosen(session.config, session.items, self._keywords),
                "installed": self._installed(),
            }
        )
        self.answered = True
        with contextlib.suppress(Closed):
            while True:
                request = self._channel.receive()
                if "call" in request or "compile" in request:
                    self._serve_calls(request)
                    continue
                plugin.gate = self._step if request.get("stepped") else None
                self._is_timed = bool(request.get("stepped") or request.get("timed"))
                self._tuning.in_less.begin(TuningEffort.of(request))
                wanted = [items[nodeid] for nodeid in request["nodeids"]]
                observer = LaunchObserver(self._kernel_name, self._tuning.log)
                self._observer = observer if request.get("observes") else None
                plugin.in_timing = observer.timing if self._observer else contextlib.nullcontext
                self._within_s = float(request.get("within_s", math.inf))
                self._tells = bool(request.get("tells"))
                self._channel.send(self._run(wanted, records=bool(request.get("records"))))
        return True

    def _installed(self) -> Message:
        return self._imports.described(self._takeover.replacements) if self._imports else {}

    def _run(self, items: list[pytest.Item], *, records: bool) -> Message:
        if not records:
            return self._ran(items) | {"calls": []}
        self._recorder = CallRecorder(self._kernel_name)
        with self._recorder.recording(lambda: self._running):
            ran = self._ran(items)
        return ran | {"calls": [call.described() for call in self._recorder.calls]}

    def _ran(self, items: list[pytest.Item]) -> Message:
        begin = time.perf_counter()
        tests = []
        for index, item in enumerate(items):
            if index and time.perf_counter() - begin > self._within_s:
                item.session._setupstate.teardown_exact(None)  # as after the last test of a pass
                break
            item.user_properties.clear()
            item._report_sections.clear()
            self._reports.clear()
            self._benchmark_s.clear()
            self._exception = ""
            self._running = item.nodeid
            if self._tells:
                self._channel.send({"event": "begins"})
            seed_generators(item.nodeid)
            following = items[index + 1] if index + 1 < len(items) else None
            started, _ = time.perf_counter(), self._tuning.log.take_s()
            watches = self._watches and plugin.gate is None  # a stepper looks for itself
            with contextlib.ExitStack() as looking:
                if watches:
                    looking.enter_context(self._detector.watching())
                if self._observer is not None:
                    looking.enter_context(self._observer.watching(item.nodeid))
                if self._is_timed:
                    looking.enter_context(self._taking_over(item))
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._stay_alone()
            outcome = outcome_of(item.nodeid, self._reports)
            outcome["launched"] = watches and self._detector.seen
            outcome["seconds"] = time.perf_counter() - started
            outcome["tuned_s"] = self._tuning.log.take_s()
            tests.append(
                outcome | {"benchmark_s": list(self._benchmark_s), "exception": self._exception}
            )
        modules = since_fork.loaded_from(self._kernel_name)
        if "torch" in sys.modules:
            give_back_all()
        guards = self._config.stash.get(plugin.GUARDS, None)
        return {
            "event": "ran",
            "tests": tests,
            "modules": sorted({os.path.realpath(module.__file__) for module in modules}),
            "chosen": self._tuning.chosen | tuned.triton_choices(modules),
            "notes": list(guards.notes) if guards else [],
            "replaced": self._originals.replaced(),
            "programs": self._programs.found(),
            "launches": self._observer.launches if self._observer else [],
            "seconds": time.perf_counter() - begin,
        }

    @contextlib.contextmanager
    def _taking_over(self, item: pytest.Item) -> Iterator[None]:
        """Have what the test times with functions of its own choice timed as `tile_bench` does."""
        guards = self._config.stash.get(plugin.GUARDS, None)
        suspended = guards.suspended if guards else contextlib.nullcontext

        def gate(config: str, function: Callable[[], Any], through: str) -> Timing:
            return self._step(config, function, through=through)

        def emit(timing: Timing, through: str, launched: bool) -> None:
            record = plugin.as_property(timing, through) if launched else (plugin.ASIDE, through)
            item.user_properties.append(record)

        @contextlib.contextmanager
        def in_timing(config: str) -> Iterator[None]:
            with suspended(), plugin.in_timing(config):
                yield

        with self._takeover.serving(gate if plugin.gate else None, emit, in_timing):
            yield

    def _serve_calls(self, request: Message) -> None:
        """Serve a recorded call in another layout; what it raises has been told."""
        if "compile" in request:
            with self._tuning.in_less.settled():
                told = self._recorder.compile_first(request["compile"])
            self._channel.send(told)
            return
        call, function = self._recorder.laid_out(request)
        self._running = call.nodeid
        try:
            with self._tuning.in_less.settled():
                self._step(call.name, function, rebuilt=True)
        except Closed:
            raise
        except BaseException:
            self._stay_alone()
        self._channel.send({"event": "called"})

    def _step(
        self, config: str, fn: Callable[[], Any], *, through: str = "", rebuilt: bool = False
    ) -> Timing:
        """Measure `fn` as the parent orders it, then let the test go on."""
        self._stay_alone()
        if "torch" in sys.modules:  # what the test itself took for a moment
            give_back_cached()
        where = {"nodeid": self._running, "config": config, "through": through}
        self._channel.send({"event": "at"} | where)
        try:
            stepper = Stepper(
                self._running,
                config,
                fn,
                self._channel,
                self._detector,
                self._kernel_name,
                Path(self.scratch) / "results",
                rebuilt=rebuilt,
                through=through,
                undecided=self._tuning.in_less.undecided,
            )
            return stepper.serve()
        except Closed:
            raise
        except BaseException as problem:
            text = clipped(f"{type(problem).__name__}: {problem}")
            self._channel.send({"event": "failed", "nodeid": self._running, "text": text})
            raise

    def _stay_alone(self) -> None:
        """End a child that the user's code forked and let escape: it would answer in our place."""
        if os.getpid() != self._pid:
            os._exit(1)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Remember how pytest ended."""
        self._ended = int(exitstatus)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """End here: pytest would collect garbage five times, and nobody waits for what it finds."""
        if self.answered:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._ended)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the reports of the test that is running."""
        self._reports.append(report)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Any:
        """Take pytest-benchmark's samples while the fixture still holds them."""
        yield
        if call.excinfo is not None and call.when != "teardown":
            self._exception = exception_of(call.excinfo.value)
        if call.when == "call":
            fixture = (getattr(item, "funcargs", None) or {}).get("benchmark")
            data = getattr(getattr(getattr(fixture, "stats", None), "stats", None), "data", None)
            self._benchmark_s.extend(thinned(data or ()))
