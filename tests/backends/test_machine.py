"""What a machine can time, and what its latency means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.backends import BACKENDS
from agent.environment import Environment, Gpu

H200 = Gpu("NVIDIA H200", "GPU-1", 90, 143771, "580.159.04")
FULL = Environment(
    gpus=(H200,),
    versions={"triton": "3.9.0", "cuda-tile": "1.7.0"},
    tileiras="/usr/bin/tileiras",
    python="3.11.7",
    system="Linux",
)
BARE = replace(FULL, gpus=())
NOTHING = replace(BARE, versions={}, tileiras=None)


def test_a_full_machine_is_not_refused() -> None:
    for backend in BACKENDS.values():
        assert backend.refusal(FULL) is None
        assert "NVIDIA H200" in backend.latency_meaning(FULL)
    # A kernel that tunes itself keeps its choice across the fresh processes of a run.
    assert BACKENDS["triton"].worker_environment(FULL) == {"TRITON_CACHE_AUTOTUNING": "1"}
    assert BACKENDS["cutile"].worker_environment(FULL) == {}


def test_triton_without_gpu_is_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = BACKENDS["triton"]
    assert triton.refusal(BARE) is None
    assert "ranks nothing for a GPU" in triton.latency_meaning(BARE)
    for name in ("OMP_WAIT_POLICY", "TORCHDYNAMO_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    passive = {"OMP_WAIT_POLICY": "passive", "TORCHDYNAMO_DISABLE": "1"}
    assert triton.worker_environment(BARE) == {"TRITON_INTERPRET": "1", **passive}
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "0")
    assert triton.worker_environment(BARE)["TORCHDYNAMO_DISABLE"] == "0", "the user has said it"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert triton.worker_environment(BARE)["OMP_WAIT_POLICY"] == "active", "the user has said it"
    assert "pip install 'tile-agent[triton]'" in (triton.refusal(NOTHING) or "")


def test_an_old_triton_is_refused() -> None:
    old = replace(FULL, versions={**FULL.versions, "triton": "3.2.0"}, executable="/venv/python")
    assert BACKENDS["triton"].refusal(old) == (
        "/venv/python has triton 3.2.0, and tile-agent needs 3.4 or newer: "
        "install torch 2.8 or newer there"
    )
    assert BACKENDS["cutile"].refusal(old) is None, "which does without"


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        (BARE, "tile-agent verify"),
        (replace(FULL, gpus=(replace(H200, driver="570.10"),)), "r580"),
        (replace(FULL, gpus=(replace(H200, sm=75),)), "compute capability 8.0"),
        (replace(FULL, versions={}), "pip install 'tile-agent[cutile]'"),
        (replace(FULL, tileiras=None), "tileiras"),
    ],
)
def test_cutile_says_what_is_missing(environment: Environment, told: str) -> None:
    refusal = BACKENDS["cutile"].refusal(environment) or ""
    assert told in refusal
    assert "\n" not in refusal
