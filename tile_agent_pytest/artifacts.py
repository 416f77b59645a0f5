"""Compiles what the tests launch: `python PATH/tile_agent_pytest artifacts < JOB`.

Runs the user's tests with a recorder on every launch of the kernel's file, then compiles each
distinct launch for each target. Without a GPU the tests run on tensors without storage, so that
they reach their launches and no further. Each compile has a process of its own, with a deadline;
several of them run at a time.

The job is one JSON object:

    language         'cutile' or 'triton'
    kernel           the file
    cwd, sys_path    as for a worker
    pytest           arguments: files, node ids, `-k`; null: no tests
    sm               without a GPU, the one to pretend to have; null: there is one
    targets          such as 'sm_90'
    timed_only       leave out what no perf test launches, unless no perf test launches anything
    most             launches to compile at most, see `chosen`
    ahead            how many of the others are compiled too, of which nothing is told: the packages
                     keep them for later processes
    compile_s        seconds for one compile
    timeout_s        seconds for everything
    at_once          how many compiles run at a time, and threads of torch in a fork of the server
    nice             how far they give way to other processes; not at all where it is left out
    tuned            where a run keeps what Triton's tuners chose for its first text, if it does: of
                     a tuner that has been at work the best configs alone are compiled
    assumed          what to compile where no test launches a kernel: `module` and `kernels`, as in
                     `compile_cutile`, with a text for each parameter of each variant in
                     `arguments`; null for Triton
    folder, answers  where artifacts go; the file that the answers are appended to

The answers, one JSON object a line:

    {"event": "missing", "what": "cuda-tile" | "tileiras" | "triton" | "pytest", "text": ...,
     "place": the module's file where there is one that cannot be imported}
    {"event": "tools", "cuobjdump": path or null, "nvdisasm": ..., "tileirdisasm": ...}
    {"event": "tested", "launches": how many there were, with the "untried" configs of tuners of
     which the best alone were launched, "kernels": [name, ...] of all of them,
     "untimed": how many of them `timed_only` leaves out, "sequence": a digest of all of them,
     "failures": [text, ...], "uncollected": whether pytest ended before any test, which its output
     tells of, "errors": [[nodeid, account], ...] of what cannot be collected,
     "work": [Work.describe(), ...]}
    {"event": "launch", "index": ..., ...Launch.describe()}   without a test: what was assumed
    {"event": "done", "index": ..., "target": ..., "ok": ..., "error": ... or the files}
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import Any

from tile_agent_pytest.bench import Gate, Timing
from tile_agent_pytest.benchmark_options import called_once
from tile_agent_pytest.compile_cutile import Compiler, behind_place, load
from tile_agent_pytest.compile_processes import CompileTask, in_own_processes
from tile_agent_pytest.kept_metadata import keep_digest_of_triton
from tile_agent_pytest.launches import LaunchRecorder, Message, RecordedLaunch, chosen

PACKAGES = {
    "cutile": ("cuda-tile", "cuda.tile"),
    "triton": ("triton", "triton"),
    "pytest": ("pytest", "pytest"),
}
"""What is needed -> its distribution and its module."""
TOOLS = ("cuobjdump", "nvdisasm", "tileirdisasm")
AHEAD_S = 10.0
"""For the launches of which nothing is told."""
TESTS_SHARE = 1 / 2
"""Of the whole time, after which no further test is begun where some have launched something."""
OF_CAPTURED_TESTS = {"nearness", "computed", "origin"}
"""By which names a file of captured tests is known."""
TIMING = {"tile_bench", "benchmark"}
"""Fixtures that make a test a perf test."""


def main(job: Message) -> None:
    """Run the tests, then compile what they launched."""
    os.nice(job.get("nice", 0))
    if torch := sys.modules.get("torch"):  # in each of several processes it would take all there is
        torch.set_num_threads(job["at_once"])
    os.chdir(job["cwd"])
    sys.path[:0] = job["sys_path"]
    given = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*job["sys_path"], *([given] if given else [])])
    sys.dont_write_bytecode = True
    answers = Path(job["answers"])

    def tell(**message: Any) -> None:
        with answers.open("a", encoding="utf-8") as file:
            file.write(json.dumps(message, default=str) + "\n")

    for name in (job["language"], *(["pytest"] if job["pytest"] else [])):
        distribution, module = PACKAGES[name]
        try:
            importlib.import_module(module)
        except ImportError as problem:
            place = _place(module)
            tell(event="missing", what=distribution, text=str(problem), place=place)
            return
    tell(event="tools", **{tool: find_tool(tool) for tool in TOOLS})
    recorder = LaunchRecorder(job["kernel"])
    tests = run_tests(job, recorder)
    seen = recorder.launches
    timed = [launch for launch in seen if launch.timed] if job["timed_only"] else []
    tell(
        event="tested",
        launches=len(seen) + recorder.untried,
        untried=recorder.untried,
        kernels=list(dict.fromkeys(launch.kernel for launch in seen)),
        untimed=len(seen) - len(timed) if timed else 0,
        sequence=recorder.sequence,
        failures=tests.failures,
        uncollected=tests.uncollected,
        errors=tests.errors,
        work=[work.describe() for work in recorder.work],
    )
    try:
        launches = timed or list(seen) or list(assumed(job))
    except NotImportable as problem:  # tests that need it have failed for the same
        tell(event="not-importable", said=str(problem))
        return
    if job["language"] == "triton":
        keep_digest_of_triton()
    told = chosen(launches, job["most"])
    tasks = _tasks(told, job, tell)
    with closing(in_own_processes(tasks, job["at_once"], job["compile_s"])) as answered:
        for task, answer in answered:
            if "tileiras' compiler not found" in answer.get("error", ""):
                tell(event="missing", what="tileiras", text=answer["error"])
                return
            tell(event="done", index=task.index, target=task.target, **answer)
    known = set(map(id, told))
    left = [launch for launch in launches if id(launch) not in known]
    _compile_ahead(left[: job["ahead"]], len(told), job)


def _place(module: str) -> str:
    """The file of a module that there is and that cannot be imported; empty where there is none."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return ""
    return (spec.origin or "") if spec else ""


