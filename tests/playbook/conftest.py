"""What the tests of the playbook share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def compiler_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for the whole session: it begins empty, and all of its processes share it."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "triton"


@pytest.fixture
def compiler(compiler_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is compiled twice in a session, and Triton 3.9 need not warn of its default."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(compiler_cache))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
