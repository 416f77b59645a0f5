"""What is looked at before a run's proposers are made."""

from __future__ import annotations

import pytest

from agent.errors import UsageError
from agent.options import ASSISTANT, COMMAND, MODEL, PLAYBOOK, Options
from agent.proposers.build import check_judgement, check_language


@pytest.mark.parametrize(
    ("only", "backend", "message"),
    [
        (["tile-sizes"], "triton", "tile-sizes is for cuTile; this is a Triton kernel: see"),
        (["split-k", "block-size"], "cutile", "split-k is for Triton; this is a cuTile kernel"),
    ],
)
def test_entries_of_the_other_language(only: list[str], backend: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_language(only, backend)


@pytest.mark.parametrize("only", [[], ["block-size"], ["tile-sizes", "block-size"]])
def test_one_entry_of_the_language_is_enough(only: list[str]) -> None:
    check_language(only, "triton")


def test_advice_is_nothing_for_the_playbook_alone() -> None:
    options = Options(only=("block-size", "online-softmax"))
    said = r"^online-softmax has no transform, .*--proposer model or command"
    with pytest.raises(UsageError, match=said):
        check_judgement(options, "triton")
    check_judgement(options, "cutile")  # it is not tried there whoever proposes


@pytest.mark.parametrize("other", [MODEL, COMMAND, ASSISTANT])
def test_who_carries_out_advice(other: str) -> None:
    for proposers in ((other,), (PLAYBOOK, other)):
        check_judgement(Options(only=("online-softmax",), proposers=proposers), "triton")
    check_judgement(Options(only=("block-size",)), "triton")
