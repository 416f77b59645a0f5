"""`tile-agent diagnose` where there is no GPU: source and compiler, over a small repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.environment import probe
from tests.support.evidence import CUTILE, TEST
from tests.support.project import tile_agent
from tests.support.repo import isolate, make_repo, snapshot

ENVIRONMENT = probe()
pytestmark = pytest.mark.skipif(
    ENVIRONMENT.versions["cuda-tile"] is None or ENVIRONMENT.tileiras is None,
    reason="cuda-tile[tileiras] is not installed",
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
    assert found["families"] == []
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
