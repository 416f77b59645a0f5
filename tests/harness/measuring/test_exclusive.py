"""One run at a time measures on a GPU, and who waits says so."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.environment import Gpu
from agent.errors import UsageError
from agent.harness.measuring import gpu as module
from agent.harness.measuring.gpu import exclusive

CARD = Gpu("NVIDIA H200", "GPU-1", 90, 143771, "580.0")


def test_who_has_the_gpu_at_once_says_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    with exclusive(CARD, tmp_path, said.append):
        pass
    assert said == []


def test_who_waits_says_so_and_goes_on_when_the_other_is_done(tmp_path: Path) -> None:
    told, done = threading.Event(), threading.Event()
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        told.set()

    def other() -> None:
        with exclusive(CARD, tmp_path, say):
            done.set()

    with exclusive(CARD, tmp_path, print):
        waiting = threading.Thread(target=other)
        waiting.start()
        assert told.wait(30)
        assert not done.is_set()
    waiting.join(30)
    assert done.is_set()
    assert len(said) == 1 and "another tile-agent run measures on NVIDIA H200" in said[0]


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_PATIENCE_S", 0.05)
    with exclusive(CARD, tmp_path, print):
        with pytest.raises(UsageError, match="wait for it, or choose"):
            with exclusive(CARD, tmp_path, print):
                pass
