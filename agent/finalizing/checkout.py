"""The kernel in the user's checkout: the one file of theirs that a run's end may be written to.

Only where they ask for it, and only over what is in git.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from agent.errors import UsageError
from agent.repository import Repository, shown


def check_unchanged(repository: Repository, path: str, expected: bytes) -> Path:
    """The file, with links followed, where it holds what is expected.

    Raises:
        UsageError: it does not, or is not there, or lies outside of the checkout.
    """
    file = (repository.root / path).resolve()
    try:
        if file.is_relative_to(repository.root) and file.read_bytes() == expected:
            return file
    except OSError as problem:
        raise UsageError(f"{shown(path)} cannot be read: {problem.strerror}") from None
    raise UsageError(
        f"{shown(path)} in your checkout is not, byte for byte, what the run began with: "
        "leave --apply out, and merge the branch when your own change is committed"
    )


def swap(repository: Repository, path: str, expected: bytes, content: bytes) -> None:
    """Write the file whole or not at all, if it holds what is expected.

    What it held is in git: nothing is lost. Its mode stays. It is compared once more right before
    the rename, which is as near as a file system without locks comes to a compare-and-swap.

    Raises:
        UsageError: it holds something else, or cannot be written; it is as it was.
    """
    file = check_unchanged(repository, path, expected)
    try:
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        fresh = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            shutil.copymode(file, fresh)
            check_unchanged(repository, path, expected)
            fresh.replace(file)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as problem:
        raise UsageError(f"{shown(path)} cannot be written: {problem.strerror}") from None
