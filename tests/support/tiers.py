"""Which values of a parameter `make test` takes, and in which order a limited time is used."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

LEFT = "left for another commit: the time that `--until` gives is over"


def others_full(values: Iterable[Any], first: int = 1) -> list[Any]:
    """The first values as they are; the others for `make test-all` only."""
    every = list(values)
    return every[:first] + [pytest.param(v, marks=pytest.mark.full) for v in every[first:]]


def turned(items: list[pytest.Item]) -> list[pytest.Item]:
    """Tests in an order that begins at another one for each commit, so that each has its turn."""
    asked = ["git", "rev-parse", "HEAD"]
    done = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, check=False)
    first = int(done.stdout or b"0", 16) % max(len(items), 1)
    return items[first:] + items[:first]
