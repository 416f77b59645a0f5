"""Every bad input is refused in one line that says how to mend it, and changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.errors import GitError, TileAgentError, UsageError
from agent.preflight import Preflight, preflight
from agent.repository import Repository
from agent.workspace import Workspace
from tests.support.repo import FILES, KERNEL, changed, git, isolate, make_repo, snapshot, write

SOFTMAX = "kernels/softmax.py"


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path)


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        preflight(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- what is fine -------------------------------------------------------------------------------


def test_a_clean_kernel(repo: Path) -> None:
    before = snapshot(repo)
    found = preflight(repo / SOFTMAX)
    assert (found.repository.root, found.kernel, found.notes) == (repo, SOFTMAX, ())
    assert found.head_sha == git(repo, "rev-parse", "HEAD")
    assert sorted(found.tree.files) == sorted(FILES)
    assert found.tree.read([SOFTMAX]) == {SOFTMAX: KERNEL.encode()}
    assert found.tree.read(FILES).keys() == FILES.keys()
    assert changed(before, snapshot(repo)) == set()


def test_a_relative_path(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo / "kernels")
    assert preflight(Path("softmax.py")).kernel == SOFTMAX
    assert preflight(Path("../kernels/softmax.py")).kernel == SOFTMAX


@pytest.mark.parametrize("name", ["my kernel.py", "-rf.py", "new\nline.py", "größe.py", "*.py"])
def test_odd_names(tmp_path: Path, name: str) -> None:
    repo = make_repo(tmp_path, {name: KERNEL, "k.py": "x = 1\n"}, name="my\nrepo")
    assert preflight(repo / name).kernel == name
    (repo / name).write_text("changed")
    assert "uncommitted changes" in refusal(repo / name)


def test_a_link_inside_the_repository(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    (repo / "latest.py").symlink_to(SOFTMAX)
    assert preflight(repo / "latest.py").kernel == SOFTMAX


def test_a_repository_reached_through_a_link(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "short").symlink_to(repo)
    assert preflight(tmp_path / "short" / SOFTMAX).repository.root == repo


@pytest.mark.parametrize("autocrlf", ["true", "false", "input"])
def test_crlf_is_no_change(tmp_path: Path, autocrlf: str) -> None:
    files = {SOFTMAX: KERNEL.replace("\n", "\r\n")}
    repo = make_repo(tmp_path, files, config={"core.autocrlf": autocrlf, "core.safecrlf": "false"})
    preflight(repo / SOFTMAX)


def test_a_touched_index_is_left_as_it_is(repo: Path) -> None:
    os.utime(repo / SOFTMAX, (1, 1))  # a plain `git status` would refresh the index now
    before = snapshot(repo)
    preflight(repo / SOFTMAX)
    assert changed(before, snapshot(repo)) == set()


def detach(repo: Path) -> None:
    git(repo, "switch", "--quiet", "--detach")


def modify_others(repo: Path) -> None:
    write(repo, {"kernels/__init__.py": "x = 1\n", "tests/test_softmax.py": "", "new.py": ""})


def conflict_elsewhere(repo: Path) -> None:
    """A merge that stopped at another file."""
    _conflict(repo, "kernels/__init__.py")


def _conflict(repo: Path, path: str) -> None:
    git(repo, "switch", "--quiet", "-c", "other")
    write(repo, {path: "a = 1\n"})
    git(repo, "commit", "--quiet", "-am", "Theirs")
    git(repo, "switch", "--quiet", "main")
    write(repo, {path: "a = 2\n"})
    git(repo, "commit", "--quiet", "-am", "Ours")
    subprocess.run(["git", "-C", str(repo), "merge", "other"], capture_output=True)


MODULES = '[submodule "cutlass"]\n\tpath = cutlass\n\turl = ../cutlass\n'
NOTES: dict[str, Callable[[Path], object]] = {
    "HEAD is detached": detach,
    "not part of the run: kernels/__init__.py and 1 more": modify_others,
    "not part of the run: kernels/__init__.py": conflict_elsewhere,
    "Jujutsu": lambda repo: (repo / ".jj").mkdir(),
    "submodules are not checked out": lambda repo: write(repo, {".gitmodules": MODULES}),
}


@pytest.mark.parametrize("note", NOTES)
def test_notes(repo: Path, note: str) -> None:
    NOTES[note](repo)
    notes = preflight(repo / SOFTMAX).notes
    assert len(notes) == 1
    assert note in notes[0]


def test_no_submodule_no_note(repo: Path) -> None:
    write(repo, {".gitmodules": ""})  # what is left of it when the last has gone
    assert preflight(repo / SOFTMAX).notes == ()


# --- bad files ----------------------------------------------------------------------------------


def become(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    git(path.parent, "commit", "--quiet", "-am", "Second")


def replace(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


FILES_REFUSED: dict[str, Callable[[Path], object]] = {
    "no such file": lambda path: path.unlink(),
    "link to nothing": lambda path: replace(path, lambda p: p.symlink_to("none.py")),
    "is a folder": lambda path: replace(path, lambda p: p.mkdir()),
    "not a regular file": lambda path: replace(path, os.mkfifo),
    "cannot be read": lambda path: replace(path, lambda p: p.symlink_to(p)),
    "not UTF-8 (byte 2)": lambda path: become(path, b"# \xff\n"),
    "byte-order mark": lambda path: become(path, b"\xef\xbb\xbfx = 1\n"),
    "2.5 MiB, more than 2": lambda path: become(path, b"#" * (5 * 2**19)),
    "has uncommitted changes": lambda path: path.write_text("x = 1\n"),
    "outside the repository": lambda path: replace(path, lambda p: p.symlink_to("/etc/hosts")),
}


@pytest.mark.parametrize("message", FILES_REFUSED)
def test_bad_files(repo: Path, message: str) -> None:
    FILES_REFUSED[message](repo / SOFTMAX)
    before = snapshot(repo) if message != "not a regular file" else {}  # reading a FIFO hangs
    assert message in refusal(repo / SOFTMAX)
    assert not before or changed(before, snapshot(repo)) == set()


def test_a_missing_file_names_those_of_the_same_name(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that look like kernels come first; what is not in the commit is not named."""
    more = ("ops/softmax.py", "docs/x/y/gelu.py", "c/d/e/gelu.py", "cc/gelu.py")
    write(repo, dict.fromkeys(more, "x = 1\n"))
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "more")
    write(repo, {"new/relu.py": ""})
    monkeypatch.chdir(repo)
    asked = "no such file; did you mean {}?"
    assert refusal(Path("nowhere/deep/softmax.py")).endswith(asked.format(SOFTMAX))
    assert refusal(repo / "softmax.py").endswith(asked.format(repo / SOFTMAX))
    assert refusal(Path("c/gelu.py")).endswith(asked.format("cc/gelu.py or c/d/e/gelu.py"))
    assert refusal(Path("relu.py")).endswith("name the Python file that holds the kernel")
    monkeypatch.chdir(repo / "ops")
    assert refusal(Path("kernels/softmax.py")).endswith(asked.format(f"../{SOFTMAX}"))