def _compile_ahead(launches: Sequence[RecordedLaunch], first: int, job: Message) -> None:
    """Compile launches from some index on, as far as `AHEAD_S` go."""
    until = time.monotonic() + AHEAD_S
    tasks = itertools.takewhile(
        lambda _: time.monotonic() < until, _tasks(launches, job, lambda **_: None, first)
    )
    for _ in in_own_processes(tasks, job["at_once"], AHEAD_S):
        pass


def _tasks(
    launches: Sequence[RecordedLaunch], job: Message, tell: Callable[..., None], first: int = 0
) -> Iterator[CompileTask]:
    """What is to be compiled; a launch is told of when the first compile of it begins."""
    for index, launch in enumerate(launches, first):
        tell(event="launch", index=index, **launch.describe())
        for target in job["targets"]:
            folder = Path(job["folder"]) / f"{index}-{target}"
            folder.mkdir(parents=True)
            yield CompileTask(index, target, launch.compile, folder)


# --- the tests ----------------------------------------------------------------------------------


def run_tests(job: Message, recorder: LaunchRecorder) -> RecordedTests:
    """Run them under the recorder. Returns what became of them."""
    session = RecordedTests(recorder, TESTS_SHARE * job["timeout_s"], job["sm"] is not None)
    if job["pytest"] is None:
        return session
    import pytest

    from tile_agent_pytest import plugin

    arguments = [
        *job["pytest"],
        "-pno:tile_agent",  # registered by hand: it may not be installed here at all
        f"-ocache_dir={job['folder']}/cache",
        "-olog_file=",  # which would lie in the checkout
        "--maxfail=0",
        "-Wignore",
        "-q",
    ]
    if importlib.util.find_spec("pytest_benchmark"):
        storage = f"file://{job['folder']}/benchmarks"  # its default is a folder of the checkout
        arguments.append(f"--benchmark-storage={storage}")
    if importlib.util.find_spec("xdist"):
        arguments.append("-n0")
    plugin.gate = _calling_once(recorder)
    with _pretending(job), _recording(job, recorder):
        code = int(pytest.main(arguments, plugins=[plugin, session]))
    if session.is_cut or code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return session
    none = code == pytest.ExitCode.NO_TESTS_COLLECTED
    session.failures.append("pytest finds no tests" if none else f"pytest ended with code {code}")
    session.uncollected = not session.began
    return session


class RecordedTests:
    """The pytest plugin that tells the recorder which test is running, and ends them in time: what
    they have launched by then is compiled, where they have launched anything."""

    def __init__(self, recorder: LaunchRecorder, within_s: float, is_storageless: bool) -> None:
        self._recorder = recorder
        self._is_storageless = is_storageless
        self._within_s = within_s
        self._began_s = time.monotonic()
        self._ran = 0
        self.failures: list[str] = []
        """A line each."""
        self.errors: list[tuple[str, str]] = []
        """What cannot be collected, with pytest's account."""
        self.began = False
        self.uncollected = False
        """Whether pytest ended before any test."""
        self.is_cut = False

    def pytest_configure(self, config: Any) -> None:
        """What a test times it is to launch once."""
        called_once(config.option)

    def pytest_collection_finish(self, session: Any) -> None:
        """How near the results of captured tests have to be follows from their values."""
        modules = {id(m): m for item in session.items if (m := getattr(item, "module", None))}
        for module in modules.values():
            if self._is_storageless and vars(module).keys() >= OF_CAPTURED_TESTS:
                module.nearness = _any_distance

    def pytest_runtest_setup(self, item: Any) -> None:
        """What is launched from here on is this test's."""
        self.began = True
        self._recorder.test = item.nodeid
        fixtures = getattr(item, "fixturenames", ())  # a benchmark script has none
        self._recorder.timed = "perf" in item.name or bool(TIMING & {*fixtures})

    def pytest_runtest_teardown(self, item: Any, nextitem: Any) -> None:
        """No other test where the time is over."""
        self._ran += 1
        took_s = time.monotonic() - self._began_s
        if nextitem is None or took_s < self._within_s or not self._recorder.launches:
            return
        self.is_cut = True
        said = f"{self._ran} of {len(item.session.items)} tests ran in {took_s:.0f} s"
        self.failures.insert(0, f"{said} (--tests names others, --timeout-s gives them more)")
        item.session.shouldstop = said

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the reason of a failure; where nothing was launched it says why."""
        if report.failed or report.skipped:
            said = self._is_storageless and _of_no_values(report.longrepr)
            self.failures.append(f"{report.nodeid}: {said or _reason(report.longrepr)}")

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be imported."""
        if report.failed:
            self.failures.append(f"{report.nodeid}: {_reason(report.longrepr)}")
            self.errors.append((report.nodeid, str(report.longrepr)))


