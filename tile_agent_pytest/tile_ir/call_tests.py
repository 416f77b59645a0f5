"""Tests of a worker that call and time a kernel's function, beside the job that says how.

`agent.harness.kernel_calls` copies them there. What became of a call is judged by `result_tests` in
another process, where nothing is that the kernel's file has patched.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tile_agent_pytest.bench import TileBench
from tile_agent_pytest.tile_ir import RESULTS
from tile_agent_pytest.tile_ir.calls import device, function_of, insist_on_backend, load, run
from tile_agent_pytest.tile_ir.inputs import make

HERE = Path(__file__).parent
JOB = json.loads((HERE / "job.json").read_text(encoding="utf-8"))
MODULE = load(**JOB["kernel"])
insist_on_backend()
each_case = pytest.mark.parametrize("number", range(len(JOB["cases"])))


@each_case
def test_call(number: int, record_property: Callable[[str, object], None]) -> None:
    """Call it, and keep what it did."""
    for facts in run(MODULE, JOB, number, HERE / RESULTS):
        record_property("run", facts)


@each_case
def test_perf(number: int, tile_bench: TileBench) -> None:
    """Time it."""
    function = function_of(MODULE, JOB["function"])
    made = make(JOB["arguments"], JOB["cases"][number], device())
    tile_bench(lambda: function(made))
