"""What the newest run on a kernel saw launched, in `playbook show` and `explain`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent import playbook
from agent.cli import observed
from agent.events import Baselined
from agent.journal import Journal
from agent.launches import ObservedLaunch, ObservedTensor
from tests.support.history import BASELINED, STARTED
from tests.support.project import Outcome, tile_agent
from tests.support.repo import git, isolate, make_repo

ENTRY = playbook.get("prune-configs")
TENSOR = ObservedTensor("float32", (4096, 4096), (4096, 1), aligned=True)
TEST = """\
import torch
from relu import relu


def test_perf_relu(tile_bench):
    x = torch.ones(4096, 4096, device="cuda")
    tile_bench(lambda: relu(x))
"""


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return make_repo(tmp_path, {"relu.py": ENTRY.before, "test_relu.py": TEST})


def seen(tensor: ObservedTensor = TENSOR) -> tuple[ObservedLaunch, ...]:
    return tuple(replace(x, tensors={"x_ptr": tensor, "y_ptr": tensor}) for x in ENTRY.observed)


def journal(repo: Path, run_id: str, kernel: str, baselined: Baselined) -> None:
    folder = repo / "sandbox" / "runs" / run_id
    folder.mkdir(parents=True)
    written = Journal(folder / "journal.jsonl")
    started = replace(
        STARTED, kernel=kernel, run_id=run_id, origin_sha=git(repo, "rev-parse", "HEAD")
    )
    for event in (started, baselined):
        written.append(event)
    written.close()


def show(repo: Path, *arguments: str, entry: str = "prune-configs") -> Outcome:
    return tile_agent(repo, "playbook", "show", entry, "--kernel", "relu.py", *arguments)


def test_launches_of_the_newest_run_that_saw_some(repo: Path) -> None:
    journal(repo, "relu-1", "relu.py", replace(BASELINED, launches=()))
    journal(repo, "relu-2", "relu.py", replace(BASELINED, launches=seen()))
    journal(repo, "other-1", "other.py", BASELINED)
    journal(repo, "relu-3", "relu.py", replace(BASELINED, launches=()))
    lines = show(repo).out.splitlines()
    at = lines.index("On relu.py: a program would try: pruned configs (relu_kernel=2)")
    assert lines[at + 1 :] == [
        "Launches, as run relu-2 saw them:",
        "relu_kernel, grid 8192, by test_relu.py::test_perf_relu",
        "  x_ptr, y_ptr: float32[4096, 4096], contiguous, 16-byte aligned",
        "  n=16777216, BLOCK=2048, num_warps=8, num_stages=3",
        "tuning, as run relu-2 saw it: relu_kernel tries 4 configs for each new key (n): "
        "4 x 0.70 s to compile and time one = 2.8 s; seen for 1 key",
    ]
    told = json.loads(show(repo, "--json").out)
    assert told["run"] == "relu-2"
    assert told["observed"][0]["tensors"]["x_ptr"]["strides"] == [4096, 1]
    assert told["observed"][0]["tuning"]["tried"] == 4


def test_launches_of_another_version_are_left_out(repo: Path) -> None:
    journal(repo, "relu-1", "relu.py", replace(BASELINED, launches=seen()))
    kernel = repo / "relu.py"
    kernel.write_text(f"{ENTRY.before}\n\nSIZE = 3\n")
    git(repo, "commit", "-qam", "another version")
    journal(repo, "relu-2", "relu.py", replace(BASELINED, launches=seen()[:1]))
    kernel.write_text(f"{ENTRY.before}\n\nSIZE = 4\n")
    lines = show(repo).out.splitlines()
    assert lines[-2:] == [
        "On relu.py: it does not apply: nobody saw what the tuner of relu_kernel tried",
        "Run relu-2 saw what another version of this file launches.",
    ]
    told = json.loads(show(repo, "--json").out)
    assert (told["run"], told["observed"]) == (None, [])
    kernel.write_text(ENTRY.before)
    told = json.loads(show(repo, "--json").out)
    assert (told["run"], len(told["observed"])) == ("relu-1", len(seen()))


def test_nothing_is_told_where_nothing_is_known(repo: Path) -> None:
    lines = show(repo).out.splitlines()
    assert lines[-1] == (
        "On relu.py: it does not apply: nobody saw what the tuner of relu_kernel tried"
    )
    told = json.loads(show(repo, "--json").out)
    assert (told["run"], told["observed"]) == (None, [])
    lines = show(repo, entry="load-latency").out.splitlines()
    assert lines[-1] == "On relu.py: it does not apply: it is for cutile, and this is triton"


@pytest.mark.parametrize(
    ("tensor", "layout"),
    [
        (TENSOR, "contiguous, 16-byte aligned"),
        (replace(TENSOR, strides=(1, 4096)), "strides [1, 4096], 16-byte aligned"),
        (replace(TENSOR, aligned=False), "contiguous, not 16-byte aligned"),
        (ObservedTensor("float32", (), (), aligned=True), "contiguous, 16-byte aligned"),
        (ObservedTensor("int64", (7,), (2,), aligned=True), "strides [2], 16-byte aligned"),
    ],
)
def test_layouts(tensor: ObservedTensor, layout: str) -> None:
    assert tensor.layout == layout


def test_few_of_many_launches_are_told() -> None:
    lines = list(observed.lines(seen() * 20))
    assert len(lines) == 3 * observed.MOST + 1
    assert lines[-1] == "and 12 more launches"


def test_a_launch_of_no_test_is_one_of_their_import() -> None:
    (launch,) = seen()
    assert next(observed.lines([replace(launch, test="")])).endswith(
        ", while the tests were imported"
    )


@pytest.mark.full
def test_explain_tells_what_a_cold_tuning_costs(repo: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    journal(repo, "relu-2", "relu.py", replace(BASELINED, launches=seen()))
    told = json.loads(tile_agent(repo, "explain", "--kernel", "relu.py", "--json").out)
    (cost,) = told["tuning"]
    assert cost.startswith("tuning, as run relu-2 saw it: relu_kernel tries 4 configs")
    assert [launch["integers"]["BLOCK"] for launch in told["observed"]] == [512, 1024, 2048, 4096]
    assert {launch["tensors"]["x_ptr"]["aligned"] for launch in told["observed"]} == {True}
