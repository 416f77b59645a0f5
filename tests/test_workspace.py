"""Workspaces on real repositories: what a run adds, and that nothing of the user's changes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent.errors import GitError, UsageError
from agent.repository import GitResult, Repository
from agent.throwaway import throwaway
from agent.workspace import Workspace, lock_owner, state_dir
from tests.support.repo import KERNEL, changed, git, isolate, make_repo, snapshot, write

SOFTMAX = "kernels/softmax.py"
FASTER = KERNEL.replace("BLOCK=128", "BLOCK=256").encode()
WHEN = 1_700_000_000.0


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A checkout in the middle of somebody's work: staged, unstaged, untracked, stashed."""
    repo = make_repo(
        tmp_path,
        {
            "kernels/__init__.py": "",
            SOFTMAX: KERNEL,
            "tests/test_softmax.py": "def test_softmax(): pass\n",
            "notes.txt": "one\n",
            "staged.txt": "one\n",
            ".gitignore": "*.log\n",
        },
        config={"core.trustctime": "false"},  # times that can be forged
    )
    write(repo, {"notes.txt": "stashed\n"})
    git(repo, "stash", "push", "--quiet")
    write(repo, {"notes.txt": "two\n", "staged.txt": "two\n"})
    git(repo, "add", "staged.txt")
    write(repo, {"untracked.txt": "mine\n", "run.log": "mine too\n"})
    (repo / "link").symlink_to("notes.txt")
    (repo / "notes.txt").touch()  # an index that a refresh would rewrite
    return repo


def open_workspace(repo: Path, run_id: str = "r1") -> Workspace:
    return Workspace(Repository.open(repo), run_id)


def head(repo: Path) -> str:
    return git(repo, "rev-parse", "HEAD")


def candidate(workspace: Workspace, source: bytes = FASTER, kernel: str = SOFTMAX) -> str:
    parent = head(workspace.repository.root)
    return workspace.commit_candidate(parent, kernel, source, "Occupancy 4", WHEN)


# --- the promise --------------------------------------------------------------------------------


def test_a_whole_run_changes_nothing_of_the_users(repo: Path) -> None:
    before = snapshot(repo)
    origin = head(repo)
    workspace = open_workspace(repo)
    with workspace.lock(SOFTMAX):
        workspace.set_up("tile-agent/softmax", origin, repo / "sandbox" / "r1")
        incumbent = workspace.checkout(origin)
        sha = candidate(workspace)
        workspace.keep_ref("candidate/1", sha)
        assert (workspace.checkout(sha) / SOFTMAX).read_bytes() == FASTER
        assert (incumbent / SOFTMAX).read_text() == KERNEL
        kept = workspace.commit_kept(origin, sha, "Keep occupancy 4", WHEN)
        assert workspace.advance_branch("tile-agent/softmax", kept) is None
        workspace.release(sha)
        workspace.close()

    assert changed(before, snapshot(repo)) == {
        "refs/heads/tile-agent/softmax",
        "refs/tile-agent/r1/origin",
        "refs/tile-agent/r1/candidate/1",
        "refs/tile-agent/r1/best",
        "git info/exclude",
        "sandbox",
        "sandbox/r1",
    }
    assert git(repo, "log", "--format=%s", "tile-agent/softmax") == "Keep occupancy 4\nFirst"
    assert git(repo, "diff", "--name-only", "main", "tile-agent/softmax") == SOFTMAX
    assert not any((state_dir() / "worktrees").iterdir())
    git(repo, "fsck", "--strict")


def test_undo_setup_leaves_nothing(repo: Path) -> None:
    before = snapshot(repo)
    workspace = open_workspace(repo)
    setup = workspace.set_up("fast", head(repo), repo / "sandbox" / "runs" / "r1")
    write(setup.folders[0], {"journal.jsonl": "{}\n"})
    workspace.checkout(head(repo))
    workspace.keep_ref("candidate/1", candidate(workspace))
    workspace.undo_setup(setup)
    assert changed(before, snapshot(repo)) == set()


def test_undo_setup_spares_what_was_there(repo: Path) -> None:
    write(repo, {"sandbox/README.md": "mine\n"})
    before = snapshot(repo)
    workspace = open_workspace(repo)
    workspace.undo_setup(workspace.set_up("fast", head(repo), repo / "sandbox" / "r1"))
    assert changed(before, snapshot(repo)) == set()


