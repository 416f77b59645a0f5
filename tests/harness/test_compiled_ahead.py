"""Configs of a tuner are compiled side by side; what it times and chooses is the same."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support.warm_python import run_python

pytest.importorskip("triton", reason="Triton is not installed")

KERNEL = """
    import triton
    import triton.language as tl

    HOOKED = []


    def note(arguments):
        HOOKED.append(arguments["BLOCK"])


    @triton.autotune(
        [
            triton.Config({"BLOCK": block}, num_warps=warps, pre_hook=note if block > 512 else None)
            for block in (128, 256, 1024)
            for warps in (1, 4)
        ],
        key=["n"],
    )
    @triton.jit
    def scale(x_ptr, n, BLOCK: tl.constexpr):
        STATIC
        places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + places, mask=places < n)
        tl.store(x_ptr + places, 2 * x, mask=places < n)
"""
# A driver stands in for the GPU; compiler, cache and tuner are Triton's own.
PROGRAM = """
import json
import os
import sys

os.sched_getaffinity = lambda _: {0, 1}
import torch
import triton
import triton.runtime.autotuner
from triton.runtime import jit
from triton.runtime.autotuner import Autotuner

sys.path.insert(0, sys.argv[1])
from tile_agent_pytest import forked_work, tuned
from tile_agent_pytest.stand_in_driver import StandInDriver
from tile_agent_pytest.tuning_effort import TuningEffort
from pathlib import Path

forked_work.children = lambda _: []  # whatever else runs beside this
triton.runtime.driver.set_active(StandInDriver(90))
seen = {"compiled": [], "timed": []}
compiled, pid = triton.compiler.compile, os.getpid()


def compile_(src, *args, **kwargs):
    if os.getpid() != pid:
        return compiled(src, *args, **kwargs)
    constants = {k[0] if isinstance(k, tuple) else k: v for k, v in src.constants.items()}
    found = len(list(Path(os.environ["TRITON_CACHE_DIR"]).rglob("*.cubin")))
    made = compiled(src, *args, **kwargs)
    there = found == len(list(Path(os.environ["TRITON_CACHE_DIR"]).rglob("*.cubin")))
    seen["compiled"].append([constants.get(2), made.metadata.num_warps, there])
    return made


def times(kernel_call, **_):
    kernel_call()
    return [1.0 + len(seen["timed"])] * 3


original = Autotuner._bench


def bench(self, *args, config, **meta):
    before = len(seen["compiled"])
    timing = original(self, *args, config=config, **{**meta, "warmup": True})
    added = len(seen["compiled"]) - before
    seen["timed"].append([config.kwargs["BLOCK"], config.num_warps, added, timing[0]])
    return timing


Autotuner._bench = bench
folder = Path(sys.argv[2])
tuned.hold(folder / "tuned", lambda: "test").in_less.begin(TuningEffort.WHOLE)
import kernel

triton.compiler.compile = compile_
Autotuner.do_bench = property(lambda self: times)
x = triton.runtime.jit.MockTensor(torch.float32, [1000])
for _ in range(2):
    kernel.scale.run(x, 1000, grid=(1,), warmup=True)
seen["hooked"], seen["best"] = kernel.HOOKED, str(kernel.scale.best_config)
print(json.dumps(seen))
"""


def tuned_on(tmp_path: Path, static: str = "") -> dict[str, Any]:
    (tmp_path / "kernel.py").write_text(textwrap.dedent(KERNEL).replace("STATIC", static or "pass"))
    ended = run_python(
        PROGRAM,
        str(tmp_path),
        str(tmp_path),
        environment={"TRITON_CACHE_DIR": str(tmp_path / "cache"), "TRITON_CACHE_AUTOTUNING": "1"},
        kind="compiler",
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_all_are_compiled_before_the_first_is_timed(tmp_path: Path) -> None:
    seen = tuned_on(tmp_path)
    configs = [[block, warps] for block in (128, 256, 1024) for warps in (1, 4)]
    assert sorted(seen["compiled"]) == sorted([*config, True] for config in configs)  # by forks
    assert [timed[:3] for timed in seen["timed"]] == [[*config, 0] for config in configs]
    assert "BLOCK: 128, num_warps: 1" in seen["best"]
    assert seen["hooked"] == [1024, 1024]  # by the tuner alone


def test_a_config_that_does_not_compile_is_left_to_the_tuner(tmp_path: Path) -> None:
    seen = tuned_on(tmp_path, "tl.static_assert(BLOCK != 256)")
    assert [timed[3] for timed in seen["timed"] if timed[0] == 256] == [float("inf")] * 2
    assert [timed[:3] for timed in seen["timed"] if timed[0] != 256] == [
        [block, warps, 0] for block in (128, 1024) for warps in (1, 4)
    ]
    assert "BLOCK: 128, num_warps: 1" in seen["best"]
