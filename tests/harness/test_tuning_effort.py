"""Where nothing is timed Triton's tuner launches each config a few times; in a look, once more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.warm_python import run_python

pytest.importorskip("triton", reason="Triton is not installed")

KERNEL = """
import triton
import triton.language as tl

BLOCKS = 1024, 4096, 128, 512, 2048


@triton.autotune(
    [triton.Config({"BLOCK": block}, pre_hook=HOOK) for block in BLOCKS], key=["n"]
)
@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n)
    tl.store(x_ptr + places, 2 * x, mask=places < n)
"""
# A driver and its events stand in for the GPU, on which an element takes a microsecond; compiler,
# cache and tuner are Triton's own.
PROGRAM = """
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import torch
import triton
import triton.runtime.autotuner

from tile_agent_pytest import tuned, tuning_effort
from tile_agent_pytest.stand_in_driver import StandInDriver
from tile_agent_pytest.tuning_effort import TuningEffort

now_ms, launched, measured, waits = 0.0, [], [], 0


class Event:
    def __init__(self, *, enable_timing):
        assert enable_timing

    def record(self):
        self.at_ms, self.waits = now_ms, waits

    def elapsed_time(self, later):
        assert waits > later.waits, "asked before the GPU had come to it"
        return later.at_ms - self.at_ms


def synchronize():
    global waits
    waits += 1


class Driver(StandInDriver):
    def get_device_interface(self):
        return SimpleNamespace(Event=Event, synchronize=synchronize)

    def get_benchmarker(self):
        def do_bench(kernel_call, quantiles):
            assert held.log.is_tuning
            kernel_call()
            measured.append(launched[-1])
            return [float(launched[-1] != 512)] * 3  # the one that is worse by a few launches

        return do_bench


triton.runtime.driver.set_active(Driver(90))
folder, passes, text, fail, looked_at = Path(sys.argv[1]), *sys.argv[2:]
tuning_effort.LOOKED_AT = int(looked_at)
held = tuned.hold(folder / text, lambda: "test", folder / "tuned")
sys.path.insert(0, sys.argv[1])
import kernel

run = triton.runtime.jit.JITFunction.run


def counted(self, *args, **kwargs):
    global now_ms
    if not kwargs["warmup"]:
        if kwargs["BLOCK"] in json.loads(fail):
            raise triton.runtime.errors.OutOfResources(1, 0, "shared memory")
        launched.append(kwargs["BLOCK"])
        now_ms += kwargs["BLOCK"] / 1000
    return run(self, *args, **{**kwargs, "warmup": True})


triton.runtime.jit.JITFunction.run = counted
seen = []
for request in json.loads(passes):
    held.in_less.begin(TuningEffort.of(request))
    around = held.in_less.undecided() if request.get("undecided") else nullcontext()
    around = held.in_less.settled() if request.get("settled") else around
    launched.clear(), measured.clear()
    x = triton.runtime.jit.MockTensor(torch.float32, [1000])
    with around:
        kernel.scale.run(x, request.get("n", 1000), grid=(1,), warmup=False)
    assert not held.log.is_tuning
    best = kernel.scale.best_config.kwargs["BLOCK"]
    seen.append({"best": best, "launched": list(launched), "measured": list(measured)})
