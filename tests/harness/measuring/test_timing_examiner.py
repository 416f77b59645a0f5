"""What the memory of a GPU does not hold for both, and who is blamed for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.harness.measuring.comparer import Comparer
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.verifier import Verification
from agent.measuring.measurement import Failure
from tests.harness.measuring.test_verifier import BEGIN, WRONG, checkout, judge, spent_s, verify

__all__ = ["judge"]

HOLDS = (
    BEGIN,
    BEGIN
    + """\
    if rows == 8 and not MEMORY:
        import fcntl

        MEMORY.append(open(HERE.parent / "memory", "a"))
        try:
            fcntl.flock(MEMORY[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise torch.OutOfMemoryError("CUDA out of memory.") from None
""",
)
"""The first of two processes to call it has the memory of both as long as it lives; the other can
call it, but not beside copies."""
MEMORY = ("HERE =", "MEMORY = []\nHERE =")
GREEDY = (
    BEGIN,
    f"""{BEGIN}    if rows == 8 and not MEMORY:
        MEMORY.append(1)
        raise torch.OutOfMemoryError("CUDA out of memory.")
""",
)


def test_a_timing_that_is_not_held_for_both_is_not_compared(
    judge: PytestJudge, tmp_path: Path
) -> None:
    """The origin that was asked first had the room; asked behind the candidate it has none."""
    origin = checkout(tmp_path / "origin", MEMORY, HOLDS)
    outcome = verify(judge, checkout(tmp_path / "candidate", MEMORY, HOLDS), origin)
    assert isinstance(outcome, Verification), outcome
    assert len(spent_s(tmp_path)) == 2
    again = verify(judge, checkout(tmp_path / "another", MEMORY, HOLDS), origin)
    assert isinstance(again, Verification), again
    assert len(spent_s(tmp_path)) == 3, "what does not fit is known"


def test_who_has_the_room_that_the_origin_had_takes_more(
    judge: PytestJudge, tmp_path: Path
) -> None:
    origin = checkout(tmp_path / "origin", MEMORY, HOLDS)
    outcome = verify(judge, checkout(tmp_path / "greedy", MEMORY, GREEDY), origin)
    assert isinstance(outcome, Failure), outcome
    assert "takes more memory than the origin" in outcome.reason


def test_what_fits_is_compared(judge: PytestJudge, tmp_path: Path) -> None:
    origin = checkout(tmp_path / "origin")
    outcome = verify(judge, checkout(tmp_path / "wrong", WRONG), origin)
    assert isinstance(outcome, Failure)


def test_an_interruption_leaves_no_answer_for_the_next_question(
    judge: PytestJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for that one's: the run went on, and a candidate had crashed."""
    origin = checkout(tmp_path / "origin")
    kept = Comparer.keep
    asked = []

    def interrupted(self: Comparer, *arguments: object) -> None:
        asked.append(self)
        monkeypatch.setattr(self._worker, "receive", interrupt)
        kept(self, *arguments)  # type: ignore[arg-type]

    def interrupt(deadline: float) -> None:
        raise KeyboardInterrupt

    candidate = checkout(tmp_path / "candidate")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Comparer, "keep", interrupted)
        verify(judge, candidate, origin)
    assert asked[0].has_ended
    assert isinstance(verify(judge, checkout(tmp_path / "next"), origin), Verification)
