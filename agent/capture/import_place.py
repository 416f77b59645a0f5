"""By which name, and from which folder, a test imports a kernel's file that a command has found.

A command may have put the file's own folder on `sys.path`, or have loaded it by its path, so as not
to import a package that wants a whole server. A test does the same then.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from agent.importers import module_of

_RELATIVE = re.compile(r"^\s*from\s+\.", re.MULTILINE)
_TAKEN = frozenset({*sys.stdlib_module_names, "numpy", "pytest", "torch", "triton"})
"""What a test has imported by such a name is another file."""


@dataclass(frozen=True)
class ImportPlace:
    """How a test imports a file."""

    module: str
    folder: Path | None = None
    """What the test puts on `sys.path`; None where the project's folders are enough."""
    file: Path | None = None
    """What the test loads as the module, by its path; None where it is imported by its name."""

    @classmethod
    def of(
        cls,
        recorded: str,
        file: Path,
        text: str,
        roots: Collection[Path],
        *,
        is_shadowed: bool = False,
    ) -> ImportPlace:
        """Of a file, as a command has imported it.

        Args:
            recorded: the name of its module in the command.
            file: where it lies, absolute.
            text: what it holds.
            roots: from where a project's modules are imported, without more; that above the file's
                package is among them, where it is in one.
            is_shadowed: whether the folder that the module's name begins with is a namespace, and a
                module beside the file has its name: with both on `sys.path` that one is found.
        """
        place = module_of(str(file))
        parts = tuple(recorded.split("."))
        is_made_up = place.parts[-len(parts) :] != parts  # by whoever loaded it
        if is_made_up and _RELATIVE.search(text):  # it finds its neighbours by its true name alone
            above = [root for root in roots if place.is_relative_to(root)]
            if above:
                nearest = max(above, key=lambda root: len(root.parts))
                return cls(".".join(place.relative_to(nearest).parts))
        if is_made_up:
            parts = (place.name,)
        hidden = is_shadowed and len(parts) > 1 and not _RELATIVE.search(text)
        if hidden or parts[0] in _TAKEN or (is_made_up and not parts[0].isidentifier()):
            return cls(recorded, file=file)  # no statement imports it
        folder = Path(*place.parts[: -len(parts)])
        return cls(".".join(parts), None if folder in roots else folder)
