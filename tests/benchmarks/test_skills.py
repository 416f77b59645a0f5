"""The benchmark of skills, in Triton's interpreter: the playbook, then an assistant's moves."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.loop_run import environment
from tests.support.project import KERNEL, TEST
from tests.support.repo import isolate, make_repo, write
from tests.support.warm_python import warm_interpreter

pytest.importorskip("triton", reason="triton is not installed")

ROOT = Path(__file__).parents[2]
SLOW = KERNEL.replace("BLOCK_SIZE = 256", "BLOCK_SIZE = 8")
ONLY = ["--only", "folded-exp2"]


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One kernel, whose playbook finds nothing to do."""
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    files = {"double.py": SLOW, "test_double.py": TEST, "pyproject.toml": "[tool.pytest]\n"}
    make_repo(tmp_path / "cases/double", files, name="repository")
    told = {"kernel": "double.py", "skill": "optimize-triton-kernel", "playbook": ONLY}
    write(tmp_path, {"cases/double/case.json": json.dumps(told)})
    return tmp_path / "cases"


def skills(cases: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [warm_interpreter(), "-m", "benchmarks.skills", str(cases), *arguments],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def move(cases: Path, name: str, choose: str, draft: str) -> Path:
    folder = cases / "double" / "moves" / name
    texts = {"choose.txt": choose, "draft.py": draft, "why.txt": "Fewer programs."}
    write(folder, texts)
    return folder


@pytest.mark.full
def test_moves_are_made_on_top_of_the_playbook(cases: Path) -> None:
    wrong = move(cases, "01", "own-idea", SLOW.replace("mask=mask)", "mask=mask) + 1"))
    mended = move(cases, "02", "mend", KERNEL)
    done = skills(cases)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads((folder / "answer.json").read_text()) for folder in (wrong, mended)]
    assert [answer["do"] for answer in answers] == ["edit", "next"]
    assert answers[1]["row"]["status"] == "keep", answers[1]
    told = (cases / "skills.md").read_text()
    cells = [cell.strip() for cell in told.splitlines()[-2].strip("|").split("|")]
    assert cells[:3] == ["double", "optimize-triton-kernel", "1.00x"]
    assert cells[4] == "1 of 2"
    assert float(cells[7].removesuffix("x")) > 2

    again = skills(cases)  # nothing is left to do
    assert (again.returncode, again.stdout) == (0, "double: done\n")
    assert not (cases / "double/led-2-begin.json").exists()


def test_what_cannot_be_begun_is_said(cases: Path) -> None:
    done = skills(cases, "--limit-s", "5")
    assert (done.returncode, done.stdout) == (1, "double: no time left\n")
    assert "no case triple; there are: double" in skills(cases, "triple").stderr
