"""What a run adds to the user's repository, and takes back: commits, refs, worktrees of its own.

The user's checkout, index, HEAD, stash and configuration are never written. There is no command
here that could lose work: candidates are made by plumbing with an index of their own, a branch is
created or moved forward but never overwritten, and worktrees lie outside the user's tree.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from agent import excluded, left_locks, lock
from agent.errors import GitError, UsageError
from agent.repository import Repository, shown

SANDBOX = "sandbox"
"""Where a run writes its table and journal, at the root of the user's checkout."""

WHOLE = ("-c", "core.sparseCheckout=false")
"""A worktree holds what the user's sparse checkout leaves out."""


def state_dir() -> Path:
    """Where worktrees live: a folder of the user's, outside every repository.

    $TILE_AGENT_STATE_DIR, else $XDG_STATE_HOME/tile-agent, else ~/.local/state/tile-agent.
    """
    if chosen := os.environ.get("TILE_AGENT_STATE_DIR"):
        return Path(chosen).expanduser().resolve()
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():  # the XDG specification says to ignore such a value
        base = Path.home() / ".local" / "state"
    return (base / "tile-agent").resolve()


@dataclass(frozen=True)
class Setup:
    """What `Workspace.set_up` made, so that `undo_setup` takes back that and nothing else."""

    branch: str
    origin_sha: str
    folders: tuple[Path, ...]
    """Deepest first; the first is the run's own."""
    excluded: bool
    """Whether the line in `info/exclude` is ours."""


