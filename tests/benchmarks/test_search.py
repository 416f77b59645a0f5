"""The search over the playbook's entries: its passes, its record and its processes, on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import NotApplicable, Params, Subject
from agent.environment import probe
from agent.playbook import ordered
from agent.playbook.base import Optimization
from benchmarks.loop_run import environment
from benchmarks.search import Record, collect, in_children
from benchmarks.search_passes import GAIN, TUNING, OutOfTime, Search, key_of
from benchmarks.search_report import report
from benchmarks.search_timing import Clock, locked, watched
from benchmarks.spec import Spec, find
from tests.support.project import KERNEL
from tests.support.repo import write

ROOT = Path(__file__).parents[2]
SMALL = "import triton\n\n\n@triton.jit\ndef kernel(x):\n    pass\n\n\nkernel[(1,)](0)\n"


class Setting(Optimization):
    """Sets a number at the top of the file; here the kernel's speed depends on it."""

    backend = "triton"
    family = "settings"
    priority: ClassVar = dict.fromkeys(KernelClass, 1)

    def __init__(self, name: str, *values: int, after: str = "") -> None:
        self.name = self.title = name  # type: ignore[misc]
        self.values = values
        self.needs = after

    def variants(self, subject: Subject) -> Sequence[Params]:
        """All values; none before what it needs is there."""
        if self.needs not in subject.source.text:
            raise NotApplicable("it comes too early")
        return [{"n": value} for value in self.values]

    def apply(self, subject: Subject, params: Params) -> str:
        """A line more at the end, or another number in it; these lines stay sorted."""
        lines = subject.source.text.removeprefix(SMALL).splitlines()
        kept = [line for line in lines if not line.startswith(f"{self.name} = ")]
        changed = sorted([*kept, f"{self.name} = {params['n']}"])
        if changed == lines:
            raise NotApplicable("it is there already")
        return SMALL + "".join(f"{line}\n" for line in changed)


class Broken(Setting):
    """An entry with a fault."""

    def variants(self, subject: Subject) -> Sequence[Params]:
        """Fails."""
        raise KeyError("num_warps")


FACTORS = {"A = 1": 0.5, "A = 2": 0.8, "B = 1": 0.9, "C = 1": 1 - GAIN / 2, "D = 1": 2.0}


def latency_ms(text: str) -> float:
    """A latency that each setting multiplies."""
    latency = 1.0
    for line in text.splitlines():
        latency *= FACTORS.get(line, 1.0)
    return latency


class Machine:
    """Measures by `latency_ms`, for as many versions as it is told."""

    def __init__(self, count: int = 1000) -> None:
        self.evals: dict[str, dict[str, Any]] = {}
        self.left = count

    def __call__(self, key: str, text: str, about: dict[str, Any]) -> None:
        """Measure."""
        if not self.left:
            raise OutOfTime
        self.left -= 1
        fails = "E = 1" in text
        self.evals[key] = {"latency_ms": None if fails else latency_ms(text), **about}


ENTRIES = (Setting("A", 1, 2), Setting("B", 1), Setting("C", 1), Setting("D", 1), Setting("E", 1))


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    """A kernel's folder."""
    folder = tmp_path / "triton" / "double"
    write(folder, {"double.py": SMALL})
    return Spec("triton", "double", folder)


def searched(
    spec: Spec, machine: Machine, entries: Sequence[Optimization] = ENTRIES
) -> tuple[Search, list[tuple[list[str], int]]]:
    """A search, and the versions it measured in order: steps and pass."""
    search = Search(spec, 90, machine.evals, machine, lambda *_: entries)
    search.run()
    return search, [(found["steps"], found["pass"]) for found in machine.evals.values()]


# --- the passes ---------------------------------------------------------------------------------