print(json.dumps(seen))
"""


@pytest.fixture(params=["None", "lambda arguments: None"], ids=["plain", "hooked"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    (tmp_path / "kernel.py").write_text(KERNEL.replace("HOOK", request.param))
    return tmp_path


TESTED, TIMED, STEPPED = {"nodeids": []}, {"timed": True}, {"stepped": True}
AS_TIMED = {"as_timed": True}
LOOKED_AT = {"stepped": True, "short": True}
BESIDE_OTHERS = LOOKED_AT | {"undecided": True}


def passes(
    folder: Path,
    *requests: dict[str, Any],
    text: str = "tuned",
    fail: Sequence[int] = (),
    looked_at: int = 8,
) -> list[dict[str, Any]]:
    """What the passes of one process find.

    Args:
        folder: of the kernel, and of what is kept.
        requests: one a pass.
        text: of the kernel; the first is called `tuned`.
        fail: blocks that cannot be launched.
        looked_at: configs that a short look at another text chooses from.
    """
    arguments = json.dumps(requests), text, json.dumps(fail), str(looked_at)
    cache = str(folder / f"cache-of-{text}")
    ended = run_python(
        PROGRAM,
        str(folder),
        *arguments,
        environment={"TRITON_CACHE_DIR": cache, "TRITON_CACHE_AUTOTUNING": "1"},
        kind="compiler",
    )
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])
    return found


def notes(folder: Path) -> list[Path]:
    """What timings wrote down."""
    return [*(folder / "tuned").glob("*.json"), *folder.glob("cache*/**/*.autotune.json")]


def test_a_rough_choice_takes_few_launches_and_is_none_of_what_is_timed(folder: Path) -> None:
    first, again, timed, after = passes(folder, TESTED, TESTED, TIMED, TESTED)
    assert first["best"] == again["best"] == 128
    assert first["launched"].count(128) == 1 + 1 + 15 + 1  # 2 ms of it, and the test's own launch
    assert first["launched"].count(2048) == 1 + 1
    assert not first["measured"] and again["launched"] == [128]
    assert timed["best"] == after["best"] == 512
    assert sorted(timed["measured"]) == [128, 512, 1024, 2048, 4096]
    assert after["launched"] == [512]


def test_workers_share_rough_choices_and_take_better_ones(folder: Path) -> None:
    passes(folder, TESTED)
    assert not notes(folder)
    (shared,) = passes(folder, TESTED)
    assert shared["launched"] == [128]
    (timed,) = passes(folder, AS_TIMED)
    assert len(timed["measured"]) == 5 and notes(folder)
    (later,) = passes(folder, TESTED)
    assert later == {"best": 512, "launched": [512], "measured": []}


@pytest.mark.parametrize("request_", [TESTED, LOOKED_AT, TIMED], ids=["rough", "short", "whole"])
def test_a_do_bench_of_the_projects_own_may_return_what_it_likes(
    tmp_path: Path, request_: dict[str, Any]
) -> None:
    """As a median alone does, and equal configs are timed as one."""
    own = "do_bench=lambda launch, *_, **__: float(len(launched))"
    text = KERNEL.replace("HOOK", "None").replace('key=["n"]', f'key=["n"], {own}')
    text = text.replace("BLOCKS = 1024,", "launched = []\nBLOCKS = 1024, 128, 128, 128,")
    (tmp_path / "kernel.py").write_text(text)
    (found,) = passes(tmp_path, request_)
    assert found["best"] in (128, 1024)


def test_a_look_has_the_best_timed_and_keeps_that_for_other_looks(folder: Path) -> None:
    first, again = passes(folder, LOOKED_AT, LOOKED_AT)
    assert first["best"] == again["best"] == 512  # the second by few launches
    assert sorted(first["measured"]) == [128, 512, 1024]
    assert again["launched"] == [512] and not notes(folder)
    (other,) = passes(folder, LOOKED_AT)
    assert other["launched"] == [512]
    tested, timed = passes(folder, TESTED, STEPPED)
    assert tested["best"] == 128 and len(timed["measured"]) == 5
    (known,) = passes(folder, LOOKED_AT)
    assert known == {"best": 512, "launched": [512], "measured": []}


def test_what_is_taken_beside_others_is_no_choice(folder: Path) -> None:
    beside, alone, again = passes(folder, BESIDE_OTHERS, LOOKED_AT, BESIDE_OTHERS)
    (other,) = passes(folder, BESIDE_OTHERS)  # as another worker has found it in a look
    assert other["launched"] == [512]
    assert {*beside["launched"]} == {128, 512, 1024, 2048, 4096} and not beside["measured"]
    assert alone["best"] == 512 and sorted(alone["measured"]) == [128, 512, 1024]
    assert again == {"best": 512, "launched": [512], "measured": []}  # what was chosen stays so
    (few,) = passes(folder, BESIDE_OTHERS, text="candidate", looked_at=2, fail=[128, 512])
    assert {*few["launched"]} == {1024, 2048, 4096}


def test_a_candidate_chooses_from_those_that_were_best_before(folder: Path) -> None:
    passes(folder, TESTED)
    tested, looked = passes(folder, TESTED, LOOKED_AT, text="candidate", looked_at=4)
    assert {*tested["launched"]} == {128, 512, 1024} and tested["best"] == 128
    assert {*looked["launched"]} == {128, 512, 1024, 2048} and looked["best"] == 512
    assert sorted(looked["measured"]) == [128, 512, 1024]
    passes(folder, TIMED)
    (better,) = passes(folder, TESTED, text="other")
    assert 512 in better["launched"] and len({*better["launched"]}) == 3
    (timed,) = passes(folder, TIMED, text="other")
    assert timed["best"] == 512 and len(timed["measured"]) == 5


@pytest.mark.parametrize("request_", [TESTED, LOOKED_AT], ids=["rough", "short"])
def test_a_candidate_that_none_of_those_fit_has_all(folder: Path, request_: dict[str, Any]) -> None:
    passes(folder, TESTED)
    (found,) = passes(folder, request_, text="candidate", fail=[128, 512, 1024], looked_at=3)
    assert {*found["launched"]} == {2048, 4096} and found["best"] in found["launched"]


def test_what_failed_before_is_not_among_them(folder: Path) -> None:
    passes(folder, TESTED, fail=[128, 512, 1024])
    (found,) = passes(folder, TESTED, text="candidate")
    assert {*found["launched"]} == {2048, 4096}


def test_a_call_in_another_layout_takes_what_was_chosen_and_times_nothing(folder: Path) -> None:
    other = {"n": 500}
    _, settled, known, later = passes(folder, TESTED, other | {"settled": 1}, TESTED, other)
    assert settled == known == {"best": 128, "launched": [128], "measured": []}
    assert {*later["launched"]} == {128, 512, 1024, 2048, 4096}, "nothing was chosen for it"
    (unknown,) = passes(folder, {"settled": 1}, text="candidate")
    assert unknown == {"best": 1024, "launched": [1024], "measured": []}, "its first"


RECORDED = """
import json
import sys
from pathlib import Path

