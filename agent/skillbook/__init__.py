"""The skills for coding assistants that ship with tile-agent: their format, checks and folders."""

from __future__ import annotations

from pathlib import Path

from agent.errors import UsageError

SHIPPED = Path(__file__).parent.parent / "skills"
"""One folder a skill; its name is the skill's."""


def shipped(names: tuple[str, ...] = ()) -> tuple[Path, ...]:
    """The folders of the skills of these names; of all of them when none is named.

    Raises:
        UsageError: no skill has such a name; the message lists those that exist.
    """
    folders = {path.parent.name: path.parent for path in sorted(SHIPPED.glob("*/SKILL.md"))}
    if unknown := [name for name in names if name not in folders]:
        raise UsageError(f"no skill is called {unknown[0]!r}: choose from {', '.join(folders)}")
    return tuple(folders[name] for name in dict.fromkeys(names or folders))
