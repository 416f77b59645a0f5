"""Tests of a run for who looks at its kernel: captured ones lie in the run's commits alone.

A summary that points to `explain` would otherwise point to a command that finds no tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import ExitStack

    from agent.harness.processes.worker_session import Checkout
    from agent.repository import Repository
    from agent.state import Run
    from agent.target import Target


@dataclass(frozen=True)
class LentTests:
    """What the newest run on a kernel judged by, where the commit that is looked at lacks it."""

    repository: Repository
    run_id: str
    run: Run
    target: Target
    """As the run had it."""
    sha: str
    """The commit that is looked at."""
    lent: tuple[str, ...]
    """The files that the run's first commit has besides."""

    @property
    def tests(self) -> tuple[str, ...]:
        """Files or node ids, from the root."""
        return self.target.tests

    @property
    def note(self) -> str:
        """That they are the run's, and how to have them for good."""
        return (
            f"the tests are those that run {self.run_id} captured; "
            f"`git cherry-pick {self._origin[:12]}` takes them over"
        )

    @property
    def _origin(self) -> str:
        assert self.run.started is not None
        return self.run.started.origin_sha

    def laid_out(self, stack: ExitStack, text: str) -> Path:
        """The commit in a worktree, with the run's files beside its own.

        Args:
            stack: removes it.
            text: the kernel's, where it is not the commit's.
        """
        from agent.throwaway import throwaway

        root = stack.enter_context(throwaway(self.repository)).checkout(self.sha)
        for path in self.lent:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(self.repository.read(self._origin, path))
        if text:
            (root / self.target.kernel).write_text(text, encoding="utf-8")
        return root

    def commit_of_kernel(self) -> str | None:
        """One of the run's that holds the kernel as the commit that is looked at; None: none."""
        name = self.target.kernel
        wanted = self.repository.entry(self.sha, name)
        of_run = dict.fromkeys((self.run.incumbent_sha, self._origin))
        return next((s for s in of_run if s and self.repository.entry(s, name) == wanted), None)

    def checkout(self, root: Path) -> Checkout:
        """What lies there, as workers are told of it."""
        from agent.harness.processes.worker_session import Checkout

        return Checkout(root, self.target.sys_path(root), self.target.kernel)


def lent_by_run(kernel: Path, ref: str = "HEAD") -> LentTests | None:
    """The captured tests of the newest run on a kernel; None where a commit has them, or none is.

    Args:
        kernel: the file.
        ref: the commit that is looked at.
    """
    from agent.errors import UsageError
    from agent.preflight import tree_of
    from agent.repository import Repository
    from agent.runs import runs_on
    from agent.target import CAPTURED, find_target

    try:
        repository = Repository.open(kernel.resolve().parent)
    except UsageError:  # it lies in none: no run was there
        return None
    name = kernel.resolve().relative_to(repository.root).as_posix()
    commit = repository.ask("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if commit.status != 0 or repository.entry(commit.text, name) is None:
        return None
    has = repository.files(commit.text).keys()
    for run_id, run in runs_on(repository, name):
        if run.started is None or not _is_there(repository, run.started.origin_sha):
            continue
        origin = run.started.origin_sha
        captured = [f for f in run.started.tests.files if f.partition("::")[0].endswith(CAPTURED)]
        if not captured or all(file.partition("::")[0] in has for file in captured):
            continue
        given = [str(repository.root / file) for file in captured]
        target = find_target(tree_of(repository, origin), name, given)
        lent = tuple(path for path in repository.files(origin) if path not in has)
        return LentTests(repository, run_id, run, target, commit.text, lent)
    return None


def _is_there(repository: Repository, sha: str) -> bool:
    """Whether git still has a commit: it may have gone with the run's refs."""
    return repository.ask("cat-file", "-e", f"{sha}^{{commit}}").status == 0
