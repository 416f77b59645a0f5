"""Calls within `torch.autocast`, as every step of a mixed-precision training makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_capture import CAPTURED, KERNEL, OPERATORS, capture, cases, pytest_on
from tests.support.repo import isolate, make_repo, write
from tests.support.warm_python import warm_interpreter

CASTING = """

def scale_cast(x):
    device = x.device.type
    if torch.is_autocast_enabled(device):
        x = x.to(torch.get_autocast_dtype(device))
    y = torch.empty_like(x)
    _launch(x, y, 2.0)
    return y
"""
USE = """
import torch

from kernels.operators import scale_cast

scale_cast(torch.ones(300))
with torch.autocast("cpu", dtype=torch.bfloat16):
    scale_cast(torch.ones(300))
    scale_cast(torch.ones(40, 8))
"""


def test_they_are_made_within_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    settings = '[tool.pytest.ini_options]\npythonpath = ["."]\n'
    files = {KERNEL: OPERATORS + CASTING, "use.py": USE, "pyproject.toml": settings}
    repo = make_repo(tmp_path, files | {"tests/test_other.py": ""})
    done = capture(repo, warm_interpreter(), "use.py")
    assert done.code == 0, done.err
    assert {name: sorted(found) for name, found in cases(repo).items()} == {
        "SCALE_CAST": ["300-float32"],
        "SCALE_CAST_CAST_TO_BFLOAT16": ["300-float32", "40x8-float32"],
    }
    cast = "@torch.autocast(DEVICE, dtype=torch.bfloat16)\ndef test_"
    assert (repo / CAPTURED).read_text().count(cast) == 2
    assert pytest_on(repo, CAPTURED).returncode == 0
    halved = CASTING.replace("2.0", "2.0 if y.dtype == torch.float32 else 1.0")
    write(repo, {KERNEL: OPERATORS + halved})
    failed = pytest_on(repo, CAPTURED, "-k", "not perf").stdout
    assert "2 failed, 1 passed" in failed
    assert "FAILED" in failed
    assert "test_scale_cast_cast_to_bfloat16[300-float32]" in failed
