"""What a benchmark script writes beside itself goes elsewhere, where a worker may not write there.

`os.makedirs("results")`, a table, a plot: scripts have them, and nobody asks for them here. They
lie in the worker's own temporary folder and go with it; the script reads there what it wrote.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock


@contextlib.contextmanager
def written_aside(root: Path) -> Iterator[None]:
    """Make folders and files below a folder elsewhere, where they cannot be made there.

    Args:
        root: the checkout.
    """
    aside = Path(tempfile.mkdtemp(prefix="written-"))
    mkdir, open_ = os.mkdir, builtins.open

    def place(path: Any) -> Path | None:
        """Where it is made then; None for what is not below the folder."""
        try:
            below = os.path.relpath(os.path.realpath(os.fsdecode(path)), os.path.realpath(root))
        except TypeError:  # a file's number
            return None
        return None if below.startswith("..") else aside / below

    def made(path: Any, *args: Any, **kwargs: Any) -> None:
        try:
            mkdir(path, *args, **kwargs)
        except (PermissionError, FileNotFoundError) as problem:
            there = place(path)
            if there is None or (
                isinstance(problem, FileNotFoundError) and not there.parent.is_dir()
            ):
                raise
            if not there.is_dir():  # the script looks for it where it asked for it, in vain
                there.parent.mkdir(parents=True, exist_ok=True)
                mkdir(there)

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        try:
            return open_(file, mode, *args, **kwargs)
        except (PermissionError, FileNotFoundError) as problem:
            writes, there = bool({*mode} & {*"wax"}), place(file)
            if there is not None and writes and isinstance(problem, PermissionError):
                there.parent.mkdir(parents=True, exist_ok=True)
            if there is None or not (there.parent.is_dir() if writes else there.exists()):
                raise
            return open_(there, mode, *args, **kwargs)

    with (
        mock.patch.object(os, "mkdir", made),
        mock.patch.object(builtins, "open", opened),
        mock.patch.object(io, "open", opened),
    ):
        yield
