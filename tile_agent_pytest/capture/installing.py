"""Puts the recorder in place in a process, before anything of the command is imported.

Triton, its interpreter and cuda.tile are looked at when they have been imported, the kernel's file
when it has.
"""

from __future__ import annotations

import functools
import inspect
import os
import types
from collections.abc import Callable, Mapping
from typing import Any

from tile_agent_pytest import mended_interpreter
from tile_agent_pytest.capture.call_recorder import ProcessRecorder
from tile_agent_pytest.capture.elsewhere import held_kernels
from tile_agent_pytest.capture.entry_points import watch_entry_points
from tile_agent_pytest.compiled_ahead import compile_configs_first
from tile_agent_pytest.launch_functions import LaunchFunction
from tile_agent_pytest.recording.launch_watch import LAUNCHING_MODULES, watch_launches
from tile_agent_pytest.recording.loading import when_loaded


def install(setting: Mapping[str, Any]) -> None:
    """Record from here on.

    Args:
        setting: `kernel`, the path of its file, and `folder`, where records go.
    """
    kernel = os.path.realpath(setting["kernel"])
    recorder = ProcessRecorder(kernel, setting["folder"])
    telling = functools.partial(_telling, recorder)
    files: list[types.ModuleType] = []  # the kernel's, under each name that it was imported by

    def loaded(module: types.ModuleType, path: str) -> None:
        if module.__name__ in mended_interpreter.NEEDED:
            mended_interpreter.mend()
        if module.__name__ == "triton.runtime.autotuner":
            compile_configs_first(module.Autotuner)
        if module.__name__ in LAUNCHING_MODULES:
            watch_launches(telling)
        elif _is(path, kernel):
            watch_launches(telling)  # a plugin may have put its own in place meanwhile
            watch_entry_points(module, recorder)
            files.append(module)
        elif files and (held := held_kernels(module, path, files)):
            watch_entry_points(module, recorder, held)

    when_loaded(loaded)


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
                recorder.launched(function.__name__, _launching_module())
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
