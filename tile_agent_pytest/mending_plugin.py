"""Has plain pytest run kernels as workers do: in Triton's interpreter, put right where it differs.

A plugin for `-p`, for what tile-agent itself runs with pytest outside of a worker. It acts when it
is imported, for a hook of pytest comes after `conftest.py`, which may import kernels.
"""

from __future__ import annotations

import contextlib
import importlib

from tile_agent_pytest import mended_interpreter

for name in ("torch", "triton"):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
mended_interpreter.mend_all()
