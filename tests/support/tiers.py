"""Which values of a parameter `make test` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def others_full(values: Sequence[Any]) -> list[Any]:
    """The first value as it is; the others for `make test-all` only."""
    first, *others = values
    return [first, *(pytest.param(other, marks=pytest.mark.full) for other in others)]
