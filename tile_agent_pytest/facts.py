"""What an interpreter has installed, told without importing any of it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from tile_agent_pytest.sandbox import probe
from tile_agent_pytest.tile_ir.installed import installed

PACKAGES = ("torch", "triton", "cuda-tile", "nvidia-cuda-tileiras", "pytest")


def facts() -> dict[str, Any]:
    """The interpreter, the packages that matter (None: not installed), the Tile IR compiler.

    And how far the machine confines what it runs.
    """
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "versions": {name: _version(name) for name in PACKAGES},
        "tileiras": _tileiras(),
        "tile_ir": installed(),
        "sandbox": probe(),
    }


def main(job: dict[str, Any]) -> None:
    """Tell them in a line of JSON, in the file that the job's `answers` names."""
    Path(job["answers"]).write_text(json.dumps(facts()) + "\n", encoding="utf-8")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _tileiras() -> str | None:
    """Where cuda.tile would find its compiler: the pip package, PATH, then CUDA_HOME."""
    try:
        files = metadata.files("nvidia-cuda-tileiras") or []
    except metadata.PackageNotFoundError:
        files = []
    packaged = [Path(str(f.locate())) for f in files if f.name == "tileiras"]
    on_path = [Path(found)] if (found := shutil.which("tileiras")) else []
    home = os.environ.get("CUDA_HOME")
    at_home = [Path(home) / "bin" / "tileiras"] if home else []
    for place in (*packaged, *on_path, *at_home):
        if os.access(place, os.X_OK):
            return str(place)
    return None
