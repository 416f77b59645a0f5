"""A repository and a run travel as bundles, and arrive as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.fleet.bundles import bundled, check_whole, packed, restored, unbundled, unpacked
from agent.fleet.jobs import ResumePoint
from agent.repository import Repository
from agent.workspace import Workspace
from tests.support.repo import KERNEL, changed, git, isolate, make_repo, snapshot

RUN, BRANCH, PATH = "softmax-1", "tile-agent/fleet-1/softmax", "kernels/softmax.py"


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def cloned(repo: Path, folder: Path, ref: str = "refs/heads/main") -> Repository:
    folder.mkdir()
    return unpacked(packed(Repository.open(repo), ref), folder)


def committed(repository: Repository, text: str) -> str:
    """As a run does: a candidate, kept, and the branch moved to it."""
    workspace = Workspace(repository, RUN)
    base = repository.head() or ""
    workspace.keep_ref("origin", base)
    if not workspace.has_branch(BRANCH):
        workspace.create_branch(BRANCH, base)
    sha = workspace.commit_candidate(base, PATH, text.encode(), "faster", 1e9)
    workspace.keep_ref("01-block-size-1", sha)
    assert workspace.advance_branch(BRANCH, sha) is None
    return sha


def test_a_clone_holds_the_commit_and_the_users_name(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    before = snapshot(repo)
    clone = cloned(repo, tmp_path / "clone")
    assert clone.head() == git(repo, "rev-parse", "HEAD")
    assert clone.changes() == {}
    assert (clone.root / PATH).read_text() == KERNEL
    assert git(clone.root, "config", "user.email") == "ada@example.com"
    assert changed(before, snapshot(repo)) == set()


def test_what_is_not_committed_stays_at_home(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    (repo / PATH).write_text("raise SystemExit\n")
    (repo / "notes.txt").write_text("mine\n")
    clone = cloned(repo, tmp_path / "clone")
    assert (clone.root / PATH).read_text() == KERNEL
    assert not (clone.root / "notes.txt").exists()


def test_whatever_the_user_has_checked_out_a_run_can_move_its_branch(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    git(repo, "checkout", "--quiet", "-b", BRANCH)
    committed(cloned(repo, tmp_path / "first", f"refs/heads/{BRANCH}"), KERNEL + "\n")
    git(repo, "checkout", "--quiet", "--detach")
    committed(cloned(repo, tmp_path / "second"), KERNEL + "\n")


def test_a_shallow_clone_is_refused_before_anything_begins(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    git(repo, "commit", "--quiet", "--allow-empty", "--message", "Second")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repo}", "shallow")
    check_whole(Repository.open(repo))
    with pytest.raises(UsageError, match="git fetch --unshallow"):
        check_whole(Repository.open(tmp_path / "shallow"))


def test_a_run_is_found_again_in_another_clone(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    first, second = (cloned(repo, tmp_path / name) for name in ("first", "second"))
    base = first.head() or ""
    sha = committed(first, KERNEL.replace("128", "256"))
    bundle = bundled(first, RUN, BRANCH, base)
    restored(second, ResumePoint(RUN, "", b"journal\n", bundle), BRANCH, base)
    refs = ("for-each-ref", "--format=%(refname) %(objectname)")
    assert git(second.root, *refs) == git(first.root, *refs)
    assert git(second.root, "rev-parse", BRANCH) == sha
    journal = second.root / "sandbox" / "runs" / RUN / "journal.jsonl"
    assert journal.read_bytes() == b"journal\n"
    assert second.changes() == {}, "git ignores what a run writes"


def test_a_run_that_has_committed_nothing_is_found_again(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    first, second = (cloned(repo, tmp_path / name) for name in ("first", "second"))
    base = first.head() or ""
    workspace = Workspace(first, RUN)
    workspace.keep_ref("origin", base)
    workspace.create_branch(BRANCH, base)
    bundle = bundled(first, RUN, BRANCH, base)
    assert bundle == b""
    restored(second, ResumePoint(RUN, "", b"", bundle), BRANCH, base)
    assert git(second.root, "rev-parse", BRANCH) == base
    assert git(second.root, "rev-parse", f"refs/tile-agent/{RUN}/origin") == base


def test_objects_of_a_bundle_come_without_refs(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    clone = cloned(repo, tmp_path / "clone")
    sha = committed(clone, KERNEL.replace("128", "256"))
    before = snapshot(repo)
    home = Repository.open(repo)
    found = unbundled(home, bundled(clone, RUN, BRANCH, clone.head() or ""))
    assert found[f"refs/heads/{BRANCH}"] == sha
    assert home.read(sha, PATH) == KERNEL.replace("128", "256").encode()
    assert changed(before, snapshot(repo)) == set()