def _any_distance(right: Any) -> dict[str, float]:  # noqa: ARG001
    """Beside `torch.testing.assert_close`, which compares nothing where there are no values."""
    return {}


def _of_no_values(longrepr: Any) -> str:
    """Where an assertion fails: what it tells of values was in the memory by chance. Empty where
    something else does."""
    crash = getattr(longrepr, "reprcrash", None)
    if crash is None or not crash.message.startswith(("assert ", "AssertionError")):
        return ""
    place = f"{Path(crash.path).name}:{crash.lineno}"
    return f"an assertion fails at {place}; launches are collected with tensors that hold no values"


def _reason(longrepr: Any) -> str:
    """In a line: of an account without an exception, as of a fixture that is missing, its `E`."""
    crash = getattr(longrepr, "reprcrash", None)
    said = str(crash.message if crash else longrepr).strip().splitlines()
    if crash and said:
        return said[0]
    marked = [line[1:].strip() for line in said if line.startswith("E ")]
    return (marked or said[-1:] or [""])[0]


def _calling_once(recorder: LaunchRecorder) -> Gate:
    """In place of a measurement: the launch is what counts, not its time."""

    def call(config: str, fn: Callable[[], Any]) -> Timing:
        with recorder.timing(config):
            fn()
        return Timing(config, (1.0,), "not timed")

    return call


def _pretending(job: Message) -> AbstractContextManager[None]:
    if job["sm"] is None:
        return contextlib.nullcontext()
    from tile_agent_pytest.storageless import storageless

    return storageless(job["sm"])


def _recording(job: Message, recorder: LaunchRecorder) -> AbstractContextManager[None]:
    recording: Callable[..., AbstractContextManager[None]] = importlib.import_module(
        f"tile_agent_pytest.record_{job['language']}"
    ).recording
    tuned = {"tuned": Path(job["tuned"])} if job.get("tuned") else {}
    return recording(recorder, sm=job["sm"], **tuned)


# --- compiling ----------------------------------------------------------------------------------


class NotImportable(Exception):
    """The kernel's file fails where it is imported; what it raised, in a line."""


def assumed(job: Message) -> Iterator[RecordedLaunch]:
    """The cuTile kernels with the signatures that their source shows."""
    if job["assumed"] is None:
        return
    compiler = Compiler.installed()
    with ExitStack() as stack:
        stack.enter_context(_pretending(job))
        try:
            module = load(job["assumed"]["module"], Path(job["kernel"]))
        except (Exception, SystemExit) as problem:
            raise NotImportable(behind_place(problem, Path(job["cwd"]))) from problem
    for wanted in job["assumed"]["kernels"]:
        kernel = compiler.kernel(module, wanted["name"], wanted["hints"])

        def into(target: str, folder: Path, kernel: Any = kernel, of: Any = wanted) -> Message:
            failure: Exception | None = None
            for variant, told in zip(of["variants"], of["arguments"], strict=True):
                try:
                    constraints = compiler.constraints(kernel, variant)
                    files = compiler.into(kernel, constraints, target, folder)
                    return files | {"arguments": told}
                except Exception as problem:
                    failure = failure or problem
            raise failure or ValueError("no signature to try")

        yield RecordedLaunch(
            key=wanted["name"],
            kernel=wanted["name"],
            arguments=wanted["arguments"][0],
            options=wanted["hints"],
            compile=into,
        )


def find_tool(name: str) -> str | None:
    """A CUDA binary utility: in NVIDIA's wheels, Triton's wheel, PATH, or CUDA_HOME.

    Who installs NVIDIA's does so since Triton's is older than cuTile's compiler.
    """
    folders = []
    for package, below in (("nvidia", "cu13/bin"), ("triton", "backends/nvidia/bin")):
        spec = importlib.util.find_spec(package)
        folders += (
            [Path(p) / below for p in (spec.submodule_search_locations or ())] if spec else []
        )
    places = [*(str(folder) for folder in folders), os.environ.get("PATH", "")]
    if home := os.environ.get("CUDA_HOME"):
        places.append(str(Path(home) / "bin"))
    places.append("/usr/local/cuda/bin")
    return shutil.which(name, path=os.pathsep.join(places))
