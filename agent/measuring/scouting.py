"""What a short look says of an optimization before one is chosen: no decision. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.measuring.screening import LookRules, ScreenResult

MOST_LOOKS = 2
"""At what no look showed: it may fail in every one."""


@dataclass(frozen=True)
class Estimate:
    """What an optimization may gain on top of an incumbent, by its best variant."""

    iteration: int
    """The one that came next when it was looked at."""
    gain: float | None = None
    """The share of the latency that it saves, below zero where it is slower; None: nothing of it
    was seen."""
    error: float = 0.0
    """How far that may be off."""
    all_variants: bool = True
    """Whether each variant was seen, so that none may be better than what was."""
    all_configs: bool = True
    """Whether all configs that are compared were looked at."""
    is_cut: bool = False
    """Whether the time was over before all were looked at that stand for the others."""
    is_put_off: bool = False
    """Whether the rest of its variants was left out since something else gained much."""
    looks: int = 1
    """How often it was to be looked at on the same incumbent."""
    slowed: str = ""
    """A config that its best variant slows down by more than the rules allow, as far as the look
    goes: no other gains what they reward."""

    def is_unseen(self, iteration: int) -> bool:
        """Whether it is worth another look before an iteration: the first ended before it."""
        unseen = self.gain is None or self.is_put_off
        return unseen and self.looks < MOST_LOOKS and self.iteration < iteration

    @property
    def high(self) -> float | None:
        """The most that it may gain, as far as the look goes."""
        return None if self.gain is None else self.gain + self.error

    @property
    def is_slower(self) -> bool:
        """Whether it lost beyond doubt."""
        return self.high is not None and self.high < 0


def all_seen(looks: Mapping[str, ScreenResult], variants: Iterable[str]) -> bool:
    """Whether a look at each of some variants told something."""
    return all(sha in looks and looks[sha].improvement is not None for sha in variants)


def best_look(
    looks: Mapping[str, ScreenResult], variants: Iterable[str], rules: LookRules
) -> ScreenResult | None:
    """The best of some variants; None where none of them was seen."""
    return rules.best(looks[sha] for sha in variants if sha in looks)