import torch
import triton.runtime.autotuner

from tile_agent_pytest import record_triton
from tile_agent_pytest.launches import LaunchRecorder

folder, record_triton.LOOKED_AT = Path(sys.argv[1]), 3
sys.path.insert(0, sys.argv[1])
import kernel

for n in (1000, 2000):
    recorder = LaunchRecorder(kernel.__file__)
    with record_triton.recording(recorder, sm=90, tuned=folder / "tuned"):
        x = triton.runtime.jit.MockTensor(torch.float32, [1000])
        kernel.scale.run(x, n, grid=(1,), warmup=False)
    print(sorted(launch.arguments["BLOCK"] for launch in recorder.launches))
"""


def test_what_is_compiled_ahead_are_the_configs_that_a_look_chooses_from(folder: Path) -> None:
    """And all of them for another value of the key."""
    passes(folder, TESTED)
    environment = {"TRITON_CACHE_AUTOTUNING": "1"}  # as the workers of a run have it
    ended = run_python(RECORDED, str(folder), environment=environment, kind="compiler")
    assert ended.returncode == 0, ended.stderr
    known, new = ended.stdout.splitlines()[-2:]
    assert known == "['= 1024', '= 128', '= 512']"
    assert new == "['= 1024', '= 128', '= 2048', '= 4096', '= 512']"
