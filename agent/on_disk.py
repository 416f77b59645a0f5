"""The Python files of a project as they lie on the disk, as a tree like that of a commit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.importers import Tree


def on_disk(root: Path, *, whole: bool) -> Tree:
    """The Python files of a folder.

    Args:
        root: the folder.
        whole: whether all folders in it belong to it; only `tests` and `test` do otherwise.
    """
    files: list[str] = []
    for folder, folders, names in os.walk(root):
        place = Path(folder)
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__pycache__")
        if not whole and place == root:
            folders[:] = [f for f in folders if f in ("tests", "test")]
        files += [(place / n).relative_to(root).as_posix() for n in names if n.endswith(".py")]

    def read(paths: Iterable[str]) -> Mapping[str, bytes]:
        return {path: (root / path).read_bytes() for path in paths}

    return Tree(root, sorted(files), read)
