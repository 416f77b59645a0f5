"""Where the wall time of a pair or of a verification goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class SpentTime:
    """Seconds by item."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def on(self, item: str) -> Iterator[None]:
        """Add the time inside to an item, however the block ends."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.seconds[item] = self.seconds.get(item, 0.0) + time.monotonic() - begin

    def rounded(self) -> dict[str, float]:
        """As it is written down."""
        return {item: round(seconds, 4) for item, seconds in self.seconds.items()}
