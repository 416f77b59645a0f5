"""Variants of a sweep on two real GPUs. Skipped, with the reason, where there are not two alike."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent.environment import probe
from agent.harness.measuring.gpu import GpuWatch
from agent.harness.processes.worker_session import Checkout, deadline_in
from agent.options import Options, Request
from agent.session import opened
from tests.support.project import tile_agent
from tests.support.repo import git, isolate, make_repo
from tests.support.workers import eventually

ROOT = Path(__file__).parents[3]
GPUS = probe().gpus
KERNEL = """\
import torch
import triton
import triton.language as tl

REPEATS = 4


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def copy(x):
    y = torch.empty_like(x)
    for _ in range(REPEATS):
        copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
TESTS = """\
import torch
from copying import copy


def test_copy():
    x = torch.randn(1000, device="cuda")
    assert torch.equal(copy(x), x)


def test_perf_copy(tile_bench):
    x = torch.randn(2**28, device="cuda")
    tile_bench(lambda: copy(x))
"""
BYTES = 2 * 2**28 * 4
"""What a worker that waits at the perf test holds of a GPU at least."""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.gpu_run,
    pytest.mark.skipif(
        len(GPUS) < 2 or GPUS[0].name != GPUS[1].name,
        reason="needs two NVIDIA GPUs of one model, and NVML does not see them",
    ),
]


def variants_of(
    checkout: Checkout, folder: Path, repeats: Mapping[str, int]
) -> dict[str, Checkout]:
    """The same checkout elsewhere, with as many launches a call."""
    made = {}
    for name, number in repeats.items():
        root = folder / name
        shutil.copytree(checkout.root, root, ignore=shutil.ignore_patterns(".git"))
        text = KERNEL.replace("REPEATS = 4", f"REPEATS = {number}")
        (root / checkout.kernel).write_text(text)
        sys_path = tuple(root / path.relative_to(checkout.root) for path in checkout.sys_path)
        made[name] = replace(checkout, root=root, sys_path=sys_path)
    return made


def test_variants_are_ranked_on_both_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch, tmp_path)
    files = {"copying.py": KERNEL, "tests/test_copying.py": TESTS}
    files["pyproject.toml"] = '[tool.pytest.ini_options]\npythonpath = ["."]\n'
    repo = make_repo(tmp_path, files)
    monkeypatch.chdir(repo)
    said: list[str] = []
    request = Request(repo / "copying.py", options=Options(gpus=2))
    watches = [GpuWatch(gpu) for gpu in GPUS[:2]]
    with opened(request, said.append) as session:
        incumbent = session.checkout(session.origin_sha)
        repeats = {"eight": 8, "one": 1, "six": 6, "two": 2}
        variants = variants_of(incumbent, tmp_path / "variants", repeats)
        (further,) = session.judge._further.gpus
        further.start_soon()
        assert eventually(lambda: bool(further.server or further.problem), 180), "no server"
        assert not further.problem
        before = [watch.used_share() for watch in watches]
        with session.judge.line_ups(incumbent, variants, configs=1) as line_ups:
            seen = line_ups.look(list(variants), 2, deadline_in(240))
            more = [watch.used_share() - b for watch, b in zip(watches, before, strict=True)]
            longer = line_ups.look(["one", "two"], 6, deadline_in(240))
    assert [s for s in said if s.startswith("gpus")] == []
    for gpu, share in zip(GPUS, more, strict=False):
        assert share > BYTES / (gpu.memory_mib * 2**20), "no worker waits on it"
    assert sorted(seen, key=lambda name: -seen[name].log_ratio) == ["one", "two", "six", "eight"]
    assert sorted(longer, key=lambda name: -longer[name].log_ratio) == ["one", "two"]
    assert longer["one"].log_ratio == pytest.approx(seen["one"].log_ratio, abs=0.1)


@pytest.mark.full
def test_a_run_looks_at_its_sweeps_on_two_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    repo = make_repo(tmp_path, {"README": ""})
    shutil.copytree(ROOT / "examples" / "triton_softmax", repo, dirs_exist_ok=True)
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "example")
    words = ("--gpus", "2", "--max-iterations", "2", "--only", "warps-and-stages", "--json")
    end = tile_agent(repo, "run", "--kernel", "softmax.py", *words)
    assert end.code in (0, 3, 5), end.err
    assert "gpus   " not in end.err
    logs = list((tmp_path / "state" / "logs").glob(f"*/server-{GPUS[1].uuid}.log"))
    assert len(logs) == 1
