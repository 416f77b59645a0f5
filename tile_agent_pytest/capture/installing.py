"""Puts the recorder in place in a process, before anything of the command is imported.

Triton, its interpreter and cuda.tile are looked at when they have been imported, the kernel's file
when it has.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import os
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tile_agent_pytest import mended_interpreter
from tile_agent_pytest.capture.call_recorder import ProcessRecorder
from tile_agent_pytest.capture.elsewhere import held_kernels
from tile_agent_pytest.capture.entry_points import EntryPoints
from tile_agent_pytest.capture.operators import follow_registrations
from tile_agent_pytest.capture.skipped_tests import REPORTS, SkippedTests
from tile_agent_pytest.compiled_ahead import compile_configs_first
from tile_agent_pytest.launch_functions import LaunchFunction, Wrap, kernel_name
from tile_agent_pytest.recording.launch_watch import LAUNCHING_MODULES, watch_launches
from tile_agent_pytest.recording.loading import when_loaded
from tile_agent_pytest.recording.script import when_script

ARRAYS = frozenset({"cupy", "numpy", "torch"})
"""Packages with what a kernel is launched on; before one is imported, nothing can be."""


def install(setting: Mapping[str, Any]) -> None:
    """Record from here on.

    Args:
        setting: `kernel`, the path of its file, and `folder`, where records go.
    """
    kernel = os.path.realpath(setting["kernel"])
    recorder = ProcessRecorder(kernel, setting["folder"])
    tests = SkippedTests(recorder.write)
    telling = functools.partial(_telling, recorder)
    files: list[types.ModuleType] = []  # the kernel's, under each name that it was imported by

    def loaded(module: types.ModuleType, path: str) -> None:
        if module.__name__ in mended_interpreter.NEEDED:
            mended_interpreter.mend()
        if module.__name__ == "torch" and hasattr(module, "library"):
            follow_registrations(recorder)
        if module.__name__ == REPORTS:
            tests.watch(module)
        if module.__name__ == "triton.runtime.autotuner":
            compile_configs_first(module.Autotuner)
        if module.__name__ in LAUNCHING_MODULES:
            watch_launches(telling)
        elif _is(path, kernel):
            watch_launches(telling)  # a plugin may have put its own in place meanwhile
            EntryPoints(module, recorder).watch()
            files.append(module)
        elif files and (held := held_kernels(module, path, files)):
            EntryPoints(module, recorder, held).watch()

    if hasattr(sys.modules.get("torch"), "library"):
        follow_registrations(recorder)
    when_loaded(loaded)
    when_script(kernel, _OwnScript(recorder, telling))
    _tell_what_ends(recorder)


def _tell_what_ends(recorder: ProcessRecorder) -> None:
    """Have an exception that ends the process recorded, and the words that it is left with."""
    shown, leave = sys.excepthook, sys.exit

    def hook(
        kind: type[BaseException], problem: BaseException, place: types.TracebackType | None
    ) -> None:
        recorder.write({"failure": "".join(traceback.format_exception(kind, problem, place))})
        shown(kind, problem, place)

    def exit_(status: Any = None) -> Any:
        if isinstance(status, str):
            recorder.write({"failure": f"SystemExit: {status}"})
        leave(status)

    sys.excepthook, sys.exit = hook, exit_


class _OwnScript:
    """The kernel's file, run as a script: what it defines is watched before it calls that.

    Not sooner: what is a function of the device shows where a kernel below calls it.
    """

    def __init__(self, recorder: ProcessRecorder, telling: Wrap) -> None:
        self._recorder = recorder
        self._telling = telling
        self._points: EntryPoints | None = None
        self._launches = 0

    def begins(self, module: types.ModuleType, statement: ast.stmt) -> None:
        """Before a statement that may call what those above it define, that is watched."""
        self._launches = self._recorder.launches
        if not (ARRAYS & sys.modules.keys() and _may_call(module, statement)):
            return
        with contextlib.suppress(Exception):  # the script is to go on as it would without us
            if self._points is None:
                spec = getattr(module, "__spec__", None)  # of what `python -m` names
                called = spec.name if spec else Path(self._recorder.kernel).stem
                self._points = EntryPoints(module, self._recorder, called=called)
            watch_launches(self._telling)
            self._points.watch()

    def ended(self, statement: ast.stmt, took_s: float) -> None:
        """Tell of launches that whoever imports the file makes, too."""
        if self._launches < self._recorder.launches and not _is_guarded(statement):
            self._recorder.launched_when_imported(took_s)


def _may_call(module: types.ModuleType, statement: ast.stmt) -> bool:
    """Whether a statement may call a function of the module. What makes a kernel of one,
    as `kernel = triton.jit(function)`, calls none."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return False
    calls = [_root(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)]
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return any(_is_own(vars(module).get(name), module) for name in calls)
    return calls != ["torch"]  # `torch.manual_seed(0)`, above all else


def _root(function: ast.expr) -> str:
    """`report` of `report.run`."""
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""


def _is_own(value: Any, module: types.ModuleType) -> bool:
    """Whether it is a function of the module, or holds one, as `Function.apply`, a report and an
    operator of PyTorch's do."""
    held = (value, *(getattr(value, name, None) for name in ("__self__", "fn", "_init_fn")))
    return any(getattr(each, "__module__", None) == module.__name__ for each in held)


def _is_guarded(statement: ast.stmt) -> bool:
    """Whether it is `if __name__ == "__main__":`, which whoever imports the file skips."""
    return isinstance(statement, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(statement.test)
    )


def _is(path: str, kernel: str) -> bool:
    name = os.path.basename(kernel)  # noqa: PTH119 - asked for every module of the process
    return path.endswith(name) and os.path.realpath(path) == kernel


def _telling(
    recorder: ProcessRecorder, launcher: LaunchFunction, original: Callable[..., Any]
) -> Callable[..., Any]:
    """What launches, and tells the recorder where a kernel of the file is meant."""
    known: dict[Any, bool] = {}

    @functools.wraps(original)
    def launch(*args: Any, **kwargs: Any) -> Any:
        function = launcher.function_of(*args, **kwargs)
        code = getattr(function, "__code__", None)
        if code is not None and not kwargs.get("warmup"):
            if code not in known:
                known[code] = os.path.realpath(code.co_filename) == recorder.kernel
            if known[code]:
                recorder.launched(kernel_name(function), _launching_module(), _dispatched)
        return original(*args, **kwargs)

    return launch


def _launching_module() -> str:
    """The module whose code launches, below that of the framework and ours."""
    frame = inspect.currentframe()
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in ("triton", "cuda", "tile_agent_pytest"):
            return name
        frame = frame.f_back
    return ""


def _dispatched() -> str:
    """The function that PyTorch's dispatcher has called, in which it is launched."""
    frame, outermost = inspect.currentframe(), ""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name == "torch._ops":
            return outermost
        if name.partition(".")[0] not in ("cuda", "tile_agent_pytest", "torch", "triton"):
            outermost = frame.f_code.co_name
        frame = frame.f_back
    return ""
