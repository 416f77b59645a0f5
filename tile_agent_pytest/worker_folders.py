"""The folders of one worker: temporary files, and what compilers keep from run to run.

Packages read the variables that name them when they are imported, which was in the fork server.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

SCRATCH = "TILE_AGENT_SCRATCH"
"""The variable that names a folder of the fork server's, or of a worker's; it goes with either."""


def user_cache() -> Path:
    """Where packages keep what they have computed or fetched, unless told otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())


def link_cache(kept: Path) -> None:
    """Have what lies in a folder found in this worker's `XDG_CACHE_HOME`, where it may add to it.

    A model that was fetched stays found; a package that makes a folder of its own when it is
    imported does not end the worker with that.
    """
    own = user_cache()
    if own == kept:
        return
    own.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # it need not be there
        for entry in list(kept.iterdir()):
            with contextlib.suppress(FileExistsError):  # by another worker of the same commit
                (own / entry.name).symlink_to(entry)


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
