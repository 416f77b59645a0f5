"""What another interpreter can do on this machine: that of the user's environment."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tile_agent_pytest
from agent.environment import Environment, assemble, probe
from agent.errors import UsageError
from agent.harness.processes.script import run_script

TIMEOUT_S = 60.0
_PYTHON = re.compile(r"python[0-9.]*")
_SHEBANG = 256
"""As much of a first line as Linux reads."""


def environment_of(python: str) -> Environment:
    """This machine, and what an interpreter has installed; our own is not started for it.

    Raises:
        UsageError: the interpreter cannot be run.
    """
    if python == sys.executable:
        return probe()
    with tempfile.TemporaryDirectory(prefix="tile-agent-facts-") as scratch:
        ended = run_script(
            [python, str(Path(tile_agent_pytest.__file__).parent), "facts"],
            {},
            cwd=Path.cwd(),
            variables={},
            scratch=Path(scratch),
            timeout_s=TIMEOUT_S,
        )
    if not ended.answers:
        raise UsageError(
            f"{python} cannot tell what it has installed ({ended.fate}): name another interpreter "
            "with --python"
        )
    return assemble(ended.answers[0])


def check_triton(python: str) -> None:
    """Raise `UsageError` where an interpreter has too old a Triton, or cannot be run."""
    if old := environment_of(python).old_triton:
        raise UsageError(old)


def check_triton_of(command: Sequence[str]) -> None:
    """Raise `UsageError` where the Python of a command is seen to have too old a Triton.

    It is seen of `python script.py`, and of what pip has put beside a Python, as pytest and
    torchrun; not behind a shell, `env` or another launcher.
    """
    python = _python_of(command[0]) if command else None
    if python is None:
        return
    try:
        environment = environment_of(python)
    except UsageError:
        return  # the command will say what is wrong with it
    if environment.old_triton:
        raise UsageError(environment.old_triton)


def _python_of(program: str) -> str | None:
    found = shutil.which(program)
    if found is None or _PYTHON.fullmatch(Path(found).name):
        return found
    try:
        with Path(found).open("rb") as file:
            line = file.readline(_SHEBANG).decode("utf-8", errors="replace").strip()
    except OSError:
        return None
    told = Path(line.removeprefix("#!"))
    is_python = line.startswith("#!/") and _PYTHON.fullmatch(told.name)
    return str(told) if is_python else None