def test_undo_setup_keeps_a_branch_that_moved(repo: Path) -> None:
    workspace = open_workspace(repo)
    setup = workspace.set_up("fast", head(repo), repo / "sandbox" / "r1")
    sha = candidate(workspace)
    assert workspace.advance_branch("fast", sha) is None
    workspace.undo_setup(setup)
    assert git(repo, "rev-parse", "fast") == sha


def test_undo_setup_keeps_a_branch_that_is_checked_out(repo: Path) -> None:
    workspace = open_workspace(repo)
    setup = workspace.set_up("fast", head(repo), repo / "sandbox" / "r1")
    git(repo, "symbolic-ref", "HEAD", "refs/heads/fast")
    workspace.undo_setup(setup)
    assert git(repo, "rev-parse", "fast") == head(repo)


def test_set_up_that_fails_changes_nothing(repo: Path) -> None:
    (repo / "sandbox").write_text("a file")
    before = snapshot(repo)
    with pytest.raises(OSError):
        open_workspace(repo).set_up("fast", head(repo), repo / "sandbox" / "r1")
    assert changed(before, snapshot(repo)) == set()


def test_set_up_refuses_a_run_that_is_there(repo: Path) -> None:
    write(repo, {"sandbox/r1/journal.jsonl": "{}\n"})
    before = snapshot(repo)
    with pytest.raises(UsageError, match="r1 exists already"):
        open_workspace(repo).set_up("fast", head(repo), repo / "sandbox" / "r1")
    assert changed(before, snapshot(repo)) == set()


# --- info/exclude -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"# mine\n*.o\n", b"*.o", b"*.o\r\n", None])
def test_exclude_is_taken_back_exactly(repo: Path, text: bytes | None) -> None:
    exclude = repo / ".git" / "info" / "exclude"
    if text is None:
        shutil.rmtree(exclude.parent)
    else:
        exclude.write_bytes(text)
    workspace = open_workspace(repo)
    setup = workspace.set_up("fast", head(repo), repo / "sandbox" / "r1")
    write(repo, {"sandbox/r1/journal.jsonl": "{}\n"})
    assert setup.excluded
    assert "sandbox" not in git(repo, "status", "--porcelain")
    assert not workspace.exclude_sandbox()  # once
    workspace.undo_setup(setup)
    assert (exclude.read_bytes() if exclude.exists() else None) == text
    assert exclude.parent.exists() == (text is not None)


def test_exclude_keeps_lines_that_came_after(repo: Path) -> None:
    exclude = repo / ".git" / "info" / "exclude"
    exclude.write_bytes(b"*.o\n")
    workspace = open_workspace(repo)
    setup = workspace.set_up("fast", head(repo), repo / "sandbox" / "r1")
    with exclude.open("ab") as file:
        file.write(b"*.tmp\n")
    workspace.undo_setup(setup)
    assert exclude.read_bytes() == b"*.o\n*.tmp\n"


def test_exclude_needs_no_line_where_the_user_has_one(repo: Path) -> None:
    with (repo / ".gitignore").open("a") as file:
        file.write("sandbox/*\n!sandbox/README.md\n")
    assert not open_workspace(repo).exclude_sandbox()


# --- candidates ---------------------------------------------------------------------------------


def test_a_candidate_is_the_same_commit_each_time(repo: Path) -> None:
    workspace = open_workspace(repo)
    first = candidate(workspace)
    assert candidate(workspace) == first
    facts = git(repo, "show", "--no-patch", "--format=%an <%ae> %at %cn <%ce> %ct %P", first)
    who = f"Ada <ada@example.com> {int(WHEN)}"
    assert facts == f"{who} {who} {head(repo)}"
    assert workspace.repository.read(first, SOFTMAX) == FASTER


def test_a_candidate_of_a_file_that_is_not_there(repo: Path) -> None:
    with pytest.raises(GitError, match=r"none\.py is not in commit"):
        candidate(open_workspace(repo), kernel="none.py")


@pytest.mark.parametrize("config", [{}, {"user.useConfigOnly": "true"}])
def test_without_a_configured_identity(tmp_path: Path, config: dict[str, str]) -> None:
    repo = make_repo(tmp_path, config=config)
    git(repo, "config", "--unset", "user.name")
    workspace = open_workspace(repo)
    sha = candidate(workspace)
    workspace.create_branch("fast", sha)
    author = git(repo, "show", "--no-patch", "--format=%an <%ae>", sha)
    assert author == "tile-agent <tile-agent@localhost>"


