"""What a proposer hands to the loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent.playbook.base import Subject
from agent.state import Run


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


@dataclass(frozen=True)
class Declined:
    """An optimization that was looked at and does not apply, with the reason."""

    optimization: str
    reason: str


class Proposer(Protocol):
    """Writes candidates."""

    def propose(self, run: Run, subject: Subject) -> Proposal | Declined | None:
        """The next candidate for the incumbent in `subject`; None when there is nothing left."""
