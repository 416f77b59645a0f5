"""The tables of cuda.tile's names are those of the cuda.tile that is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent.lint import api
from tools.cutile_api import FILE, generated


def test_the_generated_file_is_not_stale() -> None:
    pytest.importorskip("cuda.tile")
    stale = "make it anew: python -m tools.cutile_api"
    assert FILE.read_text(encoding="utf-8") == generated(), stale


def test_the_file_reads_back_as_signatures() -> None:
    load = api.signatures()["load"]
    load.bind("array", (0,), shape=(16,), allow_tma=False)
    with pytest.raises(TypeError):
        load.bind("array")
    assert {"load", "tune.TuningResult", "compilation.export_kernel"} <= api.names()
    assert "occupancy" in api.HINTS


def test_lint_works_without_cuda_tile() -> None:
    script = "import sys; sys.modules['cuda'] = None; import agent.lint.api, agent.lint.run"
    subprocess.run([sys.executable, "-c", script], check=True)