def test_a_missing_file_outside_of_a_repository(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "softmax.py"
    assert refusal(missing).endswith("no such file; name the Python file that holds the kernel")


def stage(repo: Path) -> None:
    write(repo, {SOFTMAX: "x = 1\n"})
    git(repo, "add", SOFTMAX)


def stage_and_restore(repo: Path) -> None:
    """The checkout is as committed, the index is not."""
    stage(repo)
    write(repo, {SOFTMAX: KERNEL})


def hide(repo: Path, flag: str) -> None:
    git(repo, "update-index", flag, SOFTMAX)
    write(repo, {SOFTMAX: "x = 1\n"})


def ignore(repo: Path) -> None:
    untrack(repo)
    write(repo, {".gitignore": "kernels/\n"})


def untrack(repo: Path) -> None:
    git(repo, "rm", "--quiet", "--cached", SOFTMAX)
    git(repo, "commit", "--quiet", "-m", "Second")


def add_only(repo: Path) -> None:
    untrack(repo)
    git(repo, "add", SOFTMAX)


STATES_REFUSED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "staged": ("uncommitted changes", stage),
    "staged only": ("uncommitted changes", stage_and_restore),
    "assumed unchanged": ("uncommitted changes", lambda repo: hide(repo, "--assume-unchanged")),
    "skipped": ("uncommitted changes", lambda repo: hide(repo, "--skip-worktree")),
    "untracked": ("is not committed: add and commit it, and", untrack),
    "added": ("is not committed: add and commit it, and", add_only),
    "ignored": ("is not committed: add and commit it (by `git add -f`", ignore),
    "conflict": ("has merge conflicts", lambda repo: _conflict(repo, SOFTMAX)),
    "sandbox is a file": ("sandbox is not a folder", lambda repo: write(repo, {"sandbox": ""})),
    "sandbox is a link": (
        "sandbox is not a folder",
        lambda repo: (repo / "sandbox").symlink_to("kernels"),
    ),
}


