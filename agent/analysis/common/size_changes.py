"""In which directions the size of a tile may change, where no result depends on the size itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.growth import may_grow
from agent.analysis.common.running_maxima import may_shrink

SMALLEST_DOT = 16
"""Edge of a tile that the tensor cores take."""


@dataclass(frozen=True)
class SizeChanges:
    """What is safe; both of several together."""

    may_grow: bool = True
    """False: an access is unguarded, or a result counts what pads the last tile. Then only sizes
    that divide the present one are safe."""
    may_shrink: bool = True
    """False: a first block of a smaller size may hold nothing but minus infinity."""

    smallest: int = 1
    """No smaller size is taken by a product of another kernel that has the same."""

    @classmethod
    def of(cls, flow: Flow) -> SizeChanges:
        """Of a constant in one kernel."""
        return cls(may_grow(flow), may_shrink(flow))

    def __and__(self, other: SizeChanges) -> SizeChanges:
        return SizeChanges(
            self.may_grow and other.may_grow,
            self.may_shrink and other.may_shrink,
            max(self.smallest, other.smallest),
        )

    def without_growth(self, *, unless: bool) -> SizeChanges:
        """The same where it may grow on a condition."""
        return replace(self, may_grow=self.may_grow and unless)

    def allow(self, size: int, now: int) -> bool:
        """Whether a size may be tried in place of the present one."""
        if size < now and (size < self.smallest or not self.may_shrink):
            return False
        return self.may_grow or size <= now
