"""What the memory of a GPU does not hold for both, and who is blamed for it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from agent.harness.measuring.comparer import Comparer
from agent.harness.measuring.pytest_judge import PytestJudge
from agent.harness.measuring.result_check import LacksMemory, ResultCheck
from agent.harness.measuring.timing_examiner import BesideAnother, TimingExaminer
from agent.harness.measuring.verifier import Verification
from agent.harness.processes.results import Stop, read_call
from agent.harness.processes.worker_session import deadline_in
from agent.measuring.measurement import Failure
from tests.harness.measuring.test_verifier import BEGIN, checkout, judge, spent_s, verify

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
    """At the timed shape alone, at which no correctness test looks."""
    origin = checkout(tmp_path / "origin")
    wrong = (BEGIN, f"{BEGIN}    factor = factor + (rows == 8)\n")
    outcome = verify(judge, checkout(tmp_path / "wrong", wrong), origin)
    assert isinstance(outcome, Failure)
    assert "test_perf: not the origin's result" in outcome.reason


class Worker:
    """Of a timing whose calls can be made, but not beside the other's."""

    def __init__(self) -> None:
        self.has_ended = False

    def examine(self, seed: int | None, deadline: float) -> Any:
        return read_call({"results": [], "lacks_memory": False})

    def kill(self) -> None:
        self.has_ended = True


class Memory:
    """The comparing process of a GPU, of which the origin's worker holds more than half or less."""

    has_ended = False

    def __init__(self, arm: Worker, *, is_free: bool) -> None:
        self.arm, self.is_free = arm, is_free

    def has_room(self, deadline: float) -> bool:
        assert self.arm.has_ended, "it could hold the memory for this"
        return self.is_free

    def forget(self, deadline: float) -> None:
        pass


@pytest.mark.parametrize("is_free", [True, False])
def test_who_lacks_memory_is_believed_where_the_origin_alone_leaves_too_little(
    monkeypatch: pytest.MonkeyPatch, is_free: bool
) -> None:
    module = "agent.harness.measuring.timing_examiner"
    monkeypatch.setattr(f"{module}.ROOM_TIMEOUT_S", 0.0)

    def lacking(*arguments: Any) -> NoReturn:
        raise LacksMemory("test_perf")

    monkeypatch.setattr(TimingExaminer, "_compare_calls", lacking)
    ours: Any = Worker()
    arm: Any = Worker()
    memory: Any = Memory(arm, is_free=is_free)
    examiner = TimingExaminer(lambda: memory)
    timing, check = Stop("test_perf", "forward"), ResultCheck(lambda: memory)
    examine = partial(examiner.examine, ours, arm, timing, check, deadline_in(60))
    with pytest.raises(BesideAnother):
        examine()
    assert not arm.has_ended, "it is asked first, the next time"
    with pytest.raises(LacksMemory if is_free else BesideAnother):
        examine()
    assert arm.has_ended
    if not is_free:
        examine()  # what is not held for both is left out


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
