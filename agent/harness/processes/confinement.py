"""How the workers of a fork server are confined: what they may write, read and take."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.environment import describe_sandbox
from agent.errors import UsageError
from agent.options import Options, Sandbox
from tile_agent_pytest.sandbox import SYSCALLS
from tile_agent_pytest.watchdog import allowed_bytes

_LOST = re.compile(r"KeyError: '([A-Za-z_][A-Za-z0-9_]*)'")
_REFUSED = re.compile(
    r"PermissionError|Permission denied|Operation not permitted|Errno 1\]|EPERM|OS call failed"
)
_REMEDY = (
    "workers are confined: they write only where their temporary files are, and reach no network; "
    "let the tests use tmp_path, or give --sandbox off"
)


@dataclass(frozen=True)
class Limits:
    """What a worker is ended for."""

    file_bytes: int = 2**30
    """The most that a file may grow to."""
    memory_bytes: int = field(default_factory=allowed_bytes)
    """What all workers together may take; then the largest ends."""
    processes: int = 1024


@dataclass(frozen=True)
class Confinement:
    """Of every worker of a server. The limits hold where nothing else is confined, too."""

    strict: bool = True
    write: tuple[Path, ...] = ()
    hide: tuple[Path, ...] = ()
    """What no worker may read, besides the places where secrets are kept."""
    limits: Limits = field(default_factory=Limits)

    def of(self, write: Iterable[Path], read: Iterable[Path]) -> dict[str, Any]:
        """What the job of a worker says of it; `tile_agent_pytest.sandbox.enter` reads that."""
        rules = {
            "write": [str(path) for path in (*self.write, *write)],
            "read": [str(path) for path in read],
            "hide": [str(path) for path in self.hide],
        }
        limits = {"file_bytes": self.limits.file_bytes}
        return {"sandbox": rules if self.strict else None, "limits": limits}


def for_run(options: Options, root: Path) -> Confinement:
    """Of the workers of a run.

    Args:
        options: of the run.
        root: of the user's checkout, in which people keep secrets too.
    """
    strict = options.sandbox is Sandbox.STRICT
    return Confinement(strict, hide=(root / ".env", root / ".envrc"))


def insist(options: Options, sandbox: Mapping[str, Any]) -> None:
    """Look whether workers are confined as far as can be, where the user wants that.

    Raises:
        UsageError: they are not.
    """
    if not options.require_sandbox:
        return
    if options.sandbox is Sandbox.OFF:
        raise UsageError("--require-sandbox and --sandbox off contradict each other: leave one out")
    if sandbox.get("tier", 0) < SYSCALLS:
        raise UsageError(
            f"this machine cannot confine workers ({describe_sandbox(sandbox)}): use one whose "
            "kernel has Landlock and seccomp, or leave out --require-sandbox"
        )


def remedy(options: Options, reason: str) -> str:
    """What to add to the reason for which a baseline fails; empty where we had no part in it."""
    lost = _LOST.search(reason)
    if lost and lost[1] in os.environ and lost[1] not in options.command.pass_env:
        if f"--pass-env {lost[1]}" in reason:
            return ""
        return f" ({lost[1]} was not handed on: --pass-env {lost[1]})"
    refused = options.sandbox is Sandbox.STRICT and _REFUSED.search(reason)
    return f" ({_REMEDY})" if refused else ""
