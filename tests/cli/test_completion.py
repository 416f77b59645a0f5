"""What a shell completes: commands, options, and values where the program knows them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli import completion
from agent.playbook import ADVICE, PLAYBOOK
from tests.support.project import tile_agent
from tests.support.repo import isolate, make_repo

PROGRAM = Path(sys.executable).parent / "tile-agent"
KERNEL = "import triton\n\n\n@triton.jit\ndef scale_kernel(x):\n    pass\n"


FILES = {
    "ops/scale.py": KERNEL,
    "ops/plain.py": "x = 1\n",
    "sandbox/runs/scale-2/journal.jsonl": "",
}


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    return make_repo(tmp_path / "project", FILES)


def offered(folder: Path, *words: str) -> list[str]:
    """What bash is given for the last of the words."""
    line = {"COMP_WORDS": " ".join(("tile-agent", *words)), "COMP_CWORD": str(len(words))}
    done = subprocess.run(
        [PROGRAM],
        cwd=folder,
        env={**os.environ, **line, "_TILE_AGENT_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("sta",), ["status"]),
        (("playbook", "sh"), ["show"]),
        (("run", "--max"), ["--max-iterations"]),
        (("run", "--sandbox", "s"), ["strict"]),
        (("run", "--only", "even-b"), ["even-blocks"]),
        (("playbook", "show", "even-b"), ["even-blocks"]),
    ],
    ids=" ".join,
)
def test_names_are_completed(tmp_path: Path, words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(tmp_path, *words) == expected


def test_kernels_and_runs_of_the_repository_are_completed(repo: Path) -> None:
    assert offered(repo, "run", "--kernel", "ops/") == ["ops/scale.py"]
    assert offered(repo / "ops", "run", "--kernel", "s") == ["scale.py"]
    assert offered(repo, "status", "sc") == ["scale-2"]
    assert offered(repo, "next", "--run", "") == ["scale-2"]


def test_outside_of_a_repository_nothing_is_offered(tmp_path: Path) -> None:
    assert offered(tmp_path, "run", "--kernel", "") == []
    assert offered(tmp_path, "resume", "") == []


def test_an_entry_is_called_after_its_file() -> None:
    assert completion.optimizations("") == sorted(entry.name for entry in (*PLAYBOOK, *ADVICE))


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_bash_completes_with_what_is_shown(tmp_path: Path) -> None:
    """The script is read by a bash, which calls its function as Tab would."""
    script = subprocess.run(
        ["bash", "-c", f"{PROGRAM} --show-completion; exit $?"],  # it asks who its parent is
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    asked = (
        f"{script}\nCOMP_WORDS=(tile-agent resu); COMP_CWORD=1\n"
        f'_tile_agent_completion {PROGRAM}\necho "${{COMPREPLY[@]}}"\n'
    )
    end = subprocess.run(
        ["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert end.stdout == "resume\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("run", "--kernl", "x.py"), "--kernel"),
        (("run", "--kernl", "x.py"), "tile-agent run --help"),
        (("run", "--kernel", "ops/scael.py"), "did you mean scale.py?"),
        (("resume", "scale-22"), "there is no run scale-22 here; did you mean scale-2?"),
        (("stop", "scale-22"), "there is no run scale-22 here; did you mean scale-2?"),
        (("status", "scale-22"), "there is no run scale-22 here; did you mean scale-2?"),
        (("run", "--kernel", "ops/scale.py", "--only", "even-block"), "did you mean even-blocks"),
    ],
    ids=str,
)
def test_a_mistyped_name_has_a_neighbour(repo: Path, words: tuple[str, ...], hint: str) -> None:
    end = tile_agent(repo, *words)
    assert end.code == 2
    assert hint in end.err
