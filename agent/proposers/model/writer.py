"""A language model as a writer: brief in, new kernel text out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from agent.environment import describe
from agent.options import ModelOptions
from agent.prompting import render
from agent.proposers.agenda import Task
from agent.proposers.answer import DOCSTRINGS_TELL, Answer, Unusable, apply, problems
from agent.proposers.brief import Brief
from agent.proposers.model.budget import left
from agent.proposers.model.conversation import Conversation, Question
from agent.proposers.model.transport import BACKOFF_S
from agent.proposers.writer import Chosen, Refused, Spent, Written
from agent.redaction import redact
from agent.state import Run


@dataclass(frozen=True)
class Choice:
    """Which optimization to carry out next."""

    __pydantic_config__: ClassVar = DOCSTRINGS_TELL

    optimization: str
    """Its name, as it stands in the list."""
    reason: str
    """Why this one is the most promising, in one sentence that names its evidence."""


class ModelWriter:
    """Asks a model for ONE optimization at a time; it is given no tool and sees no other file."""

    name = "model"

    def __init__(self, options: ModelOptions, folder: Path, backoff_s: float = BACKOFF_S) -> None:
        """Take the folder that exchanges are recorded in."""
        self._options = options
        self._conversation = Conversation(options, folder, backoff_s)

    def write(self, brief: Brief, run: Run) -> Written | Refused | Spent:
        """A new text for the kernel file."""
        rest = left(self._options, run.usage)
        if rest.spent:
            return Spent(rest.spent)
        question = Question(
            output=Answer,
            instructions=render("model_system.md.j2"),
            prompt=redact(brief.text, os.environ),
            problems=lambda answer: _unusable(answer, brief),
        )
        outcome = self._conversation.ask(question, rest, run.usage)
        if outcome.answer is None:
            return Refused(outcome.reason, outcome.usage, outcome.hopeless)
        answer = outcome.answer
        return Written(
            source=apply(answer, brief.source.text),
            hypothesis=_words(answer.hypothesis),
            title=_words(answer.title),
            expected_gain=_share(answer.expected_gain),
            risk=_words(answer.risk),
            usage=outcome.usage,
        )

    def choose(self, run: Run, tasks: Sequence[Task]) -> Chosen | Refused | None:
        """The task that the model would do next; the first where its answer names none of them."""
        rest = left(self._options, run.usage)
        if not self._options.choose or len(tasks) < 2 or rest.spent:
            return None
        question = Question(
            output=Choice,
            instructions="",
            prompt=redact(_what_is_left(run, tasks), os.environ),
            problems=lambda choice: () if choice.reason.strip() else ("the reason is missing",),
        )
        outcome = self._conversation.ask(question, rest, run.usage)
        if outcome.hopeless:
            return Refused(outcome.reason, outcome.usage, hopeless=True)
        if outcome.answer is None:
            return Chosen(tasks[0], outcome.reason, outcome.usage)
        wanted = outcome.answer.optimization.strip().strip("`")
        task = next((task for task in tasks if task.optimization == wanted), tasks[0])
        return Chosen(task, _words(outcome.answer.reason), outcome.usage)


def _unusable(answer: Answer, brief: Brief) -> tuple[str, ...]:
    try:
        return problems(brief.source, apply(answer, brief.source.text))
    except Unusable as wrong:
        return wrong.problems


def _what_is_left(run: Run, tasks: Sequence[Task]) -> str:
    assert run.started is not None  # there is no proposing before it
    return render(
        "model_choose.md.j2",
        kernel=run.started.kernel,
        backend=run.started.backend,
        kernel_class=run.kernel_class,
        machine=describe(run.started.environment),
        cause=run.diagnosis.cause.value if run.diagnosis else "",
        evidence=run.diagnosis.evidence if run.diagnosis else (),
        tried=[f"{row.optimization}: {row.status.value}; {row.reason}" for row in run.rows[1:]],
        tasks=tasks,
    )


def _share(gain: float | None) -> float | None:
    """A part of the latency; None for what is none, such as 30 for 30 %, or NaN."""
    return gain if gain is not None and 0 <= gain < 1 else None


def _words(text: str) -> str:
    """A text on one line, for messages and tables."""
    return " ".join(redact(text, os.environ).split())[:1000]
