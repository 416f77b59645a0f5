"""Where coding assistants look for skills."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

from agent.errors import UsageError

ALL = "all"


class Scope(StrEnum):
    """For whom a skill is installed."""

    USER = "user"
    PROJECT = "project"


@dataclass(frozen=True)
class Assistant:
    """An assistant and the folder it is given skills in, from the repository or from home."""

    name: str
    project: PurePosixPath
    user: PurePosixPath
    home: str = ""
    """An environment variable that moves the first part of `user`."""


def _shared(name: str) -> Assistant:
    """One that reads the folder that the assistants share, in the project and at home."""
    folder = PurePosixPath(".agents/skills")
    return Assistant(name, folder, folder)


_CLAUDE = PurePosixPath(".claude/skills")
_CURSOR = PurePosixPath(".cursor/skills")
ASSISTANTS = {
    assistant.name: assistant
    for assistant in (
        # https://code.claude.com/docs/en/skills
        Assistant("claude", _CLAUDE, _CLAUDE, home="CLAUDE_CONFIG_DIR"),
        # https://developers.openai.com/codex/skills; older versions: ~/.codex/skills, see `--to`
        _shared("codex"),
        # https://cursor.com/docs/context/skills; `.agents/skills` too, but that at home is not in
        # all versions
        Assistant("cursor", _CURSOR, _CURSOR),
        # https://geminicli.com/docs/cli/using-agent-skills: an alias of .gemini/skills
        _shared("gemini"),
        # https://docs.github.com/en/copilot/concepts/agents/about-agent-skills
        _shared("copilot"),
        # https://opencode.ai/docs/skills
        _shared("opencode"),
    )
}


def folders(names: Iterable[str], scope: Scope, root: Path) -> dict[Path, tuple[str, ...]]:
    """The skills folders of some assistants, each with who reads it; `root` is the project's.

    Raises:
        UsageError: no assistant has such a name.
    """
    chosen = list(dict.fromkeys(names))
    if unknown := [name for name in chosen if name not in (*ASSISTANTS, ALL)]:
        raise UsageError(
            f"no assistant is called {unknown[0]!r}: choose from {', '.join((*ASSISTANTS, ALL))}, "
            "or name its skills folder with --to"
        )
    found: dict[Path, tuple[str, ...]] = {}
    for assistant in ASSISTANTS.values():
        if assistant.name in chosen or ALL in chosen:
            folder = _folder(assistant, scope, root)
            found[folder] = (*found.get(folder, ()), assistant.name)
    return found


def _folder(assistant: Assistant, scope: Scope, root: Path) -> Path:
    if scope is Scope.PROJECT:
        return root / assistant.project
    moved = os.environ.get(assistant.home) if assistant.home else None
    if moved:
        return Path(moved).expanduser() / assistant.user.relative_to(assistant.user.parts[0])
    return Path.home() / assistant.user
