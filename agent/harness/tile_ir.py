"""Asks an interpreter what it can do with Triton and its Tile IR backend."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tile_agent_pytest
from agent.environment import Gpu
from agent.harness.processes.script import run_script
from agent.tileir.machine import Machine, of_probe

PROBE_S = 120.0


def read_machine(gpu: Gpu | None, python: str, *, ask_stock: bool = True) -> Machine:
    """Probe an interpreter; a second time with ENABLE_TILE=1 where the backend is installed.

    Args:
        gpu: the one a run would use.
        python: the interpreter.
        ask_stock: import Triton also where it has no Tile IR backend, to say what is active.

    Raises:
        UsageError: the interpreter cannot be run.
    """
    now = _probe(python, "installed", {})
    has_backend = bool(now["installed"].get("backend"))
    if has_backend or (ask_stock and now["installed"].get("triton")):
        now = _probe(python, "probe", {})
    with_tile = None
    if has_backend and os.environ.get("ENABLE_TILE") != "1":
        with_tile = _probe(python, "probe", {"ENABLE_TILE": "1"})
    return of_probe(gpu, os.environ, now, with_tile)


def _probe(python: str, program: str, variables: Mapping[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tile-agent-tile-ir-") as scratch:
        folder = Path(scratch)
        ended = run_script(
            [python, str(Path(tile_agent_pytest.__file__).parent), "tile-ir"],
            {"program": program},
            cwd=Path.cwd(),
            variables=variables,
            scratch=folder,
            timeout_s=PROBE_S,
        )
    facts: dict[str, Any] = {
        "installed": {},
        "triton_version": None,
        "triton_error": None,
        "target": None,
        "target_error": None,
    }
    for answer in ended.answers:
        facts |= {"installed": answer} if answer["event"] == "installed" else answer
    if program == "probe" and "event" not in facts:
        facts["triton_error"] = f"importing it ends the process: {ended.fate}"
    return facts
