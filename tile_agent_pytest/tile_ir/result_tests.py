"""Tests of a worker that compare what `call_tests` kept with the reference.

Only a reference that is a function of the kernel's file brings that file into this process.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tile_agent_pytest.tile_ir import RESULTS
from tile_agent_pytest.tile_ir.judge import judged, reference_of

HERE = Path(__file__).parent
JOB = json.loads((HERE / "job.json").read_text(encoding="utf-8"))
REFERENCE = reference_of(JOB["reference"])


@pytest.mark.parametrize("number", range(len(JOB["cases"])))
def test_result(number: int, record_property: Callable[[str, object], None]) -> None:
    """Tell what is wrong with it: the verdict is for who asked."""
    for facts in judged(JOB, number, REFERENCE, HERE / RESULTS):
        record_property("judged", facts)
