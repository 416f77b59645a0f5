"""The folders of one worker: temporary files, and what compilers keep from run to run.

Packages read the variables that name them when they are imported, which was in the fork server.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

SCRATCH = "TILE_AGENT_SCRATCH"
"""The variable that names a folder of the fork server's, or of a worker's; it goes with either."""


def read_variables_again() -> list[str]:
    """Have the variables of this worker hold, and give the folders that it writes by them."""
    tempfile.tempdir = None
    folders = [tempfile.gettempdir(), os.environ.get(SCRATCH, "")]
    context = getattr(sys.modules.get("cuda.tile._cext"), "default_tile_context", None)
    config: Any = getattr(context, "config", None)
    if hasattr(config, "temp_dir"):
        config.temp_dir = os.environ.get("CUDA_TILE_TEMP_DIR") or tempfile.mkdtemp()
        folders.append(config.temp_dir)
    if getattr(config, "cache_dir", None) is not None:  # it may have been switched off
        config.cache_dir = os.environ.get("CUDA_TILE_CACHE_DIR") or tempfile.mkdtemp()
        folders.append(config.cache_dir)
    return [folder for folder in folders if folder]
