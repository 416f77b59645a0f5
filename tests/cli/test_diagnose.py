"""`tile-agent diagnose` where there is no GPU: source and compiler, over a small repository."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.causes import Cause, Diagnosis
from agent.cli.diagnose import _to_try
from agent.environment import probe
from agent.playbook import find
from agent.target import parse
from tests.support.evidence import CUTILE, TEST
from tests.support.project import tile_agent
from tests.support.repo import isolate, make_repo, snapshot

ENVIRONMENT = probe()
pytestmark = pytest.mark.skipif(
    ENVIRONMENT.versions["cuda-tile"] is None or ENVIRONMENT.tileiras is None,
    reason="tileiras is not installed",
)


@pytest.mark.full
def test_a_kernel_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # where there is a GPU, it is not looked at
    folder = make_repo(tmp_path, {"kernel.py": CUTILE, "tests/test_kernel.py": TEST})
    before = snapshot(folder)
    ended = tile_agent(folder, "diagnose", "--kernel", "kernel.py", "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["cause"] == "memory"
    assert found["families"] == found["entries"] == []
    assert any(line.startswith("compiled: scale_kernel for sm_90:") for line in found["evidence"])
    assert any(line.startswith("missing: no latency of a GPU") for line in found["evidence"])
    (launch,) = found["observed"]
    assert (launch["grid"], launch["integers"]) == ([1024], {"TILE": 1024})
    assert launch["tensors"]["x"]["shape"] == [2**20]
    assert found["tuning"] == []
    told = tile_agent(folder, "diagnose", "--kernel", "kernel.py").out.splitlines()
    assert "scale_kernel, grid 1024, by tests/test_kernel.py::test_perf_run" in told
    assert "  x, y: float32[1048576], contiguous, 16-byte aligned" in told
    assert snapshot(folder) == before


TRITON = """
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + places, tl.load(x_ptr + places, mask=places < n) * 2, mask=places < n)


def run(x, y):
    scale[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
"""


def test_what_to_try_are_entries_that_apply() -> None:
    """Families are none, and those of the other language are of no use."""
    source, backend = parse(TRITON, "kernel.py")
    found = Diagnosis(Cause.LOCALITY, (), ("alignment", "static-shapes", "tma", "warps"))
    entries = _to_try(found, backend, source, 90, ())
    assert "warps-and-stages" in entries
    assert all(find(name).backend == "triton" for name in entries)
    assert _to_try(replace(found, families=("tma",)), backend, source, 90, ()) == []


PRODUCT = """

@ct.kernel
def product_kernel(a, b, y):
    left = ct.load(a, index=(0, 0), shape=(64, 64))
    right = ct.load(b, index=(0, 0), shape=(64, 64))
    total = ct.mma(left, right, ct.zeros((64, 64), dtype=ct.float32))
    ct.store(y, index=(0, 0), tile=total)


def product(a, b, y):
    ct.launch(torch.cuda.current_stream(), (1,), product_kernel, (a, b, y))
"""


@pytest.mark.full
def test_a_kernel_that_no_test_launches_says_nothing_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    files = {"kernel.py": CUTILE + PRODUCT, "tests/test_kernel.py": TEST}
    folder = make_repo(tmp_path, files)
    ended = tile_agent(folder, "diagnose", "--kernel", "kernel.py", "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["cause"] == "memory"
    assert any(line.startswith("source: memory-bound") for line in found["evidence"])
