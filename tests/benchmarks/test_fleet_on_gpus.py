"""The repository of a fleet's benchmark, and its table; the runs need GPUs."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.fleet_on_gpus import KERNELS, kernel_of, make_repository, table
from benchmarks.spec import find
from tests.support.repo import git


def test_the_kernels_lie_side_by_side_under_git(tmp_path: Path) -> None:
    specs = [spec for name in KERNELS for spec in find([name])]
    repository = make_repository(specs, tmp_path)
    there = git(repository, "ls-files").split()
    assert len(specs) == len(KERNELS) == 6
    assert {kernel_of(spec) for spec in specs} <= {*there}
    assert git(repository, "status", "--porcelain") == ""


def test_the_ways_that_are_there_stand_side_by_side(tmp_path: Path) -> None:
    run = {"kept": ["a"], "final": {"improvement": 0.2}, "spent_s": 50.4, "stopped": "x"}
    ways = {"alone": {"triton/softmax": run}, "all": {"triton/softmax": run | {"final": None}}}
    for way, runs in ways.items():
        found = {"way": way, "wall_s": 60.0, "codes": {}, "runs": runs}
        (tmp_path / f"{way}.json").write_text(json.dumps(found))
    lines = table(tmp_path).splitlines()
    assert lines[0] == "| kernel | alone: s, gain, kept | all: s, gain, kept |"
    assert lines[2:] == [
        "| triton/softmax | 50, +20.0%, a | 50, nothing, a |",
        "| all, wall time | 60.0 | 60.0 |",
    ]
