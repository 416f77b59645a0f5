"""What was touched: the user's repository and a commit's worktree, before and after."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.repository import Repository
from agent.touched import Touched, UsersRepository, Worktree, named
from agent.workspace import SANDBOX, Workspace
from tests.support.repo import KERNEL, git, isolate, make_repo, write

BRANCH = "tile-agent/softmax"
FILES = {
    "kernels/softmax.py": KERNEL,
    "tests/test_softmax.py": "def test_softmax():\n    pass\n",
    "tests/data.bin": b"\0\r\n\xff",
    ".gitignore": "*.log\n",
}


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """With what a user may have: edits, untracked and ignored files, a stash, a hook."""
    repo = make_repo(tmp_path, FILES)
    write(repo, {"tests/data.bin": b"stashed"})
    git(repo, "stash", "push", "--quiet")
    write(repo, {"notes.txt": "mine", "run.log": "ignored", "kernels/other.py": "x = 1\n"})
    git(repo, "add", "kernels/other.py")
    write(repo, {"kernels/other.py": "x = 2\n", ".git/hooks/pre-push": "#!/bin/sh\n"})
    return repo


def after(repo: Path, act: Callable[[Path], object]) -> Touched:
    """What is found when something has been done."""
    users = UsersRepository(Repository.open(repo), leave_out=(SANDBOX,))
    before = users.look(BRANCH)
    act(repo)
    return users.touched(before, BRANCH)


def put(name: str, text: str) -> Callable[[Path], object]:
    return lambda repo: write(repo, {name: text})


def run(*words: str) -> Callable[[Path], object]:
    return lambda repo: git(repo, *words)


def forge(repo: Path) -> None:
    """Write as many bytes as there were, and set the times back."""
    path = repo / "kernels" / "softmax.py"
    info = path.stat()
    text = path.read_text()
    path.write_text(text.replace("128", "129"))
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert path.stat().st_mtime_ns == info.st_mtime_ns


TOLD: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "a tracked file": (put("kernels/softmax.py", "x"), {"changed kernels/softmax.py"}),
    "a forged one": (forge, {"changed kernels/softmax.py"}),
    "an edited one": (put("kernels/other.py", "x = 3\n"), {"changed kernels/other.py"}),
    "an edited one, as it was staged": (
        put("kernels/other.py", "x = 1\n"),
        {"changed kernels/other.py"},
    ),
    "an untracked file": (put("notes.txt", "gone"), {"changed notes.txt"}),
    "an ignored file": (put("run.log", "IGNORED"), {"changed run.log"}),
    "a new file": (put("new\nline", ""), {"added 'new\\nline'"}),
    "a removed file": (lambda repo: (repo / "notes.txt").unlink(), {"deleted notes.txt"}),
    "a mode": (
        lambda repo: (repo / "kernels" / "softmax.py").chmod(0o755),
        {"changed kernels/softmax.py"},
    ),
    "what is staged": (run("add", "kernels/other.py"), {"changed the index"}),
    "the stash": (
        run("stash", "drop", "--quiet"),
        {"changed the stash", "changed the reflog of refs/stash"},
    ),
    "a tag": (run("tag", "v1"), {"changed refs/tags/v1"}),
    "a branch": (
        run("branch", "mine"),
        {"changed refs/heads/mine", "changed the reflog of refs/heads/mine"},
    ),
    "a commit": (
        run("commit", "--quiet", "--allow-empty", "-m", "Second"),
        {
            "changed refs/heads/main",
            "changed the reflog of HEAD",
            "changed the reflog of refs/heads/main",
        },
    ),
    "an index that git cannot read": (put(".git/index", "broken"), {"changed the index"}),
    "HEAD": (run("symbolic-ref", "HEAD", "refs/heads/else"), {"changed HEAD"}),
    "an excluded file": (put(".git/info/exclude", "*.o\n"), {"changed info/exclude"}),
}


@pytest.mark.parametrize("what", TOLD)
def test_what_may_have_been_the_user_is_told(repo: Path, what: str) -> None:
    act, expected = TOLD[what]
    found = after(repo, act)
    assert (set(found.others), found.runs_later) == (expected, ())


CONFIGURATION = "changed git's configuration"
RUNS_LATER: dict[str, tuple[Callable[[Path], object], str]] = {
    "a hook": (put(".git/hooks/post-commit", "#!/bin/sh\n"), "changed git's hook post-commit"),
    "a hook's mode": (
        lambda repo: (repo / ".git/hooks/pre-push").chmod(0o755),
        "changed git's hook pre-push",
    ),
    "a setting": (run("config", "core.fsmonitor", "./evil"), CONFIGURATION),
    "a setting behind a branch's": (
        lambda repo: (repo / ".git/config").write_text(
            (repo / ".git/config").read_text() + '[branch "x"] [core]\n\tfsmonitor = ./evil\n'
        ),
        CONFIGURATION,
    ),
    "a setting that git cannot read": (put(".git/config", "[core\n"), CONFIGURATION),
    "attributes": (put(".git/info/attributes", "* filter=evil\n"), "changed git's attributes"),
}


@pytest.mark.parametrize("what", RUNS_LATER)
def test_what_git_would_run_is_told_apart(repo: Path, what: str) -> None:
    act, expected = RUNS_LATER[what]
    assert after(repo, act).runs_later == (expected,)


UNTOUCHED: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _repo: None,
    "a file that is saved again": lambda repo: (repo / "tests" / "data.bin").write_bytes(
        (repo / "tests" / "data.bin").read_bytes()
    ),
    "an edited file that is saved again": put("kernels/other.py", "x = 2\n"),
    "an index that is refreshed": lambda repo: (
        os.utime(repo / "kernels" / "softmax.py"),
        git(repo, "status"),
    ),
    "refs that are packed": run("pack-refs", "--all"),
    "a branch that is pushed": lambda repo: (
        git(repo, "config", "branch.main.remote", "origin"),
        git(repo, "config", "branch.main.merge", "refs/heads/main"),
    ),
    "the run's own": lambda repo: (
        write(repo, {"sandbox/runs/r1/journal.jsonl": "{}"}),
        git(repo, "update-ref", "refs/tile-agent/r1/origin", "HEAD"),
        git(repo, "branch", BRANCH),
    ),
    "what Python compiles": put("kernels/__pycache__/softmax.cpython-313.pyc", "x"),
    "a virtual environment": put(".venv/lib/x.py", "x = 1\n"),
}


@pytest.mark.parametrize("what", UNTOUCHED)
def test_what_changes_nothing_is_not_told(repo: Path, what: str) -> None:
    write(repo, {".venv/pyvenv.cfg": ""})
    assert after(repo, UNTOUCHED[what]) == Touched()


def test_a_linked_worktree_as_the_users_checkout(repo: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "--quiet", "-b", "side", str(linked))
    found = after(linked, put("kernels/softmax.py", "x"))
    assert found.others == ("changed kernels/softmax.py",)
    found = after(linked, run("commit", "--quiet", "--allow-empty", "-m", "Second"))
    assert set(found.others) == {
        "changed refs/heads/side",
        "changed the reflog of HEAD",
        "changed the reflog of refs/heads/side",
    }
    hook = after(linked, lambda _linked: write(repo, {".git/hooks/post-commit": ""}))
    assert hook.runs_later == ("changed git's hook post-commit",)


def test_refs_in_a_table(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    try:
        git(repo, "init", "--quiet", "--ref-format=reftable")
    except Exception:
        pytest.skip("this git keeps refs in files only")
    write(repo, FILES)
    git(repo, "add", "--all")
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    git(repo, *who, "commit", "--quiet", "--message", "First")
    assert "changed refs/tags/v1" in after(repo, run("tag", "v1")).others
    assert after(repo, run("update-ref", "refs/tile-agent/r1/origin", "HEAD")) == Touched()


def test_many_changes_are_counted(repo: Path) -> None:
    found = after(repo, lambda repo: write(repo, {f"new{n}": "" for n in range(9)}))
    assert found.all[4:] == ("added new4", "4 more")
    assert named(found.others).endswith(", added new3, added new4, 4 more")


# --- the worktree of a commit -------------------------------------------------------------------


def link(root: Path) -> None:
    (root / "torch").symlink_to("/tmp")


def touch(root: Path) -> None:
    os.utime(root / "tests" / "test_softmax.py")
    (root / "tests" / "data.bin").write_bytes(b"\0\r\n\xff")


IN_A_WORKTREE: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a test": (put("tests/test_softmax.py", ""), ["changed tests/test_softmax.py"]),
    "a forged kernel": (forge, ["changed kernels/softmax.py"]),
    "a test that is gone": (
        lambda root: (root / "tests" / "test_softmax.py").unlink(),
        ["deleted tests/test_softmax.py"],
    ),
    "a new conftest": (put("tests/conftest.py", ""), ["added tests/conftest.py"]),
    "a configuration": (put("pytest.ini", "[pytest]\n"), ["added pytest.ini"]),
    "a compiled test": (
        put("tests/__pycache__/test_softmax.cpython-313-pytest-9.0.pyc", ""),
        ["added tests/__pycache__/test_softmax.cpython-313-pytest-9.0.pyc"],
    ),
    "a link": (link, ["added torch"]),
    "the way to the repository": (put(".git", "gitdir: /elsewhere\n"), ["changed .git"]),
    "all of it": (
        shutil.rmtree,
        [f"deleted {name}" for name in sorted([*FILES, ".git"])],
    ),
    "data that a test writes": (put("out/plot.png", ""), []),
    "what is written as it was": (touch, []),
}


@pytest.mark.parametrize("what", IN_A_WORKTREE)
def test_a_worktree_against_its_commit(repo: Path, what: str) -> None:
    repository = Repository.open(repo)
    workspace = Workspace(repository, "r1")
    sha = git(repo, "rev-parse", "HEAD")
    tree = Worktree.look(repository, workspace.checkout(sha), sha)
    act, expected = IN_A_WORKTREE[what]
    act(tree.root)
    assert [str(change) for change in tree.changes()] == expected