def test_a_pass_goes_on_from_each_gain_and_from_nothing_else(spec: Spec) -> None:
    _, found = searched(spec, Machine(count=7))
    assert found == [
        ([], 0),
        (["A (n=1)"], 1),
        (["A (n=2)"], 1),
        (["A (n=1)", "B (n=1)"], 1),
        (["A (n=1)", "B (n=1)", "C (n=1)"], 1),  # too small a gain
        (["A (n=1)", "B (n=1)", "D (n=1)"], 1),  # a loss
        (["A (n=1)", "B (n=1)", "E (n=1)"], 1),  # has no latency
    ]


def test_the_next_pass_begins_with_the_fastest_version_that_had_none(spec: Spec) -> None:
    _, found = searched(spec, Machine())
    second = [steps for steps, number in found if number == 2]
    assert second[0] == ["A (n=1)", "B (n=1)", "C (n=1)", "A (n=2)"]
    assert all(steps[:3] == ["A (n=1)", "B (n=1)", "C (n=1)"] for steps in second)


def test_a_search_ends_when_no_version_is_left_to_begin_with(spec: Spec) -> None:
    search, found = searched(spec, Machine(), ENTRIES[:2])
    assert sorted(steps for steps, _ in found) == [
        [],
        ["A (n=1)"],
        ["A (n=1)", "B (n=1)"],
        ["A (n=1)", "B (n=1)", "A (n=2)"],
        ["A (n=2)"],
    ]
    assert not search.faults


def test_a_version_keeps_the_steps_it_was_first_found_by(spec: Spec) -> None:
    """So that the steps before the last one are a version's too."""
    _, found = searched(spec, Machine(), (*ENTRIES[:4], Setting("F", 1, 2, after="B = 1")))
    ways = [tuple(steps) for steps, _ in found]
    assert len(set(ways)) == len(ways) > 20
    assert all(way[:-1] in ways for way in ways if way)


def test_a_search_goes_on_where_it_ended(spec: Spec) -> None:
    at_once, in_parts = Machine(), Machine(count=4)
    whole = searched(spec, at_once)[1]
    assert searched(spec, in_parts)[1] == whole[:4]
    in_parts.left = 1000
    assert searched(spec, in_parts)[1] == whole
    assert in_parts.evals == at_once.evals


def test_an_entry_with_a_fault_is_named_and_the_others_are_tried(spec: Spec) -> None:
    search, found = searched(spec, Machine(), (Broken("broken"), *ENTRIES))
    assert search.faults == {"broken": "KeyError: 'num_warps'"}
    assert found == searched(spec, Machine())[1]


def test_an_origin_that_cannot_be_timed_ends_the_search(spec: Spec) -> None:
    write(spec.folder, {"double.py": f"{SMALL}E = 1\n"})
    assert searched(spec, Machine())[1] == [([], 0)]


def test_entries_that_make_a_kernel_tune_itself_are_entries(spec: Spec) -> None:
    names = {entry.name for b in ("cutile", "triton") for entry in ordered(b, KernelClass.MEMORY)}
    assert names > TUNING
    write(spec.folder, {"double.py": KERNEL})
    machine = Machine(count=3)
    Search(spec, 90, machine.evals, machine).run()
    assert key_of(KERNEL) in machine.evals
    assert len(machine.evals) == 3  # the real playbook has something to try


# --- record and processes -----------------------------------------------------------------------


@pytest.fixture
def record(tmp_path: Path, spec: Spec) -> Record:
    """A record on disk with one version in it."""
    record = Record(tmp_path, spec)
    record.begin("evals", "a", {"steps": [], "pass": 0})
    record.end({"latency_ms": 1.0, "error": 0.0})
    return record


def time_three(record: Record) -> None:
    """Time three versions, of which the second one ends the process."""
    for key in "abc":
        if key not in record.data["evals"]:
            record.begin("evals", key, {"steps": [key], "pass": 1})
            if key == "b":
                os._exit(1)
            record.end({"latency_ms": 2.0, "error": 0.0})


def hang(record: Record) -> None:
    """Begin and never end, unless somebody watches."""
    if "hangs" not in record.data["evals"]:
        record.begin("evals", "hangs", {"steps": ["hangs"], "pass": 1})
        with watched(0.1):
            time.sleep(600)


