"""By which name, and from which folder, a test imports a kernel's file that a command has found.

A command may have put the file's own folder on `sys.path`, or have loaded it by its path, so as not
to import a package that wants a whole server. A test does the same then.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from agent.importers import module_of


@dataclass(frozen=True)
class ImportPlace:
    """How a test imports a file."""

    module: str
    folder: Path | None
    """What the test puts on `sys.path`; None where the project's folders are enough."""

    @classmethod
    def of(cls, recorded: str, file: Path, roots: Collection[Path]) -> ImportPlace:
        """Of a file, as a command has imported it.

        Args:
            recorded: the name of its module in the command.
            file: where it lies, absolute.
            roots: from where a project's modules are imported, without more.
        """
        place = module_of(str(file))
        parts = tuple(recorded.split("."))
        if place.parts[-len(parts) :] != parts:  # a name that whoever loaded it made up
            if not place.name.isidentifier():
                return cls(recorded, None)  # no statement imports it
            parts = (place.name,)
        folder = Path(*place.parts[: -len(parts)])
        return cls(".".join(parts), None if folder in roots else folder)
