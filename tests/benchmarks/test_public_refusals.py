"""Public files as candidates for themselves: one that passes, one that cannot, one refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.test_public_agreement import KERNEL, LINE, ROOT, TEST, clone_with

pytest.importorskip("triton", reason="triton is not installed")

BY_PROCESS = "y * (1 if __import__('pathlib').Path.cwd().name == 'origin' else 3)"


@pytest.mark.full
def test_each_file_is_judged_as_a_candidate_for_itself(tmp_path: Path) -> None:
    other = KERNEL.replace("return y", f"return {BY_PROCESS}")
    bench = clone_with(
        tmp_path,
        scale=KERNEL + LINE + TEST,
        broken=f"{KERNEL}{LINE}raise OSError('no such file')\n",
        other=other + LINE + TEST,
    )
    out = tmp_path / "out"
    words = [sys.executable, "-m", "benchmarks.public_refusals", str(out), str(bench)]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    known = json.loads((out / "public_refusals.json").read_text())
    assert "OSError: no such file" in known["broken"]["left_out"]
    assert (known["scale"]["left_out"], known["scale"]["refused"]) == ("", "")
    assert known["scale"]["layouts"] > 1
    assert known["other"]["refused"].startswith("scale with "), known
    assert done.returncode == 1
    assert "2 of 3 files pass their own test here; " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("- other: scale with ")
