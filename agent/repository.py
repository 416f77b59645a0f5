"""The user's git repository, read. The only file that runs git, always through `Repository.git`.

Nothing here writes to it: not a ref, not an object, and not the index either, which a plain
`git status` would refresh. What a run adds to the repository is in `agent.workspace`.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import GitError, UsageError
from agent.interruption import done_whole

# `git rev-parse --local-env-vars` without the configuration: git sets these around hooks and
# `rebase --exec`, and each would point our git at another repository, index or object store.
LOCAL_VARIABLES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_DIR",
    "GIT_GLOB_PATHSPECS",
    "GIT_GRAFT_FILE",
    "GIT_ICASE_PATHSPECS",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)
MOST_CONFLICTS = 127
"""`git merge-file` answers with the number of conflicts, cut off here; above are errors."""
_SET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.splitIndex=false",
    "commit.gpgSign=false",
    "gc.auto=0",
    "i18n.commitEncoding=UTF-8",
    "index.sparse=false",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "worktree.useRelativePaths=false",
)
_WHOLE_NAME = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MOST_ANSWERS = 64
"""That are kept of what git says of commits."""
_GIT = ("git", "--no-pager", *(word for setting in _CONFIG for word in ("-c", setting)))


@dataclass(frozen=True)
class GitResult:
    """How a git command ended."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """The output without its last newline; a path that is not UTF-8 survives the round trip."""
        return os.fsdecode(self.out.removesuffix(b"\n"))

    @property
    def complaint(self) -> str:
        """What git complained of, in one line."""
        return next((line for line in self.err.splitlines() if line), f"status {self.status}")


@dataclass(frozen=True)
class TreeEntry:
    """A file of a commit."""

    mode: str
    """As git writes it: '100644', or '100755' for an executable."""
    blob: str


@dataclass(frozen=True)
class Repository:
    """A repository with a checkout."""

    root: Path
    """The top of the user's checkout."""
    common_dir: Path
    """The `.git` that all worktrees of the repository share."""
    _answers: OrderedDict[tuple[str, ...], GitResult] = field(
        default_factory=OrderedDict, compare=False, repr=False
    )
    """What git said of commits last, by what it was asked."""

    @classmethod
    def open(cls, folder: Path) -> Repository:
        """The repository whose checkout holds `folder`.

        Raises:
            UsageError: there is none, or git refuses it.
        """
        if shutil.which("git") is None:
            raise UsageError("git is not installed: install it and run again")
        asked = _ask(folder, "rev-parse", "--show-toplevel", "--git-common-dir")
        if asked.status != 0:
            raise UsageError(_why_not(folder, asked))
        top, _, common = asked.text.partition("\n")
        if "\n" in common:  # the name of a folder holds one
            top = _ask(folder, "rev-parse", "--show-toplevel").text
            common = _ask(folder, "rev-parse", "--git-common-dir").text
        return cls(Path(top).resolve(), (folder / common).resolve())  # relative to it, often

    def ask(
        self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> GitResult:
        """Run git in the user's checkout and say how it ended."""
        return _ask(self.root, *args, stdin=stdin, env=env)

    def git(
        self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> GitResult:
        """Run a git command that should work.

        Raises:
            GitError: it did not.
        """
        answer = self.ask(*args, stdin=stdin, env=env)
        if answer.status != 0:
            first = next(n for n in range(0, len(args), 2) if args[n] not in ("-C", "-c"))
            raise GitError(f"git {args[first]}: {answer.complaint}")
        return answer

    def git_path(self, name: str) -> Path:
        """Where git keeps `name` for this checkout: 'info/exclude' is in the common directory."""
        return self.root / self.git("rev-parse", "--git-path", name).text

    def head(self) -> str | None:
        """The commit of the user's checkout; None before the first one."""
        if (found := self._head()) is not None:
            return found[0]
        answer = self.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return answer.text if answer.status == 0 else None

    def branch(self) -> str | None:
        """The branch of the user's checkout; None when HEAD is detached."""
        if (found := self._head()) is not None:
            return found[1]
        answer = self.ask("symbolic-ref", "--quiet", "--short", "HEAD")
        return answer.text if answer.status == 0 else None

    def _head(self) -> tuple[str, str | None] | None:
        """Commit and branch of the checkout by GitPython's objects; None where git has to say.

        HEAD is all that is read with them. They take variables that git sets around hooks for the
        repository's own; before the first commit, with SHA-256 or with reftables they find nothing.
        Trees and blobs: a walk in Python takes seconds where `ls-tree` takes a moment. Index and
        diffs: they run git with the user's configuration, and so a file-system monitor, and refresh
        the index. Branches: theirs move whatever they find, `update-ref` only from the value read.
        """
        from git import Repo
        from git.exc import GitError as GitPythonError
        from git.exc import ODBError

        if os.environ.keys() & set(LOCAL_VARIABLES):
            return None
        try:
            with Repo(self.root, expand_vars=False) as repo:
                head = repo.head
                return head.commit.hexsha, None if head.is_detached else head.reference.name
        except (OSError, TypeError, ValueError, GitPythonError, ODBError):
            return None

    def files(self, sha: str) -> dict[str, TreeEntry]:
        """The regular files of a commit by their path from the root."""
        return _entries(self._of_commit(sha, "ls-tree", "-r", "-z", "--full-tree", sha))

    def trees(self, shas: Sequence[str]) -> dict[str, str]:
        """Commit -> the name of its tree: two with the same one hold the same files."""
        names = self.git("rev-parse", *(f"{sha}^{{tree}}" for sha in shas)).text.split()
        return dict(zip(shas, names, strict=True))

    def entry(self, sha: str, path: str) -> TreeEntry | None:
        """One file of a commit; None when the commit does not have it."""
        listed = self._of_commit(sha, "ls-tree", "-z", "--full-tree", sha, f"./{path}")
        return _entries(listed).get(path)

    def ignores(self, path: str) -> bool:
        """Whether git leaves an untracked file out of its sight."""
        return self.ask("check-ignore", "--quiet", f"./{path}").status == 0

    def read(self, sha: str, path: str) -> bytes:
        """The bytes of a file in a commit, as git stores them."""
        return self._of_commit(sha, "cat-file", "blob", f"{sha}:{path}").out

    def _of_commit(self, sha: str, *args: str) -> GitResult:
        """What git says of a commit: it stays so, where the commit is named by all of its digits.

        An iteration asks for the same few files a dozen times, and each start of git takes its
        while.
        """
        if not _WHOLE_NAME.fullmatch(sha):
            return self.git(*args)
        if args not in self._answers:
            self._answers[args] = self.git(*args)
            if len(self._answers) > _MOST_ANSWERS:
                self._answers.popitem(last=False)
        return self._answers[args]

    def check_commits(self, *shas: str) -> None:
        """Raise UsageError where git no longer has one of the commits."""
        for sha in shas:
            if self.ask("cat-file", "-e", f"{sha}^{{commit}}").status != 0:
                raise UsageError(f"git no longer has commit {sha}: its ref was deleted")

    def merge(self, base: str, ours: str, theirs: str) -> str | None:
        """A text with the changes of two others to it; None where those conflict."""
        with tempfile.TemporaryDirectory(prefix="tile-agent-") as folder:
            paths = [Path(folder, name) for name in ("ours", "base", "theirs")]
            for path, text in zip(paths, (ours, base, theirs), strict=True):
                path.write_bytes(text.encode())
            answer = self.ask("merge-file", "--stdout", "--quiet", *map(str, paths))
        if answer.status > MOST_CONFLICTS:
            raise GitError(f"git merge-file: {answer.complaint}")
        return None if answer.status else answer.out.decode()

    def diff(self, before: str, after: str, path: str) -> str:
        """The change of a file between two commits, as `git apply` takes it.

        Whatever the user has set for `git diff` says nothing here.

        Raises:
            UsageError: git no longer has one of the commits.
        """
        self.check_commits(before, after)
        plain = ("--no-ext-diff", "--no-textconv", "--no-color", "--text", "--unified=3")
        prefixes = ("--src-prefix=a/", "--dst-prefix=b/", "--no-renames")
        answer = self.git("diff", *plain, *prefixes, before, after, "--", f":(top,literal){path}")
        return answer.out.decode(errors="replace")

    def read_blobs(self, blobs: Iterable[str]) -> dict[str, bytes]:
        """Many blobs in one go: a repository may hold thousands of tests."""
        wanted = "".join(f"{blob}\n" for blob in blobs)
        out = io.BytesIO(self.git("cat-file", "--batch", stdin=wanted.encode()).out)
        found = {}
        while header := out.readline():
            blob, _, size = header.decode().split(" ")
            found[blob] = out.read(int(size))
            out.readline()
        return found

    def export(self, sha: str, folder: Path) -> None:
        """Write the files of a commit into `folder`, as the one commit of a repository of its own.

        Nothing in it leads back to this one: no remote, no hooks, no shared objects.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="tile-agent-") as scratch:
            # Not `git archive`, which obeys export-ignore: that tends to hide the tests.
            index = {"GIT_INDEX_FILE": f"{scratch}/index"}
            self.git("read-tree", sha, env=index)
            self.git("checkout-index", "--all", "--quiet", f"--prefix={folder}/", env=index)
        who = ("-c", "user.name=tile-agent", "-c", "user.email=tile-agent@localhost")
        for command in (
            ("init", "--quiet", "--template="),
            ("add", "--all", "--force"),
            (*who, "commit", "--quiet", "--allow-empty", "--message", f"Copy of {sha}"),
        ):
            answer = _ask(folder, *command)
            if answer.status != 0:
                raise GitError(f"git {command[0]} in a copy: {answer.complaint}")

    def changes(self) -> dict[str, str]:
        """What differs from HEAD in the user's checkout: path -> two letters of `git status`.

        '??' is untracked; ignored files are left out.
        """
        command = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all")
        lines = self.git(*command, "--ignore-submodules").out.split(b"\0")
        return {os.fsdecode(line[3:]): line[:2].decode() for line in lines if line}

    def worktrees(self) -> dict[Path, Path]:
        """The linked worktrees that git knows, whether or not they exist: path -> git directory."""
        found = {}
        for admin in (self.common_dir / "worktrees").glob("*"):
            with suppress(OSError):
                gitdir = os.fsdecode((admin / "gitdir").read_bytes().removesuffix(b"\n"))
                found[Path(gitdir).parent] = admin
        return found

    def drop_half_made(self, folder: Path) -> None:
        """Drop what a kill left of worktrees in `folder` before git had written where they belong.

        Git reads that of every worktree, and can neither add one nor list them where it is empty.
        """
        for path, admin in self.worktrees().items():
            belongs = admin / "commondir"
            if path.parent == folder and not (belongs.exists() and belongs.stat().st_size):
                shutil.rmtree(admin, ignore_errors=True)


def shown(path: Path | str) -> str:
    """A path for a message of one line: quoted when it holds a newline or is not text."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def _ask(
    folder: Path, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> GitResult:
    from git import Git  # importing GitPython fails where git is missing, so not before we looked

    variables = {**_SET, **(env or {})}
    # GitPython sets variables and unsets none. `env` is a process more, and rarely needed.
    unset = [
        f"-u{name}" for name in LOCAL_VARIABLES if name in os.environ and name not in variables
    ]
    # A git that went on by itself would write into folders that its caller is removing.
    with done_whole(), tempfile.TemporaryFile() as stream:
        stream.write(stdin)
        stream.seek(0)
        status, out, err = Git().execute(
            [*(("env", *unset) if unset else ()), *_GIT, "-C", str(folder), *args],
            istream=stream,
            env=variables,
            with_extended_output=True,
            with_exceptions=False,
            stdout_as_string=False,
            strip_newline_in_stdout=False,
        )
    return GitResult(status, out, err)


def _entries(answer: GitResult) -> dict[str, TreeEntry]:
    found = {}
    for line in answer.out.split(b"\0"):
        facts, _, path = line.partition(b"\t")
        if facts.startswith(b"100"):
            mode, _, blob = facts.decode().split(" ")
            found[os.fsdecode(path)] = TreeEntry(mode, blob)
    return found


def _why_not(folder: Path, answer: GitResult) -> str:
    if "not a git repository" in answer.err:
        return f"{shown(folder)} is not in a git repository: `git init`, commit, and run again"
    if "dubious ownership" in answer.err:
        trust = "git config --global --add safe.directory"
        return f"git does not trust {shown(folder)}, which another user owns: `{trust} <its root>`"
    if "must be run in a work tree" in answer.err:
        return f"{shown(folder)} is in a bare repository or a .git folder: run in a checkout of it"
    return f"git cannot open {shown(folder)}: {answer.complaint}"