@pytest.mark.parametrize(
    "name",
    [
        "my kernel.py",
        "-rf.py",
        "a,b.py",
        "new\nline.py",
        "größe.py",
        "*.py",
        ":(top)k.py",
        "a'b.py",
    ],
)
def test_odd_names(tmp_path: Path, name: str) -> None:
    repo = make_repo(tmp_path, {name: KERNEL, "k.py": KERNEL, f"sub/{name}": KERNEL})
    before = snapshot(repo)
    workspace = open_workspace(repo)
    for kernel in (name, f"sub/{name}"):
        sha = candidate(workspace, kernel=kernel)
        assert git(repo, "diff", "-z", "--name-only", "HEAD", sha).strip("\0") == kernel
        assert (workspace.checkout(sha) / kernel).read_bytes() == FASTER
    with workspace.lock(name):
        pass
    workspace.close()
    assert changed(before, snapshot(repo)) == set()


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"k\xff.py")
    repo = make_repo(tmp_path, {name: KERNEL})
    workspace = open_workspace(repo)
    sha = candidate(workspace, kernel=name)
    assert (workspace.checkout(sha) / name).read_bytes() == FASTER
    with workspace.lock(name):
        pass


def test_an_executable_kernel_stays_executable(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, executable=[SOFTMAX])
    workspace = open_workspace(repo)
    sha = candidate(workspace)
    assert git(repo, "ls-tree", sha, SOFTMAX).startswith("100755")
    assert os.access(workspace.checkout(sha) / SOFTMAX, os.X_OK)


@pytest.mark.parametrize("when_committed", ["true", "false"])
def test_crlf(tmp_path: Path, when_committed: str) -> None:
    """The bytes of a candidate are those given, whatever git would make of their line endings."""
    crlf = KERNEL.replace("\n", "\r\n")
    repo = make_repo(tmp_path, {SOFTMAX: crlf}, config={"core.autocrlf": when_committed})
    git(repo, "config", "core.autocrlf", "true")
    before = snapshot(repo)
    workspace = open_workspace(repo)
    stored = workspace.repository.read(head(repo), SOFTMAX)
    assert (b"\r\n" in stored) == (when_committed == "false")
    edited = stored.replace(b"128", b"256")
    sha = candidate(workspace, edited)
    assert workspace.repository.read(sha, SOFTMAX) == edited
    for _ in range(2):
        file = workspace.checkout(sha) / SOFTMAX
        assert file.read_bytes() == crlf.replace("128", "256").encode()
    workspace.close()
    assert changed(before, snapshot(repo)) == set()


