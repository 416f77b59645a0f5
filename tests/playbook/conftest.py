"""What the tests of the playbook share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def fresh_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing compiled before is found, and Triton 3.9 need not warn of its default."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
