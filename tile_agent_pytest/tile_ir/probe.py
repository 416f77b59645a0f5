"""Whether Triton's Tile IR backend is there, and which backend would compile now."""

from __future__ import annotations

import importlib
from typing import Any

Message = dict[str, Any]


def probe() -> Message:
    """Import Triton and ask it. Nothing here may crash: what fails is a fact too."""
    found: Message = {
        "triton_version": None,
        "triton_error": None,
        "target": None,
        "target_error": None,
    }
    try:
        triton: Any = importlib.import_module("triton")
    except BaseException as problem:  # a broken install raises anything
        found["triton_error"] = in_one_line(problem)
        return found
    found["triton_version"] = str(getattr(triton, "__version__", "unknown"))
    found["target"], found["target_error"] = target()
    return found


def target() -> tuple[Message | None, str | None]:
    """The backend and the architecture that a launch would compile for, or why there is none."""
    try:
        driver = importlib.import_module("triton.runtime").driver
        found = driver.active.get_current_target()
        return {"backend": str(found.backend), "arch": str(found.arch)}, None
    except BaseException as problem:  # "0 active drivers" is a RuntimeError
        return None, in_one_line(problem)


def in_one_line(problem: BaseException) -> str:
    """A problem as one line."""
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