@dataclass(frozen=True)
class Workspace:
    """The repository as one run may write it."""

    repository: Repository
    run_id: str
    _listing: threading.Lock = field(default_factory=threading.Lock, compare=False)
    """Held where git reads the list of worktrees: it fails on one that is just being added."""

    # --- before and after a run -----------------------------------------------------------------

    def set_up(self, branch: str, origin_sha: str, folder: Path) -> Setup:
        """Create the branch of the run, keep its origin, and make its folder in the sandbox.

        Raises:
            UsageError: the branch or the folder exists already; nothing has been changed.
        """
        if folder.exists():
            raise UsageError(f"{shown(folder)} exists already: name another run")
        folders = [folder]
        while not folders[-1].parent.exists():
            folders.append(folders[-1].parent)
        self.create_branch(branch, origin_sha)
        setup = Setup(branch, origin_sha, tuple(folders), excluded=False)
        try:
            self.keep_ref("origin", origin_sha)
            setup = Setup(branch, origin_sha, tuple(folders), self.exclude_sandbox())
            folder.mkdir(parents=True)
        except BaseException:
            self.undo_setup(setup)
            raise
        return setup

    def undo_setup(self, setup: Setup) -> None:
        """Leave the repository as it was before `set_up`; for a baseline that fails.

        A branch that has moved since holds work, and stays.
        """
        self.close()
        if not self._holder(setup.branch):
            self.repository.ask("update-ref", "-d", _head(setup.branch), setup.origin_sha)
        self._drop_refs()
        if setup.excluded:
            excluded.include(self.repository, SANDBOX)
        shutil.rmtree(setup.folders[0], ignore_errors=True)
        _remove_empty(*setup.folders)

    def exclude_sandbox(self) -> bool:
        """Have git ignore the sandbox; whether that took a line in `info/exclude`."""
        return excluded.exclude(self.repository, SANDBOX)

    @contextmanager
    def lock(self, kernel: str) -> Iterator[None]:
        """Hold the kernel against other runs.

        Raises:
            UsageError: another run holds it (when entered).
        """
        with lock.hold(_lock_folder(self.repository), kernel, self.run_id):
            left_locks.drop_below(self.repository.common_dir / self._refs)
            yield

    def unlock_branch(self, name: str) -> None:
        """Have git write the branch of this run again, where a git was killed that was about to."""
        left_locks.drop_from(self.repository.common_dir / _head(name))

    # --- candidates -----------------------------------------------------------------------------

    def commit_candidate(
        self, parent: str, kernel: str, source: bytes, message: str, when: float
    ) -> str:
        """Commit `source` as the kernel on top of `parent`; the same arguments give the same sha.

        The bytes are stored as they are, without line-ending or other filters.
        """
        if self.repository.entry(parent, kernel) is None:
            raise GitError(f"{shown(kernel)} is not in commit {parent}")
        return self.commit_files(parent, {kernel: source}, message, when)

    def commit_files(
        self, parent: str, files: Mapping[str, bytes], message: str, when: float
    ) -> str:
        """Commit files, new ones or others in place of old ones, on top of `parent`.

        Args:
            parent: a commit.
            files: path from the root -> bytes, which are stored as they are.
            message: of the commit.
            when: its date, in seconds since the epoch.
        """
        git = self.repository.git
        with tempfile.TemporaryDirectory(prefix="tile-agent-") as folder:
            index = {"GIT_INDEX_FILE": f"{folder}/index"}
            git("read-tree", parent, env=index)
            for path, content in files.items():
                blob = git("hash-object", "-w", "--stdin", stdin=content).text
                entry = self.repository.entry(parent, path)
                mode = entry.mode if entry else "100644"
                git("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}", env=index)
            tree = git("write-tree", env=index).text
        return self._commit(tree, parent, message, when)

    def commit_kept(self, parent: str, candidate: str, message: str, when: float) -> str:
        """Commit the tree of `candidate` on top of the incumbent `parent`."""
        tree = self.repository.git("rev-parse", f"{candidate}^{{tree}}").text
        return self._commit(tree, parent, message, when)

    def _commit(self, tree: str, parent: str, message: str, when: float) -> str:
        name, email = self._identity
        date = f"@{int(when)} +0000"
        env = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": date}
        env |= {key.replace("AUTHOR", "COMMITTER"): value for key, value in env.items()}
        command = ("commit-tree", tree, "-p", parent, "-F", "-")
        return self.repository.git(*command, stdin=message.encode(errors="replace"), env=env).text

    @cached_property
    def _identity(self) -> tuple[str, str]:
        """Who commits: the user as configured, or tile-agent where git would guess or refuse."""
        name, email = (self.repository.ask("config", f"user.{k}").text for k in ("name", "email"))
        return (name, email) if name and email else ("tile-agent", "tile-agent@localhost")

    # --- refs and the branch --------------------------------------------------------------------

    def keep_ref(self, name: str, sha: str) -> None:
        """Keep a commit reachable as refs/tile-agent/<run>/<name>, so that gc never takes it."""
        self.repository.git("update-ref", f"{self._refs}{name}", sha)

    def create_branch(self, name: str, sha: str) -> None:
        """Create a branch; never moves one.

        Raises:
            UsageError: it exists, or the name is none that git takes.
        """
        self._check_name(name)
        answer = self.repository.ask(
            "update-ref", "-m", "tile-agent: created", _head(name), sha, ""
        )
        if answer.status == 0:
            return
        self.check_free(name)
        raise UsageError(
            f"git cannot create branch {name}: {answer.complaint}:"
            " mend that, or give another with --branch NAME"
        )

    def check_free(self, name: str) -> None:
        """Raise UsageError where there is such a branch, or can be none."""
        self._check_name(name)
        if self.has_branch(name):
            ours = name.startswith("tile-agent/")
            mend = f", or delete it with `git branch -D {name}` if you have what it holds"
            raise UsageError(
                f"branch {name} exists: give another, such as --branch {self.free_branch(name)}"
                f"{mend if ours else ''}"
            )

    def _check_name(self, name: str) -> None:
        taken = self.repository.ask("check-ref-format", "--branch", name).status == 0
        if name.startswith("-") or not taken:
            raise UsageError(f"{name!r} cannot name a branch: give another with --branch NAME")

    def has_branch(self, name: str) -> bool:
        """Whether there is such a branch."""
        return self.repository.ask("show-ref", "--verify", "--quiet", _head(name)).status == 0

    def free_branch(self, name: str) -> str:
        """The first of NAME-2, NAME-3 and so on that is free."""
        names = (f"{name}-{number}" for number in itertools.count(2))
        return next(filter(self.is_free, names))

    def is_free(self, name: str) -> bool:
        """Whether there is neither a branch of that name nor one in a folder of it."""
        return not self.repository.git("for-each-ref", "--count=1", _head(name)).text

    def advance_branch(self, name: str, sha: str) -> str | None:
        """Move the branch forward to `sha`; says why it could not, and None when it is there.

        A branch that somebody has checked out would change under them, and one that has commits
        which `sha` lacks would lose them: both stay. The commit is kept as 'best' in any case.
        """
        self.keep_ref("best", sha)
        ask = self.repository.ask
        current = ask("rev-parse", "--verify", "--quiet", _head(name))
        if current.status != 0:
            return f"branch {name} was deleted"
        if current.text == sha:
            return None
        if holder := self._holder(name):
            return f"branch {name} is checked out in {shown(holder)}"
        if ask("merge-base", "--is-ancestor", current.text, sha).status != 0:
            return f"branch {name} has commits that are not the run's"
        moved = ask("update-ref", "-m", "tile-agent: kept", _head(name), sha, current.text)
        return None if moved.status == 0 else f"branch {name} did not move: {moved.complaint}"

    def branch_holds(self, name: str, sha: str) -> bool:
        """Whether the tip of the branch has the files of the commit."""
        tip = self.repository.ask("rev-parse", f"{_head(name)}^{{tree}}").text
        return tip == self.repository.git("rev-parse", f"{sha}^{{tree}}").text

    def _holder(self, branch: str) -> str:
        """The checkout that has the branch checked out; empty when none has."""
        where = ("for-each-ref", "--format=%(worktreepath)", _head(branch))
        return self.repository.git(*where).text

    def _drop_refs(self) -> None:
        listed = self.repository.git("for-each-ref", "--format=delete %(refname)", self._refs)
        self.repository.git("update-ref", "--stdin", stdin=listed.out)

    @property
    def _refs(self) -> str:
        return f"refs/tile-agent/{self.run_id}/"

    # --- worktrees ------------------------------------------------------------------------------

    @cached_property
    def folder(self) -> Path:
        """Where the worktrees of this run lie."""
        name = hashlib.sha256(os.fsencode(self.repository.common_dir)).hexdigest()[:12]
        return state_dir() / "worktrees" / name / self.run_id

    def checkout(self, sha: str) -> Path:
        """A worktree that holds exactly the commit, and nothing beside it.

        Every commit has its own, so that a live worker never sees its files change. One that is
        there already is put right: a candidate may have written into it, or a crash left it half
        made. What it should not hold goes, compiled and ignored files included. Several threads may
        ask for commits at once.

        Raises:
            UsageError: git lacks a file of it, as in a clone that is not whole.
        """
        path = self.folder / sha[:12]
        if not self._restore(path, sha):
            with self._listing:
                self.repository.drop_half_made(self.folder)
                self._remove(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                add = ("worktree", "add", "--quiet", "--force", "--detach", "--no-checkout")
                self.repository.git(*add, str(path), sha)
            try:
                self.repository.git("-C", str(path), *WHOLE, "reset", "--hard", "--quiet", sha)
            except GitError as problem:
                if "unable to read" not in str(problem):
                    raise
                raise UsageError(
                    f"{problem}: the repository lacks a file of the commit: have git fetch it "
                    "(`git fetch --refetch`), or clone anew"
                ) from None
        return path

    def release(self, sha: str) -> None:
        """Remove the worktree of a commit; fine when there is none."""
        self._remove(self.folder / sha[:12])

    def close(self) -> None:
        """Remove every worktree of this run; its refs stay."""
        self.repository.drop_half_made(self.folder)
        ours = {path for path in self.repository.worktrees() if path.parent == self.folder}
        for path in ours.union(self.folder.iterdir() if self.folder.is_dir() else ()):
            self._remove(path)
        _remove_empty(self.folder, self.folder.parent)

    def _restore(self, path: Path, sha: str) -> bool:
        """Make a worktree that is there equal to its commit; False when it must be made anew.

        Its git directory is named outright. Were it found through `path`, a candidate that rewrote
        `path/.git`, or put a link in its place, would have us reset the user's checkout.
        """
        admin = self.repository.worktrees().get(path)
        if admin is None or not path.is_dir() or path.resolve() != path:
            return False
        ours = {"GIT_DIR": str(admin), "GIT_WORK_TREE": str(path)}
        ask, git = self.repository.ask, self.repository.git
        try:
            if os.fsdecode((path / ".git").read_bytes()) != f"gitdir: {admin}\n":
                return False
            head = admin / "HEAD"
            if head.is_symlink() or head.read_bytes() != f"{sha}\n".encode():
                git("update-ref", "--no-deref", "HEAD", sha, env=ours)
            # An index without file times: refreshing it then reads every file, so that one with
            # forged size and times is found, and the reset writes only those that differ, if any.
            git(*WHOLE, "read-tree", sha, env=ours)
            if ask(*WHOLE, "update-index", "--refresh", env=ours).status != 0:
                git("-C", str(path), *WHOLE, "reset", "--hard", "--quiet", sha, env=ours)
            git("-C", str(path), "clean", "-ffdx", "--quiet", env=ours)
        except (OSError, GitError):
            return False
        return True

    def _remove(self, path: Path) -> None:
        if path.is_symlink() or path.is_file():
            path.unlink()
        shutil.rmtree(path, ignore_errors=True)
        if path in self.repository.worktrees():
            self.repository.ask("worktree", "remove", "--force", "--force", str(path))


def lock_owner(repository: Repository, kernel: str) -> lock.Owner | None:
    """The run that is alive on a kernel; None when there is none."""
    return lock.owner(_lock_folder(repository), kernel)


def _lock_folder(repository: Repository) -> Path:
    return repository.common_dir / "tile-agent"


def _head(branch: str) -> str:
    return f"refs/heads/{branch}"


def _remove_empty(*folders: Path) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
