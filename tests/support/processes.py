"""Processes that a test has started, told apart from those of the tests beside it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.support.warm_python import MARK


def mark(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Put the test's folder into the environment of all that it starts from now on."""
    monkeypatch.setenv(MARK, str(folder))


def alive(folder: Path, word: str) -> list[psutil.Process]:
    """The marked processes whose command line has the word in it."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if (process.info["environ"] or {}).get(MARK) == str(folder)
        and any(word in part for part in process.info["cmdline"] or ())
    ]
