"""Candidates as commits: made from a proposal, filtered out by what they compile to, and kept."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from agent.environment import describe
from agent.events import Calibrated, Candidate, FilteredOut, Measured
from agent.evidence.duplicates import CompiledCommit
from agent.harness.compiling.artifacts import processors
from agent.harness.compiling.candidate_compiler import CandidateCompiler
from agent.harness.compiling.candidate_filter import CandidateFilter
from agent.harness.compiling.kept_compiles import KeptCompiles
from agent.harness.measuring.result_check import Allowance
from agent.harness.processes.worker_session import Checkout
from agent.measuring.screening import ScreenResult
from agent.memory import PastRuns
from agent.prompting import render
from agent.proposers.base import Proposal
from agent.redaction import redact
from agent.state import Phase, Run, started
from agent.touched import Worktree
from agent.workspace import Workspace

MOST_GITS = 8
"""That check out commits at the same time."""


@dataclass
class Candidates:
    """The commits of one run, as far as this process made or compiled them."""

    workspace: Workspace
    python_path: Callable[[Path], tuple[Path, ...]]
    """Where Python finds the modules of a checkout, given its root."""
    compiler: CandidateCompiler | None
    """Compiles candidates before they run; None where nothing can be compiled."""
    memory: PastRuns | None = None
    """What was tried before; None where nobody remembers."""
    kept: KeptCompiles | None = None
    """What earlier runs compiled; None where all is to be compiled."""
    _filter: CandidateFilter = field(init=False)
    _worktrees: dict[str, Worktree] = field(init=False, default_factory=dict)
    """Those that are there, as they were when they had just been made."""

    def __post_init__(self) -> None:
        self._filter = CandidateFilter(self.compiler, self.kept, self.workspace.repository.trees)

    def checkout(self, run: Run, sha: str) -> Checkout:
        """A commit on disk, as git has it."""
        root = self.workspace.checkout(sha)
        self._worktrees[sha] = Worktree.look(self.workspace.repository, root, sha)
        return Checkout(root, self.python_path(root), started(run).kernel)

    def checkouts(self, run: Run, shas: Sequence[str]) -> list[Checkout]:
        """The same of several: of a large repository git takes a while for each."""
        with ThreadPoolExecutor(min(MOST_GITS, processors())) as pool:
            return list(pool.map(partial(self.checkout, run), shas))

    def untried(
        self, run: Run, before: str, proposal: Proposal
    ) -> tuple[Proposal, tuple[FilteredOut, ...]]:
        """The proposal without the variants that are known to have failed, and those.

        Args:
            run: as it is now.
            before: the incumbent's text.
            proposal: with one variant or more; none may be left.
        """
        if self.memory is None:
            return proposal, ()
        failures, name = self.memory.failures_on(run, before), proposal.optimization
        left, known = [], []
        for variant in proposal.variants:
            if why := failures.why(name, variant.title, variant.source):
                known.append(FilteredOut(variant.title, why))
            else:
                left.append(variant)
        return replace(proposal, variants=tuple(left)), tuple(known)

    def known_calibration(self, run: Run, setting: str, profiles: bool) -> Calibrated | None:
        """What an earlier run measured of the origin, and profiled if need be, as it holds now."""
        return self.memory.calibrated(run, setting, profiles) if self.memory else None

    def known_comparison(self, run: Run, setting: str) -> Measured | None:
        """What an earlier run measured of the same step, as far as that holds now."""
        return self.memory.compared(run, setting) if self.memory else None

    def known_looks(
        self, run: Run, shas: Sequence[str], setting: str, configs: tuple[str, ...]
    ) -> dict[str, ScreenResult]:
        """What an earlier run saw of the same edits, as far as that holds now."""
        return self.memory.looked_at(run, shas, setting, configs) if self.memory else {}

    def commit(self, run: Run, proposal: Proposal) -> list[Candidate]:
        """One commit a variant, on the incumbent, under a ref that outlives the run."""
        made = []
        judged = [attempt.proposal for attempt in run.earlier]
        if run.phase is Phase.REPAIR and run.proposal is not None:
            judged.append(run.proposal)
        first = 1 + sum(len(each.candidates) + len(each.filtered_out) for each in judged)
        for number, variant in enumerate(proposal.variants, start=first):
            sha = self.workspace.commit_candidate(
                run.incumbent_sha,
                started(run).kernel,
                variant.source.encode(),
                redact(f"tile-agent: try {variant.title}\n", os.environ),
                _when(run),
            )
            self.workspace.keep_ref(f"{run.iteration:02d}-{proposal.optimization}-{number}", sha)
            made.append(Candidate(sha, dict(variant.params), variant.title))
        return made

    def compiled_ahead(
        self, run: Run, sha: str, texts: Collection[str], until: float, given_up: threading.Event
    ) -> Mapping[str, CompiledCommit]:
        """What the kernel would compile to with other texts, by what git calls the files then.

        Nothing here touches what a thread may be at that judges a candidate meanwhile.

        Args:
            run: as it is now.
            sha: the commit whose other files are there.
            texts: of the kernel.
            until: when compiling must be over, by the monotonic clock.
            given_up: ends it.
        """
        if self.compiler is None:
            return {}
        kernel, shas = started(run).kernel, list[str]()
        try:
            for text in texts:
                if given_up.is_set():
                    return {}
                told = (sha, kernel, text.encode(), "tile-agent: ahead\n", _when(run))
                shas.append(self.workspace.commit_candidate(*told))
            with ThreadPoolExecutor(min(MOST_GITS, processors())) as pool:
                roots = list(pool.map(self.workspace.checkout, shas))
            there = [Checkout(root, self.python_path(root), kernel) for root in roots]
            found = self.compiler.compile(there, perf_tests(run), until, given_up)
            trees = self.workspace.repository.trees(shas) if shas else {}
            return {trees[s]: c for s, c in zip(shas, found, strict=True) if c is not None}
        finally:
            for each in shas:
                self.workspace.release(each)

    def learn(self, run: Run, compiled: Mapping[str, CompiledCommit]) -> None:
        """Take what was compiled ahead of a run as it is now."""
        self._filter.learn(perf_tests(run), compiled)

    def filtered_out(
        self, run: Run, candidates: Sequence[Candidate], until: float
    ) -> Mapping[str, str]:
        """Commit -> why it need not be timed, by what the compiler makes of it until then."""
        out = self._filter.filter_out(
            run.incumbent_sha,
            candidates,
            partial(self.checkouts, run),
            perf_tests(run),
            until,
        )
        self.release(candidate.sha for candidate in candidates)
        return out

    def compiled(self, run: Run, sha: str, until: float = math.inf) -> CompiledCommit | None:
        """What a commit that is or becomes the incumbent compiles to, where that can be found out.

        What is compiled here is not compiled again for an iteration.
        """
        return self._filter.compiled(
            sha, lambda sha: self.checkout(run, sha), perf_tests(run), until
        )

    def known(self, sha: str) -> CompiledCommit | None:
        """The same where it has been found out already; compiles nothing."""
        return self._filter.known(sha)

    def compile_s(self, sha: str) -> float | None:
        """What compiling an incumbent took, 0 where nothing is compiled; None: not known."""
        return self._filter.compile_s(sha)

    def timed(self, run: Run, shas: set[str]) -> None:
        """These have been timed: what compiles to the same need not be."""
        self._filter.remember(run.candidates, shas)

    def written(self) -> tuple[str, ...]:
        """Files of the worktrees that are not as their commits have them, and what was added.

        But for new files that nobody loads.
        """
        changes = (change for tree in self._worktrees.values() for change in tree.changes())
        return tuple(sorted({change.path for change in changes}))

    def tampered_with(self, run: Run) -> tuple[str, ...]:
        """What code of a candidate changed in the worktrees that it is judged in, a phrase each.

        What the tests themselves write has been seen at the baseline.
        """
        usual = set(run.baseline.written) if run.baseline else set()
        found = []
        for sha, tree in self._worktrees.items():
            whose = " of the incumbent" if sha == run.incumbent_sha else ""
            changes = (change for change in tree.changes() if change.path not in usual)
            found += [f"{change}{whose}" for change in changes]
        return tuple(found)

    def release(self, shas: Iterable[str]) -> None:
        """Remove the worktrees of commits; the commits stay."""
        for sha in shas:
            self._worktrees.pop(sha, None)
            self.workspace.release(sha)

    def keep(self, run: Run) -> tuple[str, str]:
        """One commit a kept optimization: what, why, and the figures. The branch moves to it.

        Returns:
            The commit, and why the branch could not be moved to it, or nothing.
        """
        began, candidate, proposal = started(run), run.candidate, run.proposal
        assert candidate is not None and proposal is not None
        message = render(
            "commit_message.j2",
            kernel=Path(began.kernel).stem,
            title=candidate.title,
            hypothesis=proposal.hypothesis,
            doubts=proposal.doubts,
            comparison=run.comparison,
            subset=run.subset,
            machine=describe(began.environment),
            run_id=began.run_id,
            iteration=run.iteration,
        )
        sha = self.workspace.commit_kept(run.incumbent_sha, candidate.sha, message, _when(run))
        return sha, self.workspace.advance_branch(began.branch, sha) or ""


def perf_tests(run: Run) -> tuple[str, ...]:
    """pytest arguments for the perf tests that comparisons run."""
    plan = started(run).tests
    left_out = run.baseline.left_out if run.baseline else frozenset[str]()
    all_of_them = tuple(nodeid for nodeid in plan.perf if nodeid not in left_out)
    return plan.arguments_for(run.subset.tests if run.subset else all_of_them)


def _when(run: Run) -> float:
    """A time that repeating the effect gives again, so that commits come out the same."""
    return started(run).began_at_s + run.spent_s


def allowance(run: Run) -> Allowance:
    """How much less precise a candidate's results may be."""
    rounding = run.proposal.rounding if run.proposal else 0.0
    return Allowance(rounding, anything=run.options.allow_precision_loss)
