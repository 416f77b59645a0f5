"""`playbook show NAME --kernel FILE --diff N`: one version that an entry would try, as a diff."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent import playbook
from agent.errors import ExitCode
from tests.support.project import Outcome, tile_agent
from tests.support.repo import git, isolate, make_repo

ENTRY = playbook.get("blocks-and-warps")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    return make_repo(tmp_path, {"ops/swish.py": ENTRY.before, "test_ops.py": ""})


def show(repo: Path, *arguments: str, name: str = ENTRY.name) -> Outcome:
    return tile_agent(repo, "playbook", "show", name, *arguments)


def test_git_applies_it_from_the_root_of_the_checkout(repo: Path) -> None:
    versions = show(repo, "--kernel", "ops/swish.py").out.split("a program would try: ")[1]
    titles = versions.splitlines()[0].split("), ")
    number = 1 + next(n for n, title in enumerate(titles) if "BLOCK=2048, num_warps=8" in title)
    shown = show(repo / "ops", "--kernel", "swish.py", "--diff", str(number))
    assert shown.code == ExitCode.DONE, shown.err
    subprocess.run(["git", "apply"], input=shown.out, text=True, cwd=repo, check=True)
    assert (repo / "ops/swish.py").read_text() == ENTRY.after
    git(repo, "checkout", "--quiet", ".")
    told = show(repo, "--kernel", "ops/swish.py", "--diff", str(number), "--json").json
    assert told["diff"] == shown.out.rstrip("\n") + "\n"
    assert told["params"] == {"BLOCK": 2048, "num_warps": 8} and told["name"] == ENTRY.name


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--kernel", "ops/swish.py", "--diff", "99"), "versions of ops/swish.py, and none is"),
        (("--diff", "1"), "name its file with --kernel"),
        (("--kernel", "ops/gone.py", "--diff", "1"), "ops/gone.py"),
        (("--kernel", "test_ops.py", "--diff", "1"), "test_ops.py"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    repo: Path, arguments: tuple[str, ...], reason: str
) -> None:
    shown = show(repo, *arguments)
    assert shown.code == ExitCode.USAGE and not shown.out
    assert reason in shown.err and len(shown.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("loop-stages", "loop-stages does not apply to ops/swish.py: "),
        ("occupancy-hint", "it is for cutile, and this is triton"),
        (playbook.ADVICE[0].name, "no program carries out"),
    ],
)
def test_an_entry_that_changes_nothing_here_says_why(repo: Path, name: str, reason: str) -> None:
    shown = show(repo, "--kernel", "ops/swish.py", "--diff", "1", name=name)
    assert shown.code == ExitCode.USAGE and reason in shown.err
