"""Puts the recorder in place in a process, before anything of the command is imported.

Triton, its interpreter and cuda.tile are looked at when they have been imported, the kernel's file
when it has: by whatever means, for all of them go through the loader of source files.
"""

from __future__ import annotations

import json
import os
import types
from importlib.machinery import SourceFileLoader
from typing import Any

from tile_agent_pytest import mended_interpreter
from tile_agent_pytest.capture.call_recorder import ProcessRecorder
from tile_agent_pytest.capture.entry_points import watch_entry_points
from tile_agent_pytest.capture.launch_watch import LAUNCHING_MODULES, watch_launches


def install(setting: str) -> None:
    """Record from here on.

    Args:
        setting: JSON with `kernel`, the path of its file, and `folder`, where records go.
    """
    given = json.loads(setting)
    kernel = os.path.realpath(given["kernel"])
    recorder = ProcessRecorder(kernel, given["folder"])
    original = SourceFileLoader.exec_module

    def exec_module(loader: SourceFileLoader, module: types.ModuleType) -> None:
        original(loader, module)
        if module.__name__ in mended_interpreter.MODULES:
            mended_interpreter.mend()
        if module.__name__ in LAUNCHING_MODULES:
            watch_launches(recorder)
        elif _is(loader.path, kernel):
            watch_launches(recorder)  # a plugin may have put its own in place meanwhile
            watch_entry_points(module, recorder)

    replaced: Any = SourceFileLoader
    replaced.exec_module = exec_module


def _is(path: str, kernel: str) -> bool:
    name = os.path.basename(kernel)  # noqa: PTH119 - asked for every module of the process
    return path.endswith(name) and os.path.realpath(path) == kernel
