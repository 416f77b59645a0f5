"""How many samples travel."""

from __future__ import annotations

from collections.abc import Sequence

MAX_SAMPLES = 1000


def thinned(samples: Sequence[float]) -> list[float]:
    """At most `MAX_SAMPLES` of them, evenly spaced in time; pytest-benchmark may take 10^5."""
    step = -(-len(samples) // MAX_SAMPLES) or 1
    return list(samples[::step])
