"""Defaults from a file: the table `[tool.tile-agent]` of the nearest pyproject.toml.

What it says comes after the command line and the environment. It can hold any option of `run` and
`begin` that has a value, with hyphens or underscores; never a key of a model's provider.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from agent.errors import UsageError

FILE = "pyproject.toml"
TABLE = "tool.tile-agent"
NOT_CONFIGURED = {"kernel", "capture", "remember_source"}
"""What belongs to one run, and what cloning a repository should not give to its runs: a command,
and source in a store that other repositories see."""
CONFIGURABLE = {"run": False, "plan": False, "begin": True}
"""The commands whose defaults a file may set, and whether an assistant leads what they begin."""


def defaults(folder: Path) -> dict[str, Any]:
    """What click takes as `default_map`.

    Args:
        folder: where to look first; then in its parents, up to the root of the repository.

    Raises:
        UsageError: the file cannot be read, or sets what is no option.
    """
    found = _table(folder)
    if found is None:
        return {}
    path, table = found
    known = {command: _settable(led) for command, led in CONFIGURABLE.items()}
    values = {key.replace("-", "_"): value for key, value in table.items()}
    for key in values:
        if not any(key in names for names in known.values()):
            options = sorted(set().union(*known.values()))
            raise UsageError(
                f"{path} sets {key!r} in [{TABLE}], which is no option; there are: "
                f"{', '.join(option.replace('_', '-') for option in options)}"
            )
    return {
        command: {key: value for key, value in values.items() if key in names}
        for command, names in known.items()
    }


def _settable(led: bool) -> set[str]:
    from agent.settings import settings

    return {setting.name for setting in settings(led=led)} - NOT_CONFIGURED


def _table(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    for place in (folder, *folder.parents):
        path = place / FILE
        if path.is_file():
            try:
                content = tomllib.loads(path.read_text(encoding="utf-8"))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as problem:
                raise UsageError(f"{path} cannot be read: {problem}") from None
            table = content.get("tool", {}).get("tile-agent")
            if table is not None:
                if not isinstance(table, dict):
                    raise UsageError(f"[{TABLE}] of {path} is no table")
                return path, table
        if (place / ".git").exists():
            break
    return None
