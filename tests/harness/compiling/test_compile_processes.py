"""Compiles side by side: real processes, with work that takes as long as it is told to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tile_agent_pytest.compile_processes import CompileTask, in_own_processes

Work = Callable[[str, Path], dict[str, Any]]


def tasks(folder: Path, *works: Work) -> Iterator[CompileTask]:
    for index, work in enumerate(works):
        (folder / str(index)).mkdir()
        yield CompileTask(index, "sm_90", work, folder / str(index))


def meets(others: int, folder: Path) -> Work:
    """Ends once so many are at work at the same time, and at once where they have been."""

    def work(_: str, own: Path) -> dict[str, Any]:
        (folder / f"here-{own.name}").touch()
        until = time.monotonic() + 30
        while len(list(folder.glob("here-*"))) < others:
            if time.monotonic() > until:
                raise TimeoutError("alone")
            time.sleep(0.01)
        return {"met": True}

    return work


def test_several_are_compiled_at_a_time(tmp_path: Path) -> None:
    works = [meets(3, tmp_path)] * 5
    found = in_own_processes(tasks(tmp_path, *works), 3, 60.0)
    answers = {task.index: answer for task, answer in found}
    assert answers == {index: {"ok": True, "met": True} for index in range(5)}


def test_no_more_than_that_are_begun(tmp_path: Path) -> None:
    begun: list[int] = []

    def counted() -> Iterator[CompileTask]:
        for task in tasks(tmp_path, *[lambda *_: {}] * 4):
            begun.append(task.index)
            yield task

    with closing(in_own_processes(counted(), 2, 60.0)) as answers:
        next(answers)
        assert begun == [0, 1]


def test_one_that_fails_dies_or_hangs_ends_alone(tmp_path: Path) -> None:
    def fails(*_: Any) -> dict[str, Any]:
        raise ValueError("no such tile")

    def dies(*_: Any) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    def hangs(*_: Any) -> dict[str, Any]:
        time.sleep(60)
        return {}

    found = in_own_processes(tasks(tmp_path, fails, dies, hangs, lambda *_: {"fine": 1}), 4, 1.0)
    answers = {task.index: answer for task, answer in found}
    assert answers[0] == {"ok": False, "error": "ValueError: no such tile"}
    assert answers[1] == {"ok": False, "error": "the compiler ended by SIGKILL"}
    assert answers[2]["timed_out"] and not answers[2]["ok"]
    assert answers[3] == {"ok": True, "fine": 1}


def test_what_still_runs_ends_with_who_asked(tmp_path: Path) -> None:
    def stays(_: str, own: Path) -> dict[str, Any]:
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(60)
        return {}

    answers = in_own_processes(tasks(tmp_path, stays, meets(1, tmp_path)), 2, 60.0)
    until = time.monotonic() + 30
    next(answers)
    while not (tmp_path / "pid").exists() and time.monotonic() < until:
        time.sleep(0.01)
    answers.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
