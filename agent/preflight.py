"""Whether a run on a kernel can begin. Every refusal is one line with its mend; nothing changes."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from agent.environment import probe
from agent.errors import GitError, UsageError, did_you_mean
from agent.importers import Tree
from agent.options import Request
from agent.repository import Repository, shown
from agent.target import DECORATED, MOST_NAMED, NoKernelError, Target, find_target, parse
from agent.workspace import SANDBOX, state_dir

_LARGEST_BYTES = 2 * 2**20
_LEAST_FREE_BYTES = 64 * 2**20
_LOOKED_AT = 20
"""Of the files that are called like one that is missing."""


@dataclass(frozen=True)
class Preflight:
    """A kernel that a run can begin on."""

    repository: Repository
    kernel: str
    """Its path from the root of the repository."""
    head_sha: str
    """The commit that the run starts from."""
    tree: Tree
    """That commit, for `find_target`."""
    notes: tuple[str, ...]
    """What the user should know, though nothing is wrong with it."""


def preflight(path: Path) -> Preflight:
    """Look at the kernel and its repository.

    Raises:
        UsageError: the run cannot begin; the message says why and what to do.
    """
    read_file(path)
    repository = Repository.open(path.absolute().parent)
    real = path.resolve()
    if not real.is_relative_to(repository.root):
        raise UsageError(
            f"{shown(path)} leads to {shown(real)}, outside the repository: name the file itself"
        )
    kernel = real.relative_to(repository.root).as_posix()
    head_sha = repository.head()
    if head_sha is None:
        raise UsageError("the repository has no commit yet: commit the kernel and its tests")
    changes = repository.changes()
    _check_committed(repository, head_sha, kernel, changes.pop(kernel, ""))
    _check_places(repository, head_sha)
    tree = tree_of(repository, head_sha, changes)
    return Preflight(repository, kernel, head_sha, tree, tuple(_notes(repository, changes)))


def target_on(found: Preflight, request: Request) -> tuple[Target, str, str]:
    """What is worked on; why no such kernel can run on this machine, and which tests are missing.

    Who has to mend both hears of both. The want of tests alone is a refusal.

    Raises:
        UsageError: nothing can be worked on; the message says what this machine lacks, too.
    """
    lacks = _lacks(found)

    def find(*, needs_tests: bool) -> Target:
        return find_target(
            found.tree,
            found.kernel,
            request.tests,
            request.bench,
            needs_tests=needs_tests,
            pass_env=request.options.command.pass_env,
            python=request.python,
        )

    try:
        return find(needs_tests=not request.capture), lacks, ""
    except UsageError as problem:
        if not lacks:
            raise
        try:
            return find(needs_tests=False), lacks, str(problem)
        except UsageError:
            raise UsageError(f"{lacks}; and {problem}") from None


def _lacks(found: Preflight) -> str:
    """Why no kernel of this language, or none of this file, can run here; empty where one can."""
    text = found.tree.read([found.kernel])[found.kernel].decode("utf-8")
    try:
        source, backend = parse(text, found.kernel)
    except NoKernelError:  # a file it imports from may hold one: that is told elsewhere
        return ""
    environment = probe()
    return backend.lacks(environment) or backend.unlaunchable(source, environment) or ""


def tree_of(repository: Repository, sha: str, changes: Collection[str] = ()) -> Tree:
    """A commit as `find_target` reads it; a resumed run has no changes to mind."""
    files = repository.files(sha)
    contents: dict[str, bytes] = {}

    def read(paths: Iterable[str]) -> Mapping[str, bytes]:
        entries = {path: files[path].blob for path in paths}
        if new := set(entries.values()).difference(contents):
            contents.update(repository.read_blobs(new))
        return {path: contents[blob] for path, blob in entries.items()}

    return Tree(repository.root, files.keys(), read, tuple(changes))


def read_file(path: Path) -> str:
    """The text of a kernel's file, wherever it lies.

    Raises:
        UsageError: there is no such file, or it cannot hold a kernel.
    """
    if path.suffix == ".ipynb":
        raise UsageError(
            f"{shown(path)} is a notebook: export it to a Python file with `jupyter nbconvert --to "
            f"script {shlex.quote(str(path))}`, and have a function of it launch the kernel"
        )
    try:
        found = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            nothing = f"{shown(path)} is a link to nothing: name the kernel's own file"
            raise UsageError(nothing) from None
        near = did_you_mean(path.name, (other.name for other in path.parent.glob("*.py")))
        mend = _elsewhere(path) or near or "name the Python file that holds the kernel"
        raise UsageError(f"{shown(path)}: no such file; {mend}") from None
    except OSError as error:
        raise UsageError(f"{shown(path)} cannot be read: {error.strerror}") from None
    if stat.S_ISDIR(found.st_mode):
        raise UsageError(f"{shown(path)} is a folder: name the Python file that holds the kernel")
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{shown(path)} is not a regular file: name the kernel's Python file")
    if found.st_size > _LARGEST_BYTES:
        size = f"{found.st_size / 2**20:.1f} MiB"
        raise UsageError(f"{shown(path)} has {size}, more than 2: move the kernel to its own file")
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"{shown(path)} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{shown(path)} is not UTF-8 (byte {error.start}): save it as UTF-8 and commit it"
        ) from None
    if text.startswith("\ufeff"):
        raise UsageError(
            f"{shown(path)} begins with a byte-order mark: save it without one and commit it"
        )
    return text


def _elsewhere(path: Path) -> str:
    """A question that names committed files of the same name; empty where there are none.

    Where some look like a tile kernel's, the others are left out; the most alike paths come first.
    """
    try:
        repository = Repository.open(_existing(path.absolute().parent))
        root, head = repository.root, repository.head()
        files = [] if head is None else repository.files(head)
        given = os.path.relpath(path.absolute(), root)
        there = [n for n in files if Path(n).name == path.name and (root / n).is_file()]
        alike = get_close_matches(given, there, n=_LOOKED_AT, cutoff=0)
        kernels = [name for name in alike if DECORATED.search((root / name).read_bytes())]
    except (UsageError, GitError, OSError):  # it is a hint
        return ""
    near = [root / name for name in (kernels or alike)[:MOST_NAMED]]
    told = [shown(each if path.is_absolute() else os.path.relpath(each)) for each in near]
    return f"did you mean {' or '.join(told)}?" if told else ""


def _check_committed(repository: Repository, head_sha: str, kernel: str, change: str) -> None:
    name = shown(kernel)
    if "U" in change or change in ("AA", "DD"):
        raise UsageError(f"{name} has merge conflicts: resolve them and commit it")
    if repository.entry(head_sha, kernel) is None:
        force = " (by `git add -f`, since git ignores it)" if repository.ignores(kernel) else ""
        raise UsageError(f"{name} is not committed: add and commit it{force}, and run again")
    # Git does not look at a file marked assume-unchanged or skip-worktree, so look ourselves.
    checked_out = (repository.root / kernel).read_bytes()
    hidden = _lines(checked_out) != _lines(repository.read(head_sha, kernel))
    if change or hidden:
        raise UsageError(
            f"{name} has uncommitted changes, and a run works from the commit: commit them first"
        )


def _lines(content: bytes) -> bytes:
    """Line endings are what git may turn into others between a commit and a checkout."""
    return content.replace(b"\r\n", b"\n")


def _check_places(repository: Repository, head_sha: str) -> None:
    """The folders that a run writes to: the repository, the sandbox, the state directory."""
    state = state_dir()
    if state.is_relative_to(repository.root):
        raise UsageError(
            f"{shown(state)} is inside the repository, but worktrees must not be:"
            " set TILE_AGENT_STATE_DIR to a folder outside it"
        )
    sandbox = repository.root / SANDBOX
    if os.path.lexists(sandbox) and (sandbox.is_symlink() or not sandbox.is_dir()):
        raise UsageError(f"{SANDBOX} is not a folder, and a run writes there: move it away")
    if repository.entry(head_sha, f"{SANDBOX}/perf_results.md"):
        raise UsageError(
            f"{SANDBOX}/perf_results.md is committed, and a run writes it: `git rm --cached` it"
        )
    # The sandbox may lie on a file system of its own, which may be full or read-only.
    for folder in (repository.common_dir, _existing(sandbox / "runs"), _existing(state)):
        if not folder.is_dir():
            raise UsageError(f"{shown(folder)} is not a folder: set TILE_AGENT_STATE_DIR to one")
        if not os.access(folder, os.W_OK):
            raise UsageError(f"{shown(folder)} cannot be written: mend its permissions")
        if (free := shutil.disk_usage(folder).free) < _LEAST_FREE_BYTES:
            raise UsageError(
                f"only {free // 2**20} MiB are free where {shown(folder)} lies: make room for 64"
            )


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def _notes(repository: Repository, changes: dict[str, str]) -> Iterator[str]:
    if repository.branch() is None:
        yield "HEAD is detached: the run starts from its commit"
    if modified := [path for path, change in changes.items() if change != "??"]:
        more = f" and {len(modified) - 1} more" if len(modified) > 1 else ""
        yield f"uncommitted changes are not part of the run: {shown(modified[0])}{more}"
    modules = repository.root / ".gitmodules"
    if modules.is_file() and b"[submodule" in modules.read_bytes():  # it stays when the last goes
        yield "submodules are not checked out in the run's worktrees"
    if (repository.root / ".jj").exists():
        yield "a Jujutsu repository: its next command imports the branch that the run makes"
