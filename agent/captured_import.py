"""From where a captured test imports its kernel: what `agent.capture` wrote into it, read again."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath

from agent.importers import module_of

_ADDED = re.compile(r'sys\.path\.insert\(0, str\(\(Path\(__file__\)\.parent / "([^"]+)"\)')
_LOADED = re.compile(r'^captured = load\(\s*"[^"]+",\s*"([^"]+)"', re.MULTILINE)
_TAKEN = re.compile(r"^from ([\w.]+) import", re.MULTILINE)


def added_folder(text: str, test: PurePosixPath) -> PurePosixPath | None:
    """The folder that a captured test puts on `sys.path`, to import its kernel from there.

    Args:
        text: of the test.
        test: its path; the folder's begins as it does.
    """
    added = _ADDED.search(text)
    return PurePosixPath(os.path.normpath(test.parent / added[1])) if added else None


def loaded_file(text: str, test: PurePosixPath) -> PurePosixPath | None:
    """The file that a captured test loads by its path; arguments are those of `added_folder`."""
    loaded = _LOADED.search(text)
    return PurePosixPath(os.path.normpath(test.parent / loaded[1])) if loaded else None


def takes(text: str, test: PurePosixPath, kernel: PurePosixPath) -> bool:
    """Whether a captured test is of a kernel, and not of another file of that name.

    One that imports no module of the name tells nothing, and is said to be.

    Args:
        text: of the test.
        test: its path.
        kernel: that of the file, which begins as the test's does.
    """
    place = module_of(str(kernel))
    loaded = loaded_file(text, test)
    if loaded is not None and loaded.name == kernel.name:
        return loaded == kernel
    ours = [m.split(".") for m in _TAKEN.findall(text) if m.rpartition(".")[2] == place.name]
    if (folder := added_folder(text, test)) is not None:
        return any(folder.joinpath(*parts) == place for parts in ours)
    return not ours or any(list(place.parts[-len(parts) :]) == parts for parts in ours)


def takes_by_place(text: str, test: PurePosixPath, kernel: PurePosixPath) -> bool:
    """Whether a captured test says where its kernel lies; arguments are those of `takes`."""
    says = added_folder(text, test) or loaded_file(text, test) == kernel
    return bool(says) and takes(text, test, kernel)
