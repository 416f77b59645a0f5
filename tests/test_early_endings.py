"""What a run says whose proposer ended before it was done: never that nothing was to be gained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.errors import ExitCode
from agent.events import HandedOver, Skipped, Stopped, StopReason
from agent.options import Options
from agent.proposers.base import Exhausted
from agent.proposers.build import judged
from agent.proposers.judgement import PATIENCE, JudgementProposer
from agent.proposers.writer import Spent
from agent.report.result import exit_code
from agent.report.summary import summarize
from agent.state import Phase, Run
from agent.transitions import advance
from tests.proposers.test_model import BRIEF
from tests.support.history import run_in

EARLY = [
    (StopReason.UNANSWERED, ExitCode.ESCALATED, ExitCode.ESCALATED),
    (StopReason.UNUSABLE, ExitCode.ESCALATED, ExitCode.DONE),
    (StopReason.ASKING, ExitCode.STOPPED, ExitCode.STOPPED),
]


def ended(reason: StopReason) -> Run:
    """A run in which something was kept, with its last comparison."""
    return replace(run_in(Phase.DONE), stopped=Stopped(reason, "answers 401"))


@pytest.mark.parametrize(("reason", "without", "with_a_keep"), EARLY)
def test_the_exit_code_and_the_headline(
    reason: StopReason, without: ExitCode, with_a_keep: ExitCode
) -> None:
    kept = ended(reason)
    assert kept.kept
    assert exit_code(kept) == with_a_keep
    none = replace(kept, rows=kept.rows[:1], finished=None)
    assert exit_code(none) == without
    text = summarize(none, "a machine")
    assert f"ended before it was done, {reason.value} (answers 401)" in text.splitlines()[0]
    assert "no improvement found" not in text
    assert "exhausted" not in text


def test_who_comes_next_goes_on_and_the_summary_tells_who_ended() -> None:
    run = run_in(Phase.PROPOSE)
    assert run.started is not None
    options = Options(proposers=("model", "playbook"))
    run = replace(run, started=replace(run.started, options=options), stage=0)
    after = advance(run, HandedOver("playbook", "answers 401", early=True))
    assert after.notes[-1] == "the model ended before it was done: answers 401"
    assert advance(run, HandedOver("playbook", "nothing left")).notes == run.notes


class _Poor:
    """Has no budget left."""

    name = "model"

    def write(self, *_: object) -> Spent:
        return Spent("the model has taken 5000 of 5000 tokens")

    def choose(self, *_: object) -> None:
        return None


def test_a_spent_budget_and_answers_of_no_use_are_no_exhausted_playbook() -> None:
    subject = Subject(BRIEF.source, KernelClass.MEMORY, Hardware(sm=90), ())
    proposer = JudgementProposer(_Poor(), judged("triton"))
    run = run_in(Phase.PROPOSE)
    assert run.started is not None
    run = replace(run, started=replace(run.started, options=Options(proposers=("model",))))
    assert proposer.propose(run, subject) == Exhausted(
        "the model has taken 5000 of 5000 tokens", StopReason.ASKING
    )
    refused = replace(run, refusals=PATIENCE, skipped=(Skipped("block-size", "it is no Python"),))
    assert proposer.propose(refused, subject) == Exhausted(
        "5 answers in a row were no candidates; the last: it is no Python", StopReason.UNUSABLE
    )
