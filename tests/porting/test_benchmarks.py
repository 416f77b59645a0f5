"""Every Triton kernel of the benchmarks is ported, agrees with its origin, and compiles."""

import re
from pathlib import Path
from typing import Any

import pytest

from agent.environment import probe
from agent.port_answers import read
from agent.ported import TARGETS, check, project_of
from agent.porting import port
from tests.support.warm_python import warm_interpreter

ROOT = Path(__file__).parents[2]
KERNELS = sorted((ROOT / "benchmarks" / "triton").glob("*/[a-z]*.py"))
PORTED = [path for path in KERNELS if path.stem == path.parent.name]
FIRST = "softmax"


def marked(path: Path) -> Any:
    return pytest.param(path, marks=() if path.stem == FIRST else pytest.mark.full, id=path.stem)


def test_all_of_them_are_looked_at() -> None:
    assert len(PORTED) == 12


@pytest.mark.parametrize("path", PORTED, ids=lambda path: path.stem)
def test_nothing_of_triton_is_left(path: Path) -> None:
    made = port(path.read_text(), str(path))
    code = compile(made.text, path.name, "exec")
    assert "triton" not in code.co_names
    assert "import triton" not in made.text
    assert not re.search(r"^[^#]*\btl\.", made.text, re.MULTILINE)
    assert max(map(len, made.text.splitlines())) <= 100


@pytest.mark.parametrize("path", [marked(path) for path in PORTED])
def test_it_agrees_with_its_origin(path: Path) -> None:
    """On ragged sizes, two types and strided inputs, which are what its own tests call it with."""
    made = port(path.read_text(), str(path))
    project = project_of(path)
    assert [file.name for file in project.tests] == [f"test_{path.stem}.py"]
    found = check(made, path, project, made.functions, python=warm_interpreter(), timeout_s=300)
    assert found.problems == ()
    assert found.unchecked == ""
    assert found.calls >= found.tests > 0
    if probe().tileiras is not None:
        assert set(TARGETS) - {"sm_80"} <= set(found.compiled)  # which has no fp8


def test_what_is_told_of_an_old_gpu_is_no_fault_of_the_port() -> None:
    """fp8 is not for sm_80, in either language."""
    answers = [
        {"event": "compiled", "kernel": "k", "target": "sm_80", "ok": False, "error": "no fp8"},
        {"event": "compiled", "kernel": "k", "target": "sm_90", "ok": True, "error": ""},
        {"event": "end", "passed": 1, "failed": 0, "launching": 0},
        {"event": "call", "function": "f", "problem": None, "relative": 0.0},
    ]
    found = read(answers, "", "", in_place=False)
    assert found.problems == ()
    assert found.notes == ("k does not compile for sm_80: no fp8",)
    worse = read([answers[0], *answers[2:]], "", "", in_place=False)
    assert worse.problems == ("k does not compile for sm_80: no fp8",)
