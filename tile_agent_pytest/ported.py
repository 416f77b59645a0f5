"""Compares a port with its origin, call by call, while the tests of the origin run.

A plugin for `-p`. What the tests call of the origin's functions that launch kernels runs as it is,
in Triton's interpreter, and once more on copies of its arguments with the port, whose kernels run
on the CPU. Where a test calls none of them, as when they are methods, the port stands in the
origin's place instead, and the tests judge it.

TILE_AGENT_PORTED names a file with the job, one JSON object: `origin` and `port` (files),
`functions` (names in the origin), `replace` (the port stands in its place), `targets` (GPUs to
compile for) and `answers` (the file that answers are appended to, one JSON object a line):

    {"event": "call", "function": ..., "problem": null or text, "raised": whether that is an
     exception of the port's, "relative": largest difference,
     "values": how many tensors and numbers were compared, "uncompared": what could not be,
     "silent": why there are none, if it can be told, "kernels": which the port launched}
    {"event": "compiled", "kernel": ..., "target": ..., "ok": ..., "error": ...}
    {"event": "missing", "what": ...}
    {"event": "uncollected", "test": node id, "account": why it cannot be imported}
    {"event": "end", "passed": ..., "failed": ..., "launching": of those that passed, how many
     launched a kernel of the port, "failing": node ids, "skipped": node ids, "kernels": which were
     launched, "elsewhere": the origin's that its functions did not launch}
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tile_agent_pytest.benchmark_options import called_once
from tile_agent_pytest.missing_gpu import stands_in
from tile_agent_pytest.ported_launches import Beyond, Done, KernelWatch, narrower
from tile_agent_pytest.ported_values import (
    Copies,
    Drawn,
    ResultComparison,
    filled_memory,
    is_state,
)

Message = dict[str, Any]
VARIABLE = "TILE_AGENT_PORTED"
MOST_SIGNATURES = 4
"""Of a kernel, that are compiled."""
MOST_OF_ACCOUNT = 100_000
"""Characters, of why tests cannot be imported: its end says that."""


class CallComparison:
    """What is compared in this process."""

    def __init__(self, job: Message) -> None:
        self.job = job
        self.origin, self.port = Path(job["origin"]).resolve(), Path(job["port"]).resolve()
        self.launched: dict[tuple[str, str], tuple[Any, Any]] = {}
        self.launches = 0
        """Of the port's kernels."""
        self._kernels: set[str] = set()  # of the call that is being compared
        self._module: ModuleType | None = None
        self._inside = False
        self._watch = KernelWatch()

    def tell(self, **answer: Any) -> None:
        """Append one answer."""
        with Path(self.job["answers"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(answer) + "\n")

    # --- the port --------------------------------------------------------------------------------

    def stand_in(self) -> None:
        """Have whoever imports the origin get the port."""
        original = importlib.machinery.SourceFileLoader.get_code
        origin, port = self.origin, self.port

        def get_code(loader: Any, fullname: str) -> Any:
            if Path(loader.path).resolve() == origin:
                return compile(port.read_text(encoding="utf-8"), str(port), "exec")
            return original(loader, fullname)

        loader: Any = importlib.machinery.SourceFileLoader
        loader.get_code = get_code

    def module(self, origin: ModuleType) -> ModuleType:
        """The port as a module beside the origin, so that relative imports lead where they did."""
        if self._module is None:
            spec = importlib.util.spec_from_file_location(f"{origin.__name__}__port", self.port)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            self._module = module
        return self._module

    def record_launches(self) -> None:
        """Remember what the port's kernels are launched with."""
        from tile_agent_pytest.compile_cutile import Compiler
        from tile_agent_pytest.record_cutile import ConstraintRules
        from tile_agent_pytest.tile_cpu import TileCpu

        rules, original = ConstraintRules(Compiler.installed()), TileCpu.launch
        launched, watch = self.launched, self._watch
        watch.of_tiles()
        watch.of_interpreter()

        def launch(cpu: Any, grid: Any, kernel: Any, arguments: Any) -> None:
            nodes = kernel._annotated_function.parameter_annotations
            constraints = [rules.constraint(a, n) for a, n in zip(arguments, nodes, strict=True)]
            name = kernel._annotated_function.pyfunc.__name__
            if sum(each == name for each, _ in launched) < MOST_SIGNATURES:
                launched.setdefault((name, repr(constraints)), (kernel, constraints))
            self._kernels.add(name)
            self.launches += 1
            with watch.launch(arguments):
                original(cpu, grid, kernel, arguments)

        patched: Any = TileCpu
        patched.launch = launch

    def launched_elsewhere(self) -> list[str]:
        """Kernels of the origin that tests launch otherwise: by a method, or in a backward pass."""
        launched = self._watch.elsewhere
        return [name for file, name in launched if Path(file).resolve() == self.origin]

    def compile_launched(self) -> None:
        """Compile what was launched for every target."""
        from tile_agent_pytest.compile_cutile import Compiler, ToolMissing

        compiler = Compiler.installed()
        for (name, _), (kernel, constraints) in self.launched.items():
            for target in self.job["targets"]:
                said = ""
                try:
                    compiler.cubin(kernel, constraints, target)
                except ToolMissing as problem:
                    self.tell(event="missing", what=_line(problem))
                    return
                except Exception as problem:
                    said = f"{type(problem).__name__}: {_line(problem)}"
                self.tell(event="compiled", kernel=name, target=target, ok=not said, error=said)

    # --- calls -----------------------------------------------------------------------------------

    def wrap_functions(self) -> None:
        """Have functions of the origin compare, from the moment on that it is loaded."""
        loader: Any = importlib.machinery.SourceFileLoader
        original = loader.exec_module

        def exec_module(own: Any, module: ModuleType) -> None:
            original(own, module)
            if Path(own.path).resolve() == self.origin:
                for name in self.job["functions"]:
                    function = getattr(module, name, None)
                    if function is not None:
                        setattr(module, name, self._compared(module, name, function))

        loader.exec_module = exec_module

    def _compared(
        self, origin: ModuleType, name: str, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return function(*args, **kwargs)
            self._inside = True
            try:
                return self._both(origin, name, function, args, kwargs)
            finally:
                self._inside = False

        return call

    def _both(
        self,
        origin: ModuleType,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call the origin, and then the port on copies of what the origin was given."""
        drawn, problem, port = Drawn(), "", origin
        try:
            port = self.module(origin)
        except Exception as raised:
            problem = f"the port cannot be imported: {_account(raised, self.port)}"
        drawn.restore()
        copies = Copies(origin, port)
        state = {
            each: value
            for each, value in vars(origin).items()
            if each in vars(port) and not each.startswith("__") and is_state(value)
        }
        given = copies.of((args, kwargs, state))
        self._watch.of_interpreter()
        done = Done()
        with filled_memory(), self._watch.watching(done):
            result = function(*args, **kwargs)
        expected = (result, (args, kwargs, {each: vars(origin)[each] for each in state}))
        afterwards = Drawn()
        drawn.restore()
        if problem:
            self._tell_call(name, problem, raised=True)
        else:
            self._compare(port, name, given, expected, done, Beyond(done, copies))
        afterwards.restore()
        return result

    def _compare(
        self, port: ModuleType, name: str, given: Any, expected: Any, done: Done, beyond: Beyond
    ) -> None:
        from tile_agent_pytest.tile_cpu import TileCpu

        # Where device "cuda" is the CPU already, tensors name the device that the origin saw.
        side = TileCpu(poison=False, map_cuda=not stands_in())
        args, kwargs, state = given
        vars(port).update(state)
        ported, comparison = Done(), ResultComparison(done.summed_in, done.is_written)
        self._kernels.clear()
        problem: str | None = None
        beyond.put_back()
        try:
            with filled_memory(), side, self._watch.watching(ported):
                found = getattr(port, name)(*args, **kwargs)
        except Exception as error:
            problem = f"the port raises {_account(error, self.port)}"
        finally:
            beyond.compare(ported, self._watch.kinds.__getitem__, comparison)
        raised = problem is not None
        if not raised:
            after = (args, kwargs, {each: vars(port)[each] for each in state})
            result, theirs = expected
            comparison.compare(found, result, "its result")
            for what, ours, other in zip(("args", "kwargs", "globals"), after, theirs, strict=True):
                comparison.compare(ours, other, what, given=True)
            problem = comparison.problem or narrower(ported, done)
        silent = "" if raised or comparison.uncompared else _silent(expected[0], done)
        self._tell_call(name, problem, comparison, raised=raised, silent=silent)

    def _tell_call(
        self,
        name: str,
        problem: str | None,
        comparison: ResultComparison | None = None,
        *,
        raised: bool,
        silent: str = "",
    ) -> None:
        comparison = comparison or ResultComparison()
        self.tell(
            event="call", function=name, problem=problem, raised=raised,
            relative=None if problem else comparison.relative,
            values=comparison.values, uncompared=comparison.uncompared,
            silent="" if comparison.values else silent, kernels=sorted(self._kernels),
        )  # fmt: skip


def differences(one: Any, other: Any) -> tuple[str | None, float | None]:
    """What is wrong with a port's results, and the largest relative difference.

    Args:
        one: what the port gave, its arguments included, which it may have written to.
        other: the same of the origin.
    """
    comparison = ResultComparison()
    comparison.compare(one, other, "it")
    return comparison.problem, None if comparison.problem else comparison.relative


def _silent(result: Any, done: Done) -> str:
    """Why a call of the origin gives nothing to compare, if it can be told."""
    if not done.launches:
        return "launch no kernel"
    return "return None and change nothing that they are given" if result is None else ""


def _account(raised: BaseException, port: Path) -> str:
    """An exception in a line; of one without a message, the line of the source that raised it."""
    kind, said = type(raised).__name__, _line(raised)
    frames = traceback.extract_tb(raised.__traceback__)
    if said or not frames:
        return f"{kind}: {said}{_place(frames, port)}"
    code = " ".join((frames[-1].line or "").split())[:200]
    return f"{kind} at `{code}`" if code else f"{kind} in {frames[-1].name}"


def _place(frames: Sequence[traceback.FrameSummary], port: Path) -> str:
    """Where of the port something was refused by a check of it: the line that has it checked."""
    if len(frames) < 2 or Path(frames[-1].filename) != port:
        return ""
    caller = frames[-2]
    if not (frames[-1].line or "").startswith("raise") or Path(caller.filename) != port:
        return ""
    return f" ({port}, line {caller.lineno})"


def _line(problem: BaseException) -> str:
    """What an exception says, without the carets below the code that it shows."""
    lines = (line for line in str(problem).splitlines() if line.strip(" ^~"))
    return " ".join(" ".join(lines).split())[:300]


# --- hooks of pytest -----------------------------------------------------------------------------


_running: CallComparison | None = None
_ends = {"passed": 0, "failed": 0, "launching": 0}
_begun = {"launches": 0}
"""How many there were when the test that runs began."""
_failing: dict[str, None] = {}
_skipped: dict[str, None] = {}


def _begin() -> CallComparison | None:
    file = os.environ.get(VARIABLE)
    if not file:
        return None
    comparison = CallComparison(json.loads(Path(file).read_text(encoding="utf-8")))
    if comparison.job["replace"]:
        comparison.stand_in()
    else:
        comparison.wrap_functions()
    return comparison


_running = _begin()  # before conftest.py, which may import the origin


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Values are compared, and not times."""
    called_once(config.option)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Tell of a file of tests that cannot be imported."""
    if _running is not None and report.failed:
        account = str(report.longrepr)[-MOST_OF_ACCOUNT:]
        _running.tell(event="uncollected", test=report.nodeid, account=account)


def pytest_collection_finish(session: pytest.Session) -> None:  # noqa: ARG001
    """The tests' modules are imported."""
    if _running is not None:
        _running.record_launches()


def pytest_runtest_logstart() -> None:
    """A test begins."""
    if _running is not None:
        _begun["launches"] = _running.launches


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count the tests."""
    if report.failed:
        _ends["failed"] += 1
        _failing[report.nodeid] = None
    elif report.when == "call" and report.passed:
        _ends["passed"] += 1
        _ends["launching"] += _running is not None and _running.launches > _begun["launches"]
    elif report.skipped:
        _skipped[report.nodeid] = None


def pytest_sessionfinish(session: pytest.Session) -> None:  # noqa: ARG001
    """Compile, and say how it ended."""
    if _running is not None:
        if _running.launched and _running.job["targets"]:
            _running.compile_launched()
        launched = dict.fromkeys(name for name, _ in _running.launched)
        outcomes = {"failing": list(_failing), "skipped": list(_skipped)}
        elsewhere = _running.launched_elsewhere()
        _running.tell(event="end", **_ends, **outcomes, kernels=list(launched), elsewhere=elsewhere)
