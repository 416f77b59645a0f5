"""What a proposer hands to the loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent.analysis.common.subject import Subject
from agent.events import StopReason
from agent.state import Run
from agent.usage import Usage

LONGEST_TITLE = 60
"""Characters of the name that an idea is given by whoever had it."""


def title_of(idea: str) -> str:
    """A name of an idea, as the first words of a text in one line; dots tell of the rest."""
    if len(idea) <= LONGEST_TITLE:
        return idea
    room = LONGEST_TITLE - len(" ...")
    words, _, _ = idea[: room + 1].rpartition(" ")
    return f"{words.rstrip(' ,;:.') or idea[:room]} ..."


@dataclass(frozen=True)
class ProposedVariant:
    """One filled-in version of an optimization."""

    params: Mapping[str, Any]
    title: str
    source: str
    """The whole new text of the kernel file."""


@dataclass(frozen=True)
class Proposal:
    """ONE optimization; several variants are a sweep, and still one iteration."""

    optimization: str
    family: str
    hypothesis: str
    variants: tuple[ProposedVariant, ...]
    expected_gain: float | None = None
    """The part of the latency that its author expects to save; None where nobody said."""
    risk: str = ""
    rounding: float = 0.0
    """The relative error, root mean square, that lies in the nature of the edit."""
    doubts: tuple[str, ...] = ()
    """What a look at the text found out of place in a kernel file; it decides nothing."""
    usage: Usage | None = None
    """What writing it took, where a model was asked."""
    saves: str = ""
    """What it saves that is no latency; it is kept where it is as fast."""


@dataclass(frozen=True)
class Declined:
    """An optimization that was looked at and gives no candidate, with the reason."""

    optimization: str
    reason: str
    usage: Usage | None = None
    by_look: bool = False
    """A short look left it no chance: it does apply."""


@dataclass(frozen=True)
class Exhausted:
    """Its author proposes nothing more; `reason` where that needs a word."""

    reason: str = ""
    stop: StopReason = StopReason.EXHAUSTED
    """What ends with it, where nobody comes after: only what was tried can be used up."""


class Proposer(Protocol):
    """Writes candidates."""

    def propose(self, run: Run, subject: Subject, /) -> Proposal | Declined | Exhausted:
        """The next candidate for the incumbent in `subject`."""
