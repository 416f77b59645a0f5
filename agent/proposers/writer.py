"""Who carries out an optimization that needs judgement: a language model, or a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.proposers.agenda import Task
from agent.proposers.brief import Brief
from agent.state import Run
from agent.usage import Usage


@dataclass(frozen=True)
class Written:
    """A new text of the kernel file, and what its author says of it."""

    source: str
    hypothesis: str
    title: str = ""
    """A short name for the table, where the author chose what to do."""
    expected_gain: float | None = None
    """The part of the latency that it should save."""
    risk: str = ""
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Refused:
    """No candidate came of it; one line says why."""

    reason: str
    usage: Usage = field(default_factory=Usage)
    hopeless: bool = False
    """Asking again, for something else, would end the same way: nobody answers."""


@dataclass(frozen=True)
class Spent:
    """A budget is used up: the author is not asked again in this run."""

    reason: str


@dataclass(frozen=True)
class Chosen:
    """Which task its author wants to do next, and why."""

    task: Task
    reason: str
    usage: Usage


class Writer(Protocol):
    """Carries out the ONE optimization of a brief."""

    name: str

    def write(self, brief: Brief, run: Run) -> Written | Refused | Spent:
        """A new text for the kernel file of the brief."""

    def choose(self, run: Run, tasks: Sequence[Task]) -> Chosen | Refused | None:
        """Which of the tasks comes next; None leaves it to the order of the playbook.

        Only a hopeless refusal is one: without an answer the order holds as well.
        """
