"""Which of a project's own tests give way to captured ones, since they cannot be collected. Pure.

A `conftest.py` that cannot be imported ends the collection of all that is below its folder; a test
module may end the whole process.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from agent.frozen_tests import holds
from agent.measuring.subset import in_brief

MOST_NAMED = 3
"""Files, in a note."""
_CONFTEST = re.compile(r"(?:loading conftest '(.+?)'|(?:^|\s)(\S*?conftest\.py):\d+: )")


def conftest_of(account: str, root: Path) -> str:
    """The `conftest.py` that an account blames, from the root; empty where it blames none."""
    found = _CONFTEST.search(account.replace(f"{root}/", ""))
    path = (found[1] or found[2]) if found else ""
    return "" if path.startswith("/") else path


def giving_way(
    files: tuple[str, ...],
    uncollected: Sequence[str],
    captured: str,
    conftest: str,
) -> tuple[str, ...]:
    """The files to go on with, the captured one among them; all of them where none can be blamed.

    Args:
        files: files or node ids, of the project's own tests and the captured ones.
        uncollected: node ids of what could not be collected; an empty one where the worker ended
            before it told any.
        captured: the file that has to judge.
        conftest: the `conftest.py` that is to blame, if one is.
    """
    if conftest:
        folder = str(PurePosixPath(conftest).parent)
        if holds(folder, captured):
            return files
        return tuple(file for file in files if not holds(folder, file.partition("::")[0]))
    broken = {nodeid.partition("::")[0] for nodeid in uncollected}
    if "" in broken:  # nobody knows by which
        return tuple(file for file in files if holds(file.partition("::")[0], captured))
    if captured in broken:
        return files
    return tuple(file for file in files if file.partition("::")[0] not in broken)


def left_out(gone: Sequence[str], why: str) -> str:
    """A note on files that gave way."""
    are = "is" if len(gone) == 1 else "are"
    return (
        f"{in_brief(gone, MOST_NAMED)} {are} left out, and the captured tests judge without: {why}"
    )


def for_captured_too(kernel: str, captured: str, conftest: str) -> str:
    """What to do about a `conftest.py` that captured tests cannot do without.

    Args:
        kernel: the file.
        captured: the file of the captured tests.
        conftest: from the root.
    """
    folder = PurePosixPath(conftest).parent
    told = f"{conftest} is for the captured tests, too: mend and commit it"
    if folder == PurePosixPath():
        return told
    beside = shlex.quote(PurePosixPath(captured).name)
    return (
        f"{told}, or have them outside of {folder}/: tile-agent capture --kernel "
        f"{shlex.quote(kernel)} --output {beside} -- COMMAND; commit them, and run with --tests "
        f"{beside}"
    )
