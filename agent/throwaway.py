"""Worktrees of a command that begins no run, as `explain` and `plan`: they go when it ends.

One that is killed outright takes nothing away. What it left behind goes with the next such command
in the repository: a worktree that stays registered would hold its commit against git's collection.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import psutil

from agent.repository import Repository
from agent.workspace import Workspace

_NAME = re.compile(r"once-(?P<pid>\d+)-\d+-(?P<host>.*)", re.DOTALL)
_NUMBERS = count()


@contextmanager
def throwaway(repository: Repository) -> Iterator[Workspace]:
    """A workspace of this process alone, whose worktrees are removed in the end."""
    _remove_left_behind(repository)
    # A home folder may be shared by machines, of which each counts its processes by itself.
    name = f"once-{os.getpid()}-{next(_NUMBERS)}-{platform.node()}"
    workspace = Workspace(repository, name)
    try:
        yield workspace
    finally:
        workspace.close()


def _remove_left_behind(repository: Repository) -> None:
    ours = Workspace(repository, "").folder
    names = {path.parent.name for path in repository.worktrees() if path.parents[1] == ours}
    for name in sorted(names):
        found = _NAME.fullmatch(name)
        if found and found["host"] == platform.node() and not psutil.pid_exists(int(found["pid"])):
            Workspace(repository, name).close()
