"""Has plain pytest tune as workers do in correctness tests: side by side, and roughly.

A plugin for `-p`, for what tile-agent itself runs with pytest outside of a worker, on a GPU. It
acts when it is imported, as `mending_plugin` does.
"""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from pathlib import Path

from tile_agent_pytest import tuned

for name in ("triton.runtime.autotuner", "cuda.tile.tune"):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
_choices = tempfile.TemporaryDirectory(prefix="tile-agent-tuned-")
tuned.hold(Path(_choices.name), lambda: "")
