"""What Ray is handed for each kernel in the tests, so that no run makes its imports anew."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from agent.fleet import cluster
from agent.fleet.jobs import Told

PROGRAM = "TILE_AGENT_TEST_PROGRAM"
"""The variable that says what is started for `python -P -m agent`."""


def on_node(*arguments: Any) -> Iterator[Told]:
    """The task, but for the Python that it starts."""
    sys.executable = os.environ[PROGRAM]
    yield from cluster._on_node(*arguments)
