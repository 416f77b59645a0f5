"""What installed packages say of themselves, read once by the fork server for all its workers.

At each start pytest reads the entry points of every installed package, twice, and the list of files
of its plugins: a fifth of what a worker's start takes. A package that was changed since is read
again.

Triton takes a digest of its own library, by which it knows the kernels in its cache.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import sys
from typing import Any

PLUGINS = "pytest11"
"""The group of pytest's plugins, whose files it reads, too."""
READ = ("entry_points", "files")


def keep() -> None:
    """Have the metadata of what is installed now kept; once for a process and its forks."""
    kind: Any = importlib.metadata.PathDistribution
    if any(name in vars(kind) for name in READ):
        return
    kept: dict[tuple[str, str, int], Any] = {}
    for name in READ:
        setattr(kind, name, _kept(kind, name, kept))
    for found in importlib.metadata.distributions():
        with contextlib.suppress(Exception):  # it is met again where it counts
            key = _key(found, "entry_points")
            if key is not None:
                kept[key] = found.entry_points
                if any(entry.group == PLUGINS for entry in kept[key]):
                    kept["files", *key[1:]] = found.files


def _kept(kind: Any, name: str, kept: dict[tuple[str, str, int], Any]) -> property:
    read = getattr(kind, name).fget

    def get(distribution: Any) -> Any:
        key = _key(distribution, name)
        return kept[key] if key in kept else read(distribution)

    return property(get)


def _key(distribution: Any, name: str) -> tuple[str, str, int] | None:
    """The place of a package's metadata, and when a file was last put there; None: not a folder."""
    path = str(getattr(distribution, "_path", ""))
    try:
        return name, path, os.stat(path).st_mtime_ns  # noqa: PTH116 - some hundred times a worker
    except OSError:
        return None


# The latter is where it is before Triton 3.5.
_DIGEST = ("triton.runtime.cache", "triton.compiler.compiler")


def keep_digest_of_triton() -> None:
    """Have Triton, where it is imported and compiles, take the digest that it takes once a process.

    For each worker that would be a second of processor time: its library has 500 MB.
    """
    if "triton" not in sys.modules or os.environ.get("TRITON_INTERPRET") == "1":
        return
    for module in _DIGEST:
        with contextlib.suppress(ImportError, AttributeError, OSError):
            importlib.import_module(module).triton_key()
            return
