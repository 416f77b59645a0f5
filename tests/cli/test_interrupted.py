"""Signals that come at odd moments."""

from __future__ import annotations

import subprocess
import sys

from agent.errors import ExitCode

SCRIPT = """
import importlib, signal, sys, time
cli = importlib.import_module("agent.cli.main")

class Dying:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)
        time.sleep(0)

def app(**_):
    Dying()
    time.sleep(20)
    return 0

cli.app = app
sys.argv = ["tile-agent"]
cli.main()
"""


def test_an_interruption_within_a_destructor_is_not_lost() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == ExitCode.STOPPED, done.stderr
    assert "interrupted" in done.stderr
