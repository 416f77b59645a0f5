"""What compiling needs and an interpreter lacks, told with its mend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
            raise UsageError(missing_in_words(python, answer, root))
        if answer["event"] == "missing":
            missing.append(answer["what"])
        if answer["event"] == "tools":
            missing += [name for name in ("cuobjdump", "nvdisasm") if answer[name] is None]
    if missing:
        raise UsageError(lacking(python, missing[0]))


def missing_in_words(python: str, answer: Mapping[str, Any], root: Path | None = None) -> str:
    """What an interpreter lacks; of what is there and fails to be imported, why.

    Args:
        python: the interpreter.
        answer: what it told: what is missing, and the `place` of what cannot be imported.
        root: of a checkout that could hide what is installed; None where nothing can.
    """
    name = answer["what"]
    if not answer.get("place"):
        return lacking(python, name)
    place, text = Path(answer["place"]), answer["text"]
    text = " ".join((text.replace(f"{root}{os.sep}", "") if root else text).split())
    told = f"{python} cannot import {name}: {text}"
    if root is None or not place.is_relative_to(root):
        return f"{told} (in {place}): {installing(python, name)} --force-reinstall"
    own = place.parent.relative_to(root) if place.name == "__init__.py" else place.relative_to(root)
    return (
        f"{told}; {own} of the repository, as it is committed, comes before the {name} that is "
        "installed: name a copy of the kernel's file outside of the repository"
    )