def sleep_long(record: Record) -> None:
    """Begin what the time does not suffice for."""
    record.begin("evals", "late", {"steps": ["late"], "pass": 1})
    time.sleep(600)


def end_at_once() -> None:
    """Get nowhere."""
    os._exit(1)


@pytest.mark.full
@pytest.mark.parametrize(("task", "ends"), [(time_three, "b"), (hang, "hangs")])
def test_a_version_that_ends_its_process_is_passed_by(record: Record, task: Any, ends: str) -> None:
    in_children(partial(task, record), record, float("inf"))
    assert record.data["evals"][ends]["latency_ms"] is None
    assert "its process ended" in record.data["evals"][ends]["why"]
    assert (record.data["pending"], record.data["problem"]) == (None, None)
    assert set(record.data["evals"]) == ({"a", "b", "c"} if ends == "b" else {"a", "hangs"})


@pytest.mark.full
def test_a_version_that_the_time_did_not_suffice_for_is_not_blamed(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.search.LEAST_S", 0.0)
    in_children(partial(sleep_long, record), record, time.monotonic() + 3)
    assert set(record.data["evals"]) == {"a"}
    assert (record.data["pending"], record.data["problem"]) == (None, None)


@pytest.mark.full
def test_a_process_that_gets_nowhere_is_a_problem(record: Record) -> None:
    in_children(end_at_once, record, float("inf"))
    assert record.data["problem"] == "the process that times ended with 1"
    assert json.loads(record.file.read_text())["problem"] == record.data["problem"]


def test_the_kernels_files_make_one_document(tmp_path: Path) -> None:
    for spec in find(["softmax"]):
        record = Record(tmp_path, spec)
        record.describe("python -m benchmarks.search OUT softmax")
        record.data["config"] = "16 x 32 bfloat16"
        record.begin("evals", "a", {"steps": [], "pass": 0})
        record.end({"latency_ms": 1.0, "error": 0.0})
    collect(tmp_path)
    results = json.loads((tmp_path / "search.json").read_text())
    assert list(results) == ["cutile/softmax", "triton/softmax"]
    assert (tmp_path / "search.md").read_text() == report(results)


@pytest.mark.full
def test_one_process_at_a_time_holds_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    text = f"from benchmarks.search_timing import locked\nwith locked({str(lock)!r}): print(1)"
    text = text.replace(f"{str(lock)!r}", f"__import__('pathlib').Path({str(lock)!r})")
    with locked(lock):
        other = subprocess.Popen([sys.executable, "-c", text], env=environment(), cwd=ROOT)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(2)
    assert other.wait(60) == 0
    with locked(None):
        pass


@pytest.mark.full
@pytest.mark.skipif(probe().gpu is not None, reason="there is a GPU")
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.search", str(tmp_path / "out"), "softmax"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2
    assert "there is no NVIDIA GPU" in done.stderr
    assert not (tmp_path / "out").exists()


# --- timing -------------------------------------------------------------------------------------

REFERENCE = """\
import torch

CONFIGS = [(64, torch.float32)]


def inputs(n, dtype):
    torch.manual_seed(0)
    return (torch.randn(n, n, dtype=dtype),)


def torch_version(x):
    return x + 1
"""


@pytest.mark.full
def test_a_version_is_timed_when_it_agrees(spec: Spec, tmp_path: Path) -> None:
    write(spec.folder, {"reference.py": REFERENCE})
    clock = Clock(spec, tmp_path / "lock")
    assert clock.config == "64 float32"
    right = clock.time(lambda x: lambda: x + 1)
    assert right["latency_ms"] > 0
    assert right["error"] < 1e-7
    assert clock.time(lambda x: lambda: x.add_(1))["latency_ms"] > 0
    assert "off by" in clock.time(lambda x: lambda: 2 * x)["why"]
    assert clock.time(lambda x: lambda: x[0])["why"] == "ValueError: 64 elements instead of 4096"
    assert clock.time(lambda x: x.missing)["latency_ms"] is None
    assert clock.time(lambda x: lambda: x + 1)["error"] == right["error"]
