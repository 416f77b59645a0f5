"""Commands and tests that insist on a GPU where there is none: told so, with what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.harness.processes.wanted_gpu import REMEDY
from tests.support.project import KERNEL, tile_agent
from tests.support.repo import isolate, make_repo
from tests.support.tiers import others_full
from tests.support.warm_python import warm_interpreter

ASSERTING = """\
import torch
from double import double


def test_double():
    assert torch.cuda.is_available()
    x = torch.ones(1000, device="cuda")
    torch.testing.assert_close(double(x), 2 * x)
"""
SCRIPT = """\
import torch
from double import double

{guard}
double(torch.ones(1000, device="cuda"))
"""


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


SAID = {
    "assert torch.cuda.is_available()": "AssertionError: assert torch.cuda.is_available()",
    "if not torch.cuda.is_available():\n    raise RuntimeError('needs CUDA')": (
        "RuntimeError: needs CUDA"
    ),
    "import sys\nsys.exit('a GPU is required')": "SystemExit: a GPU is required",
}


@pytest.mark.parametrize("guard", others_full(SAID))
def test_a_script(guard: str, tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"double.py": KERNEL, "use.py": SCRIPT.format(guard=guard)})
    end = tile_agent(repo, "capture", "--kernel", "double.py", "--", sys.executable, "use.py")
    assert end.code == 3
    assert end.err.splitlines()[-1].endswith(f", nothing was written: {SAID[guard]}: {REMEDY}")


def test_a_test(tmp_path: Path) -> None:
    """It is no wrong result."""
    repo = make_repo(tmp_path, {"double.py": KERNEL, "test_double.py": ASSERTING})
    python = warm_interpreter()
    asked = ("capture", "--kernel", "double.py", "--", python, "-m", "pytest", "-q")
    end = tile_agent(repo, *asked, "test_double.py")
    said = f"AssertionError: assert torch.cuda.is_available(): {REMEDY}"
    assert end.err.splitlines()[-1].endswith(f", nothing was written: {said}")
    end = tile_agent(repo, "verify", "--kernel", "double.py")
    assert end.out.startswith(f"test_double.py::test_double: {said} (see ")


def test_a_file_of_tests_that_asks_at_its_top(tmp_path: Path) -> None:
    asking = ASSERTING.replace("def test", "assert torch.cuda.is_available()\n\n\ndef test")
    repo = make_repo(tmp_path, {"double.py": KERNEL, "test_double.py": asking})
    end = tile_agent(repo, "plan", "--kernel", "double.py")
    first = end.out.splitlines()[0]
    assert "test_double.py:5: AssertionError: assert torch.cuda.is_available() (see " in first
    assert ": it asks for a GPU when it is imported, and there is none: " in first