@pytest.mark.parametrize("state", STATES_REFUSED)
def test_bad_states(repo: Path, state: str) -> None:
    message, bring_about = STATES_REFUSED[state]
    bring_about(repo)
    before = snapshot(repo)
    assert message in refusal(repo / SOFTMAX)
    assert changed(before, snapshot(repo)) == set()


def test_a_committed_table(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {**FILES, "sandbox/perf_results.md": "mine\n"})
    assert "sandbox/perf_results.md is committed" in refusal(repo / SOFTMAX)


# --- bad places ---------------------------------------------------------------------------------


def test_no_repository(tmp_path: Path) -> None:
    write(tmp_path, {"k.py": KERNEL})
    assert "is not in a git repository: `git init`" in refusal(tmp_path / "k.py")
    assert not (tmp_path / ".git").exists()


def test_no_commit_yet(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    write(tmp_path, {"k.py": KERNEL})
    assert "no commit yet" in refusal(tmp_path / "k.py")


def test_a_bare_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare")
    write(tmp_path, {"k.py": KERNEL})
    assert "bare repository" in refusal(tmp_path / "k.py")


def test_inside_a_git_folder(repo: Path) -> None:
    write(repo / ".git", {"k.py": KERNEL})
    assert "a .git folder" in refusal(repo / ".git" / "k.py")


def test_a_repository_of_another_user(repo: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    for path in (repo, repo / ".git"):
        os.chown(path, 12345, 12345)
    assert "safe.directory" in refusal(repo / SOFTMAX)


def test_git_is_missing(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert refusal(repo / SOFTMAX) == "git is not installed: install it and run again"


def test_a_state_dir_in_the_repository(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILE_AGENT_STATE_DIR", str(repo / "state"))
    assert "set TILE_AGENT_STATE_DIR" in refusal(repo / SOFTMAX)


def test_a_state_dir_below_a_file(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TILE_AGENT_STATE_DIR", str(tmp_path / "file" / "state"))
    assert "file is not a folder" in refusal(repo / SOFTMAX)


def test_a_linked_worktree_and_a_submodule(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "linked"))
    outer = make_repo(tmp_path, {"README": ""}, name="outer")
    add = ("submodule", "--quiet", "add", str(repo), "inner")
    git(outer, "-c", "protocol.file.allow=always", *add)
    for root in (tmp_path / "linked", outer / "inner"):
        found: Preflight = preflight(root / SOFTMAX)
        assert (found.repository.root, found.kernel) == (root, SOFTMAX)


# --- a full disk --------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 80 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_nearly_full_disk(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = make_repo(small_disk)
    preflight(repo / SOFTMAX)
    (small_disk / "filler").write_bytes(bytes(30 * 2**20))
    assert "MiB are free where" in refusal(repo / SOFTMAX)
    elsewhere = make_repo(tmp_path, name="elsewhere")
    monkeypatch.setenv("TILE_AGENT_STATE_DIR", str(small_disk / "state"))
    assert f"MiB are free where {small_disk} lies" in refusal(elsewhere / SOFTMAX)


def test_a_disk_that_fills_up_during_a_run(small_disk: Path, tmp_path: Path) -> None:
    repo = make_repo(small_disk)
    workspace = Workspace(Repository.open(repo), "r1")
    sha = git(repo, "rev-parse", "HEAD")
    before = snapshot(repo)
    with (small_disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(2**20))
    big = "".join(f"x{i} = {hash(str(i))}\n" for i in range(10_000)).encode()
    with pytest.raises(GitError, match="hash-object"):
        workspace.commit_candidate(sha, SOFTMAX, big, "Big", 0)
    with pytest.raises((TileAgentError, OSError)):
        workspace.set_up("fast", sha, repo / "sandbox" / "r1")
    assert changed(before, snapshot(repo)) == set()
    (small_disk / "filler").unlink()
    workspace.set_up("fast", sha, repo / "sandbox" / "r1")
    git(repo, "fsck", "--strict")
