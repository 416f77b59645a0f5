"""What compiling needs and an interpreter lacks, told with its mend."""

from __future__ import annotations

import os
from pathlib import Path

from agent.errors import UsageError
from agent.harness.compiling.needed import installing, lacking
from agent.harness.processes.script import ScriptEnd


def check_missing(ended: ScriptEnd, python: str, root: Path) -> None:
    """Refuse to go on without what is needed.

    Args:
        ended: what `tile_agent_pytest.artifacts` told.
        python: the interpreter that ran it.
        root: of the checkout, which may hold a package of the name of one that is installed.

    Raises:
        UsageError: a package or a tool is missing, or there and cannot be imported.
    """
    missing = []
    for answer in ended.answers:
        if answer["event"] == "missing" and answer.get("place"):
            raise UsageError(_not_imported(python, root, answer["what"], answer))
        if answer["event"] == "missing":
            missing.append(answer["what"])
        if answer["event"] == "tools":
            missing += [name for name in ("cuobjdump", "nvdisasm") if answer[name] is None]
    if missing:
        raise UsageError(lacking(python, missing[0]))


def _not_imported(python: str, root: Path, name: str, answer: dict[str, str]) -> str:
    place, inside = Path(answer["place"]), f"{root}{os.sep}"
    text = " ".join(answer["text"].replace(inside, "").split())
    told = f"{python} cannot import {name}: {text}"
    if not place.is_relative_to(root):
        return f"{told} (in {place}): {installing(python, name)} --force-reinstall"
    own = place.parent.relative_to(root) if place.name == "__init__.py" else place.relative_to(root)
    return (
        f"{told}; {own} of the repository, as it is committed, comes before the {name} that is "
        "installed: name a copy of the kernel's file outside of the repository"
    )
