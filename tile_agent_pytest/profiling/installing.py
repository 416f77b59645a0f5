"""Puts the profile in place in a process, before anything of the command is imported."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import Any

from tile_agent_pytest import mended_interpreter
from tile_agent_pytest.profiling.process_profile import ProcessProfile
from tile_agent_pytest.recording.launch_watch import LAUNCHING_MODULES, watch_launches
from tile_agent_pytest.recording.loading import when_loaded


def install(setting: Mapping[str, Any]) -> None:
    """Record from here on.

    Args:
        setting: `folder`, where records go.
    """
    profile = ProcessProfile(setting["folder"])

    def loaded(module: types.ModuleType, _path: str) -> None:
        if module.__name__ in mended_interpreter.NEEDED:
            mended_interpreter.mend()
        if module.__name__ in LAUNCHING_MODULES:
            watch_launches(profile.watching)
        elif module.__name__ == "torch":  # with all that it imports
            profile.gpu.begin_with_cuda(module.cuda)
            profile.gpu.give_way(sys.modules["torch.autograd.profiler"])

    when_loaded(loaded)
