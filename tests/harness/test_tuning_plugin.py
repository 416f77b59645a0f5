"""Captured tests that are tried on a GPU, outside of a worker, tune as those of a run do."""

from __future__ import annotations

import pytest

from tests.support.warm_python import run_python

pytest.importorskip("triton", reason="Triton is not installed")

PROGRAM = """
import triton.runtime.autotuner as autotuner

before = autotuner.Autotuner.check_disk_cache, autotuner.Autotuner._bench
from tile_agent_pytest import tuning_plugin

after = autotuner.Autotuner.check_disk_cache, autotuner.Autotuner._bench
assert all(one is not other for one, other in zip(before, after)), after
assert after[0].__qualname__.startswith("TuningInLess."), after
"""


def test_it_acts_when_it_is_imported() -> None:
    ended = run_python(PROGRAM, kind="compiler")
    assert ended.returncode == 0, ended.stderr
