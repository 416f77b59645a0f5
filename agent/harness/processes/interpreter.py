"""What another interpreter can do on this machine: that of the user's environment."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tile_agent_pytest
from agent.environment import Environment, assemble
from agent.errors import UsageError
from agent.harness.processes.script import run_script

TIMEOUT_S = 60.0


def environment_of(python: str) -> Environment:
    """This machine, and what an interpreter has installed.

    Raises:
        UsageError: the interpreter cannot be run.
    """
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
