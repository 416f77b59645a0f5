"""Which values of a parameter `make test` takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def others_full(values: Iterable[Any], first: int = 1) -> list[Any]:
    """The first values as they are; the others for `make test-all` only."""
    every = list(values)
    return every[:first] + [pytest.param(v, marks=pytest.mark.full) for v in every[first:]]
