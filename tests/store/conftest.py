"""A state folder of each test's own, and judgements to keep in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.store.judgements import FASTER, Judgement
from tests.support.repo import isolate


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def judgement(key: str, **facts: object) -> Judgement:
    """A kept step of a softmax on an H200, but for what is said."""
    known: dict[str, object] = {
        "began_at_s": 1_795_600_000,
        "version": "0.1.0",
        "backend": "triton",
        "kind": "reductions",
        "fingerprint": "0123456789abcdef",
        "dtypes": "bfloat16",
        "shapes": "16384x4096",
        "gpu": "NVIDIA H200",
        "sm": 90,
        "toolchain": '{"driver": "580.1"}',
        "proposer": "playbook",
        "entry": "row-in-registers",
        "params": '{"elements_per_warp": 512}',
        "status": "keep",
        "outcome": FASTER,
        "gain": 0.4,
        "low": 0.38,
        "high": 0.42,
    }
    return Judgement(key=key, **(known | facts))  # type: ignore[arg-type]
