"""Fetches public projects that hold Triton or cuTile kernels, to read; installs nothing.

The wheels come from whatever package index pip is configured for. Nothing of them is copied into
the repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PROJECTS = (
    ("adasplash", "0.2.2"),
    ("conch-triton-kernels", "1.3"),
    ("cut-cross-entropy", "25.1.1"),
    ("fla-core", "0.6.0"),
    ("flag-gems", "5.0.2"),
    ("flash-kmeans", "0.3.1"),
    ("liger-kernel", "0.8.5"),
    ("mlstm-kernels", "2.0.6"),
)
"""Distribution and version; pure-Python wheels, 5 MB together."""
MORE_PROJECTS = (
    ("attn-gym", "0.0.17"),
    ("sageattention", "1.0.6"),
    ("sglang", "0.5.23"),
    ("tilegym", "1.5.1"),
    ("unsloth", "2026.10.9"),
)
"""What `benchmarks.reach` looks at besides; 70 MB together."""
DEPENDENCIES = (("einops", "0.8.1"),)
"""What fla-core needs to be imported, besides what the tests have."""
VENDORS = "flag_gems/runtime/backend/_"
"""What begins with it are some 800 variations of flag-gems' own kernels for other makers."""
TIMEOUT_S = 120


class Unavailable(Exception):
    """A wheel cannot be had; the message says which and what pip said."""


def cache() -> Path:
    """Where the unpacked wheels are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tile-agent" / "corpus"


def fetch(name: str, version: str, folder: Path) -> Path:
    """The unpacked wheel of a project, downloaded where the folder does not hold it yet.

    Raises:
        Unavailable: pip cannot download it.
    """
    target = folder / f"{name}-{version}"
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--dest", work]
        command = [sys.executable, "-m", "pip", "download", *options, f"{name}=={version}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{name} {version}: not downloaded after {TIMEOUT_S} s") from None
        if done.returncode:
            problem = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise Unavailable(f"{name} {version}: {problem}")
        unpacked = Path(work) / "unpacked"
        for wheel in Path(work).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked)
        try:
            unpacked.rename(target)
        except OSError:  # another process was first
            if not target.is_dir():
                raise
    return target


def files(folder: Path) -> list[Path]:
    """The files of a project that may hold a Triton kernel, in a fixed order."""
    found = (path for path in sorted(folder.rglob("*.py")) if b"triton" in path.read_bytes())
    return [path for path in found if VENDORS not in path.relative_to(folder).as_posix()]
