"""`tile-agent capture` of tests that are all skipped: they launch nothing, and say why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.project import tile_agent
from tests.support.repo import isolate, make_repo
from tests.support.tiers import others_full
from tests.support.warm_python import warm_interpreter

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, 1.0)
"""
MARKED = """\
import pytest


@pytest.mark.skipif(True, reason="needs a GPU\\nof sm_90")
@pytest.mark.parametrize("n", [1, 2])
def test_marked(n):
    pass


def test_within():
    pytest.skip("nothing")
"""
WHOLE = "import pytest\n\npytest.importorskip('no_such_package')\n\ndef test_it():\n    pass\n"
CASES = {
    "tests": (
        {"test_a.py": MARKED},
        "3 tests were all skipped, the first for: needs a GPU of sm_90; ",
    ),
    "a file": (
        {"test_b.py": WHOLE},
        "1 file of tests was skipped, the first for: could not import ",
    ),
    "both": (
        {"test_a.py": MARKED, "test_b.py": WHOLE},
        "3 tests and 1 file of tests were all skipped, the first for: ",
    ),
    "but one": (
        {"test_a.py": f"{MARKED}\n\ndef test_runs():\n    pass\n"},
        "the command made no call ",
    ),
}


@pytest.mark.parametrize("case", others_full(CASES, 2))
def test_that_all_tests_are_skipped_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    files, told = CASES[case]
    repo = make_repo(tmp_path, {"kernel.py": KERNEL, **files})
    command = (warm_interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider")
    given = ("--kernel", "kernel.py", "--json", "--", *command)
    done = tile_agent(repo, "capture", *given, env=dict(os.environ))
    assert done.code == 4, done.err
    assert done.json["error"].startswith(told)
    assert "\n" not in done.json["error"]
    assert not [*repo.glob("*captured*")]


def test_functions_of_a_script_are_not_pytests_to_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(monkeypatch, tmp_path)
    script = "import kernel\n\ndef test_speed(rows, columns):\n    pass\n"
    repo = make_repo(tmp_path, {"kernel.py": KERNEL, "bench/test_k.py": script})
    command = [warm_interpreter(), "-m", "pytest", "-q", "bench/test_k.py"]
    done = tile_agent(
        repo, "capture", "--kernel", "kernel.py", "--json", "--", *command, env=dict(os.environ)
    )
    assert done.code == 3, done.err
    assert done.json["error"] == (
        "the command failed (exit code 1), nothing was written: bench/test_k.py::test_speed takes "
        "`rows`, which is no fixture, so that pytest cannot call it: where a script calls it, run "
        "that, `python bench/test_k.py`"
    )