def test_hooks_signing_and_filters_do_not_run(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    git(repo, "config", "commit.gpgSign", "true")
    git(repo, "config", "gpg.program", "/bin/false")
    git(repo, "config", "i18n.commitEncoding", "latin1")
    for hook in ("pre-commit", "post-checkout", "reference-transaction", "post-index-change"):
        script = repo / ".git" / "hooks" / hook
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\nexit 1\n")
        script.chmod(0o755)
    workspace = open_workspace(repo)
    setup = workspace.set_up("fast", head(repo), repo / "sandbox" / "r1")
    sha = workspace.commit_candidate(head(repo), SOFTMAX, FASTER, "Größe 4 \ud800", WHEN)
    assert git(repo, "cat-file", "commit", sha).endswith("\n\nGröße 4 ?")
    assert "encoding" not in git(repo, "cat-file", "commit", sha)
    workspace.checkout(sha)
    workspace.checkout(sha)
    assert workspace.advance_branch("fast", sha) is None
    workspace.undo_setup(setup)
    assert not (tmp_path / "hook-ran").exists()


def test_gits_own_variables_are_ignored(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under a git hook or `git rebase --exec`, which set them for another repository."""
    other = make_repo(tmp_path, name="other")
    before, sha = snapshot(other), head(repo)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other / ".git" / "objects"))
    monkeypatch.setenv("GIT_NAMESPACE", "elsewhere")
    workspace = open_workspace(repo)
    assert workspace.repository.root == repo
    workspace.create_branch("fast", sha)
    workspace.checkout(sha)
    workspace.close()
    assert (workspace.repository.head(), workspace.repository.branch()) == (sha, "main")
    for name in ("DIR", "WORK_TREE", "INDEX_FILE", "OBJECT_DIRECTORY", "NAMESPACE"):
        monkeypatch.delenv(f"GIT_{name}")
    assert git(repo, "rev-parse", "fast") == sha
    assert changed(before, snapshot(other)) == set()


# --- the branch ---------------------------------------------------------------------------------


def test_a_file_that_git_lacks_is_named(repo: Path) -> None:
    write(repo, {"assets/paper.pdf": "large"})
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "-m", "paper")
    blob = git(repo, "rev-parse", "HEAD:assets/paper.pdf")
    (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(UsageError, match=r"^git reset: .*assets/paper\.pdf.* --refetch"):
        open_workspace(repo).checkout(git(repo, "rev-parse", "HEAD"))


def test_create_branch_never_moves_one(repo: Path) -> None:
    workspace = open_workspace(repo)
    sha = candidate(workspace)
    before = snapshot(repo)
    with pytest.raises(UsageError, match=r"branch main exists: .*--branch main-2$"):
        workspace.create_branch("main", sha)
    with pytest.raises(UsageError, match=r"cannot create branch main/x: .*--branch NAME"):
        workspace.create_branch("main/x", sha)
    for name in ("", "-d", "a b", "a..b", "x.lock"):
        with pytest.raises(UsageError, match="cannot name a branch"):
            workspace.create_branch(name, sha)
    assert changed(before, snapshot(repo)) == set()


def test_the_name_that_is_suggested_is_free(repo: Path) -> None:
    workspace = open_workspace(repo)
    git(repo, "branch", "main-2")
    git(repo, "branch", "main-3/fast")
    assert workspace.free_branch("main") == "main-4"
    workspace.create_branch("main-4", head(repo))


def test_advance_branch_moves_forward_only(repo: Path) -> None:
    workspace = open_workspace(repo)
    origin, sha = head(repo), candidate(workspace)
    workspace.create_branch("fast", origin)
    assert workspace.advance_branch("fast", sha) is None
    assert workspace.advance_branch("fast", sha) is None  # after a crash, once more
    other = candidate(workspace, b"# another\n")
    assert "commits that are not the run's" in (workspace.advance_branch("fast", other) or "")
    assert git(repo, "rev-parse", "fast") == sha
    assert git(repo, "rev-parse", "refs/tile-agent/r1/best") == other
    git(repo, "branch", "-D", "fast")
    assert workspace.advance_branch("fast", other) == "branch fast was deleted"


def test_a_branch_that_moves_meanwhile_stays(repo: Path) -> None:
    class Racing(Repository):
        def ask(self, *args: str, **options: Any) -> GitResult:
            if args[0] == "merge-base":  # after the branch was looked at
                git(self.root, "branch", "--force", "fast", theirs)
            return super().ask(*args, **options)

    calm = open_workspace(repo)
    calm.create_branch("fast", head(repo))
    theirs, ours = candidate(calm, b"# theirs\n"), candidate(calm)
    racing = Workspace(Racing(repo, calm.repository.common_dir), "r1")
    assert "branch fast did not move" in (racing.advance_branch("fast", ours) or "")
    assert git(repo, "rev-parse", "fast") == theirs


@pytest.mark.parametrize("linked", [False, True])
def test_a_branch_that_is_checked_out_stays(repo: Path, tmp_path: Path, linked: bool) -> None:
    workspace = open_workspace(repo)
    origin, sha = head(repo), candidate(workspace)
    workspace.create_branch("fast", origin)
    if linked:
        git(repo, "worktree", "add", "--quiet", str(tmp_path / "linked"), "fast")
    else:
        git(repo, "symbolic-ref", "HEAD", "refs/heads/fast")
    before = snapshot(repo)
    assert "branch fast is checked out in" in (workspace.advance_branch("fast", sha) or "")
    assert changed(before, snapshot(repo)) == {"refs/tile-agent/r1/best"}
    git(repo, "worktree", "remove", str(tmp_path / "linked")) if linked else git(
        repo, "symbolic-ref", "HEAD", "refs/heads/main"
    )
    assert workspace.advance_branch("fast", sha) is None  # free again, it catches up


# --- worktrees ----------------------------------------------------------------------------------


def _git_dir(path: Path) -> Path:
    return Path((path / ".git").read_text().removeprefix("gitdir: ").strip())


def _forge(path: Path) -> None:
    """Change a file without its size and times telling."""
    os.utime(path, (1, 1))
    git(path.parent, "update-index", "--refresh")
    path.write_bytes(path.read_bytes().replace(b"256", b"999"))
    os.utime(path, (1, 1))


def _put(path: Path, kind: str) -> None:
    """Put something else in the place of a file or folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.touch()


def _half_make(path: Path) -> None:
    """As `git worktree add` leaves it when it is killed."""
    (_git_dir(path) / "locked").write_text("initializing")
    (_git_dir(path) / "index.lock").touch()


def _link_to_the_user(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to(path.parents[4] / "repo")


def _move_away(path: Path) -> None:
    """A link to a folder that git would take for the worktree."""
    path.rename(path.parents[4] / "moved")
    path.symlink_to(path.parents[4] / "moved")


def _claim_the_users_git(path: Path) -> None:
    (path / ".git").write_text(f"gitdir: {path.parents[4]}/repo/.git\n")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: path,
    "file changed": lambda path: (path / SOFTMAX).write_text("import os\n"),
    "file changed in secret": lambda path: _forge(path / SOFTMAX),
    "file deleted": lambda path: (path / SOFTMAX).unlink(),
    "file became a folder": lambda path: _put(path / SOFTMAX, "folder"),
    "files added": lambda path: write(path, {"conftest.py": "", "kernels/x.pyc": "", "a/b": ""}),
    "ignored file added": lambda path: write(path, {"x.log": ""}),
    "repository added": lambda path: git(path, "init", "--quiet", "nested"),
    "folder gone": lambda path: _put(path, "nothing"),
    "folder empty": lambda path: _put(path, "folder"),
    "folder became a file": lambda path: _put(path, "file"),
    "folder became a link": _link_to_the_user,
    "folder moved": _move_away,
    "git file gone": lambda path: (path / ".git").unlink(),
    "git file of another": _claim_the_users_git,
    "git directory gone": lambda path: _put(_git_dir(path), "nothing"),
    "half made": _half_make,
    "index broken": lambda path: (_git_dir(path) / "index").write_bytes(b"broken"),
    "other commit": lambda path: git(path, "checkout", "--quiet", "--detach", "main"),
    "on the user's branch": lambda path: git(path, "symbolic-ref", "HEAD", "refs/heads/main"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_worktree_is_made_whole(repo: Path, damage: str) -> None:
    workspace = open_workspace(repo)
    sha = candidate(workspace)
    path = workspace.checkout(sha)
    before = snapshot(repo)
    DAMAGES[damage](path)
    again = open_workspace(repo).checkout(sha)
    assert again == path == path.resolve()
    assert (path / SOFTMAX).read_bytes() == FASTER
    assert git(path, "rev-parse", "HEAD") == sha
    assert git(path, "status", "--porcelain", "--ignored") == ""
    assert subprocess.run(["git", "-C", str(path), "symbolic-ref", "-q", "HEAD"]).returncode == 1
    assert changed(before, snapshot(repo)) == set()
    workspace.close()
    after = snapshot(repo)
    assert changed(before, after) == {"git worktrees"}
    assert git(repo, "worktree", "list").count("\n") == 0


def test_a_worktree_of_a_sparse_checkout_is_whole(repo: Path) -> None:
    """A test may need what the user has not checked out; theirs stays as it is."""
    git(repo, "sparse-checkout", "set", "--no-cone", "/*", "!/tests/")
    before = snapshot(repo)
    workspace = Workspace(Repository.open(repo), "run")
    sha = git(repo, "rev-parse", "HEAD")
    for _ in range(2):  # made, and put right
        assert (workspace.checkout(sha) / "tests" / "test_softmax.py").is_file()
    assert not (repo / "tests").exists()
    workspace.close()
    assert changed(before, snapshot(repo)) == set()


def test_an_intact_worktree_is_not_rewritten(repo: Path) -> None:
    """A live worker may be about to import from it."""
    workspace = open_workspace(repo)
    path = workspace.checkout(head(repo))
    before = {file: file.stat() for file in path.rglob("*.py")}
    workspace.checkout(head(repo))
    after = {file: file.stat() for file in path.rglob("*.py")}
    assert {f: (s.st_ino, s.st_mtime_ns) for f, s in before.items()} == {
        f: (s.st_ino, s.st_mtime_ns) for f, s in after.items()
    }


def test_many_commits_are_checked_out_at_once(repo: Path) -> None:
    """Twice: git has to make them at first, and to look at them then."""
    before = snapshot(repo)
    workspace = open_workspace(repo)
    texts = {candidate(workspace, FASTER + f"# {n}\n".encode()): n for n in range(24)}
    with ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            for sha, path in zip(texts, pool.map(workspace.checkout, texts), strict=True):
                assert (path / SOFTMAX).read_text().endswith(f"# {texts[sha]}\n")
                assert (path / "notes.txt").read_text() == "one\n"
    workspace.close()
    assert changed(before, snapshot(repo)) == set()


def test_close_leaves_the_worktrees_of_others(repo: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"  # on a disk that is not mounted now: a prune would forget it
    git(repo, "worktree", "add", "--quiet", "--detach", str(gone))
    shutil.rmtree(gone)
    other = open_workspace(repo, "r2")
    theirs = other.checkout(head(repo))
    before = snapshot(repo)
    workspace = open_workspace(repo, "r1")
    workspace.checkout(head(repo))
    workspace.release("f" * 40)
    workspace.close()
    workspace.close()
    assert changed(before, snapshot(repo)) == set()
    assert theirs.is_dir()


def test_a_candidate_with_a_link_out_of_the_worktree(repo: Path, tmp_path: Path) -> None:
    """Removing a worktree never follows a link out of it."""
    precious = tmp_path / "precious"
    write(precious, {"file": "mine\n"})
    workspace = open_workspace(repo)
    path = workspace.checkout(head(repo))
    (path / "out").symlink_to(precious)
    workspace.checkout(head(repo))
    (path / "out").symlink_to(precious)
    workspace.close()
    assert (precious / "file").read_text() == "mine\n"


def test_state_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert state_dir() == tmp_path / "state"
    monkeypatch.delenv("TILE_AGENT_STATE_DIR")
    assert state_dir() == tmp_path / "xdg" / "tile-agent"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert state_dir() == tmp_path / "home" / ".local" / "state" / "tile-agent"


# --- other kinds of checkout --------------------------------------------------------------------


def linked(repo: Path, tmp_path: Path) -> Path:
    path = tmp_path / "linked"
    git(repo, "worktree", "add", "--quiet", "-b", "side", str(path))
    return path


def submodule(repo: Path, tmp_path: Path) -> Path:
    outer = make_repo(tmp_path, {"README": "outer\n"}, name="outer")
    add = ("submodule", "--quiet", "add", str(repo), "inner")
    git(outer, "-c", "protocol.file.allow=always", *add)
    return outer / "inner"


@pytest.mark.parametrize("kind", [linked, submodule])
def test_checkouts_whose_git_is_a_file(
    repo: Path, tmp_path: Path, kind: Callable[[Path, Path], Path]
) -> None:
    checkout = kind(repo, tmp_path)
    before, main = snapshot(checkout), snapshot(repo)
    workspace = open_workspace(checkout)
    setup = workspace.set_up("fast", head(checkout), checkout / "sandbox" / "r1")
    assert setup.excluded
    assert "sandbox" not in git(checkout, "status", "--porcelain")
    sha = candidate(workspace)
    for _ in range(2):
        assert (workspace.checkout(sha) / SOFTMAX).read_bytes() == FASTER
    workspace.undo_setup(setup)
    assert changed(before, snapshot(checkout)) == set()
    assert changed(main, snapshot(repo)) == set()


def test_a_sha256_repository(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    git(tmp_path / "repo", "init", "--quiet", "--object-format=sha256", "--initial-branch=main")
    write(tmp_path / "repo", {SOFTMAX: KERNEL})
    git(tmp_path / "repo", "add", "--all")
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    git(tmp_path / "repo", *who, "commit", "--quiet", "--message", "First")
    workspace = open_workspace(tmp_path / "repo")
    sha = candidate(workspace)
    workspace.create_branch("fast", head(tmp_path / "repo"))
    assert workspace.advance_branch("fast", sha) is None
    assert (workspace.checkout(sha) / SOFTMAX).read_bytes() == FASTER


def test_head_and_branch_of_every_kind_of_checkout(repo: Path, tmp_path: Path) -> None:
    def seen(checkout: Path) -> tuple[str | None, str | None]:
        repository = Repository.open(checkout)
        return repository.head(), repository.branch()

    sha = head(repo)
    assert seen(repo) == (sha, "main")
    git(repo, "pack-refs", "--all")
    assert seen(repo) == (sha, "main")
    linked = tmp_path / "linked, $HOME"  # GitPython would take the variable's value
    git(repo, "worktree", "add", "--quiet", "-b", "mine/too", str(linked))
    assert seen(linked) == (sha, "mine/too")
    git(linked, "checkout", "--quiet", "--detach")
    assert seen(linked) == (sha, None)
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "--quiet", "--initial-branch=main")
    assert seen(tmp_path / "empty") == (None, "main")


# --- other processes ----------------------------------------------------------------------------

OTHER = f"""
import sys, time
from pathlib import Path
from agent.repository import Repository
from agent.workspace import Workspace

workspace = Workspace(Repository.open(Path(sys.argv[1])), "r1")
with workspace.lock({SOFTMAX!r}):
    workspace.set_up("fast", workspace.repository.head(), Path(sys.argv[1]) / "sandbox" / "r1")
    workspace.checkout(workspace.repository.head())
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other_run(repo: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of a run on the same kernel."""
    command = [sys.executable, "-c", OTHER, str(repo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_one_run_at_a_time(repo: Path, other_run: subprocess.Popen[str]) -> None:
    workspace = open_workspace(repo, "r2")
    found = lock_owner(workspace.repository, SOFTMAX)
    assert found is not None
    assert (found.pid, found.run_id, found.kernel) == (other_run.pid, "r1", SOFTMAX)
    who = rf"pid {other_run.pid}, for .+, pid {os.getpid()}"
    message = rf"another run \(r1, {who}\) is alive on {SOFTMAX}: .*`tile-agent stop r1`"
    with pytest.raises(UsageError, match=message), workspace.lock(SOFTMAX):
        pass
    with workspace.lock("kernels/other.py"):
        assert lock_owner(workspace.repository, "kernels/other.py") is not None
    assert lock_owner(workspace.repository, "kernels/other.py") is None


def test_who_is_in_the_way_is_told(
    repo: Path, other_run: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of one's own, another client at the same run, another machine, nobody to be seen."""

    def told(run_id: str) -> str:
        with pytest.raises(UsageError) as refused, open_workspace(repo, run_id).lock(SOFTMAX):
            pass
        return str(refused.value)

    assert told("r1").startswith(f"run r1 is at work on {SOFTMAX} for another client (")
    (note,) = (repo / ".git" / "tile-agent").glob("*.json")
    owner = json.loads(note.read_text())
    monkeypatch.setenv("TILE_AGENT_CLIENT", owner["client"])
    for run_id in ("r1", "r2"):
        assert told(run_id).startswith(f"your run r1 is at work on {SOFTMAX} in another call (")
    note.write_text(json.dumps(owner | {"host": "far"}))
    assert f"pid {other_run.pid} on far" in told("r2")
    assert told("r2").endswith("or stop it there with `tile-agent stop r1`")
    note.write_text(json.dumps(owner | {"started": 0.0}))
    assert told("r2").endswith("not visible from here: wait for it to end")


def test_after_kill_9_the_same_run_goes_on(repo: Path, other_run: subprocess.Popen[str]) -> None:
    before = snapshot(repo)
    other_run.send_signal(signal.SIGKILL)
    other_run.wait()
    workspace = open_workspace(repo, "r1")
    assert lock_owner(workspace.repository, SOFTMAX) is None
    with workspace.lock(SOFTMAX):
        sha = candidate(workspace)
        assert (workspace.checkout(sha) / SOFTMAX).read_bytes() == FASTER
        assert (workspace.checkout(head(repo)) / SOFTMAX).read_text() == KERNEL
        workspace.close()
    assert changed(before, snapshot(repo)) == {"git worktrees"}
    assert git(repo, "worktree", "list").count("\n") == 0


def test_locks_of_a_git_that_was_killed_with_its_run_are_in_nobodys_way(repo: Path) -> None:
    """Git takes them away where it can, which kill -9 does not let it."""
    origin = head(repo)
    workspace = open_workspace(repo)
    workspace.set_up("fast", origin, repo / "sandbox" / "r1")
    refs = repo / ".git/refs"
    (refs / "tile-agent/r1/tried").mkdir()
    ours = [refs / "tile-agent/r1/best.lock", refs / "tile-agent/r1/tried/1.lock"]
    branch, theirs = refs / "heads/fast.lock", refs / "heads/main.lock"
    for path in (*ours, branch, theirs):
        path.touch()
    with pytest.raises(GitError, match=r"best\.lock': File exists"):
        workspace.keep_ref("best", origin)
    with workspace.lock(SOFTMAX):
        assert not any(path.exists() for path in ours)
        workspace.unlock_branch("fast")
        sha = candidate(workspace)
        workspace.keep_ref("tried/1", sha)
        assert workspace.advance_branch("fast", sha) is None
    assert git(repo, "rev-parse", "fast", "refs/tile-agent/r1/best").split() == [sha, sha]
    assert theirs.exists()


def test_a_lock_on_the_branch_that_goes_is_somebodys(repo: Path) -> None:
    branch = repo / ".git/refs/heads/fast.lock"
    branch.write_text("theirs")
    gone = threading.Timer(0.3, branch.rename, [branch.with_name("fast")])
    gone.start()
    open_workspace(repo).unlock_branch("fast")
    gone.join()
    assert branch.with_name("fast").read_text() == "theirs"


@pytest.mark.parametrize("left", [b"", None], ids=["empty", "missing"])
def test_a_worktree_that_git_had_not_finished_is_in_nobodys_way(
    repo: Path, left: bytes | None
) -> None:
    workspace = open_workspace(repo)
    before = snapshot(repo)
    workspace.checkout(candidate(workspace))
    (admin,) = (repo / ".git/worktrees").iterdir()
    (admin / "commondir").unlink()
    if left is not None:
        (admin / "commondir").write_bytes(left)
    other = workspace.checkout(head(repo))
    assert (other / SOFTMAX).read_text() == KERNEL
    assert git(repo, "worktree", "list").count("\n") == 1
    workspace.close()
    assert changed(before, snapshot(repo)) <= {"git worktrees"}


LOOP = f"""
import itertools, sys
from pathlib import Path
from agent.repository import Repository
from agent.workspace import Workspace

workspace = Workspace(Repository.open(Path(sys.argv[1])), "r1")
origin = workspace.repository.head()
print("ready", flush=True)
for i in itertools.count():
    with workspace.lock({SOFTMAX!r}):
        sha = workspace.commit_candidate(origin, {SOFTMAX!r}, b"# %d" % i, "Try", i)
        workspace.keep_ref("candidate", sha)
        workspace.checkout(origin)
        workspace.checkout(sha)
        workspace.release(sha)
"""


@pytest.mark.full
def test_kill_9_at_any_moment(repo: Path) -> None:
    before = snapshot(repo)
    for moment in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(repo)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.017 * moment)
            os.killpg(process.pid, signal.SIGKILL)
        workspace = open_workspace(repo)
        with workspace.lock(SOFTMAX):
            sha = candidate(workspace)
            assert (workspace.checkout(sha) / SOFTMAX).read_bytes() == FASTER
            assert (workspace.checkout(head(repo)) / SOFTMAX).read_text() == KERNEL
            if moment % 3 == 0:
                workspace.close()
    workspace.close()
    assert changed(before, snapshot(repo)) <= {"refs/tile-agent/r1/candidate"}
    git(repo, "fsck", "--strict")


ONCE = """
import sys, time
from pathlib import Path
from agent.repository import Repository
from agent.throwaway import throwaway

with throwaway(Repository.open(Path(sys.argv[1]))) as workspace:
    workspace.checkout(workspace.repository.head())
    print("ready", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_command_left_behind_goes_with_the_next(repo: Path) -> None:
    repository = Repository.open(repo)
    command = [sys.executable, "-c", ONCE, str(repo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (theirs,) = repository.worktrees()
        with throwaway(repository) as workspace:
            assert workspace.checkout(head(repo)) != theirs
            assert len(repository.worktrees()) == 2  # it is alive
        assert set(repository.worktrees()) == {theirs}
        process.kill()
    assert theirs.is_dir()
    with throwaway(repository):
        assert not repository.worktrees()
        assert not theirs.parent.exists()


def test_a_worker_does_not_inherit_the_lock(repo: Path) -> None:
    workspace = open_workspace(repo)
    with workspace.lock(SOFTMAX):
        worker = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with workspace.lock(SOFTMAX):
            pass
    finally:
        worker.kill()
        worker.wait()
