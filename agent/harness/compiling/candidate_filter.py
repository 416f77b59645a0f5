"""Which candidates of a run are not timed: they cannot run, or compile to what has been timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeGuard

from agent.events import Candidate
from agent.evidence.duplicates import CompiledCommit, DuplicateFilter
from agent.evidence.model import Artifact
from agent.harness.compiling.candidate_compiler import CandidateCompiler
from agent.harness.compiling.kept_compiles import KeptCompiles
from agent.harness.processes.worker_session import Checkout

EARLIER = "an earlier incumbent"


class CandidateFilter:
    """Compiles candidates and remembers, for one process of a run, what has been timed."""

    def __init__(
        self,
        compiler: CandidateCompiler | None,
        kept: KeptCompiles | None = None,
        trees: Callable[[Sequence[str]], Mapping[str, str]] = lambda _: {},
    ) -> None:
        """Take what compiles.

        Args:
            compiler: with None nothing is ever filtered out.
            kept: what earlier runs compiled; None where all is to be compiled.
            trees: commits -> what git calls their files; asked where something is kept.
        """
        self._compiler, self._kept, self._trees = compiler, kept, trees
        self._duplicates = DuplicateFilter()
        self._compiled: dict[str, CompiledCommit | None] = {}
        self._took_s: dict[str, float] = {}
        self._of_trees: dict[tuple[str, tuple[str, ...]], CompiledCommit] = {}
        """Files of a commit, and the tests that launched its kernels -> what came of it."""

    def learn(self, tests: Sequence[str], compiled: Mapping[str, CompiledCommit]) -> None:
        """Take what commits with the same files compiled to.

        Args:
            tests: the perf tests, which launched what was compiled.
            compiled: what git calls the files -> what they compile to.
        """
        whole = {tree: found for tree, found in compiled.items() if _is_whole(found)}
        self._of_trees |= {(tree, tuple(tests)): found for tree, found in whole.items()}

    def filter_out(
        self,
        incumbent_sha: str,
        candidates: Sequence[Candidate],
        checkouts: Callable[[Sequence[str]], Sequence[Checkout]],
        tests: Sequence[str],
        until: float = math.inf,
    ) -> Mapping[str, str]:
        """Commit -> why it need not be timed.

        Args:
            incumbent_sha: the commit to beat.
            candidates: those to look at.
            checkouts: puts commits on disk.
            tests: the perf tests, which launch what is to be compiled.
            until: when compiling must be over, by the monotonic clock; of what is not done by then
                nothing is known.
        """
        if self._compiler is None:
            return {}
        shas = [incumbent_sha, *(candidate.sha for candidate in candidates)]
        unknown = [sha for sha in shas if sha not in self._compiled]
        self._compiled |= self._found_before(unknown, tests)
        wanted = [sha for sha in unknown if sha not in self._compiled]
        found = self._compiler.compile(checkouts(wanted), tests, until) if wanted else ()
        now = dict(zip(wanted, found, strict=True))
        self._keep(now, tests)
        known = {**self._compiled, **now}
        # what was cut off may be compiled when there is more time
        self._compiled |= {s: c for s, c in now.items() if until == math.inf or _is_whole(c)}
        out = self._duplicates.filter_out(
            known[incumbent_sha], [(c.sha, c.title, known[c.sha]) for c in candidates]
        )
        if incumbent_sha in unknown:  # whatever beats it has beaten what compiles to the same
            self._duplicates.remember(EARLIER, known[incumbent_sha])
        return out

    def compiled(
        self, sha: str, checkout: Callable[[str], Checkout], tests: Sequence[str], until: float
    ) -> CompiledCommit | None:
        """What an incumbent compiles to; None where that cannot be found out.

        It is compiled where it has not been yet, and again later where the time did not suffice.

        Args:
            sha: the commit.
            checkout: puts a commit on disk.
            tests: the perf tests.
            until: when compiling must be over, by the monotonic clock.
        """
        if self._compiler is None or sha in self._compiled:
            return self._compiled.get(sha)
        begin = time.monotonic()
        (found,) = self._compiler.compile([checkout(sha)], tests, until)
        if _is_whole(found):
            self._took_s[sha] = round(time.monotonic() - begin, 3)
            self._compiled[sha] = found
            self._keep({sha: found}, tests)
            self._duplicates.remember(EARLIER, found)
        return found

    def known(self, sha: str) -> CompiledCommit | None:
        """What a commit compiles to, where that was found out before; compiles nothing."""
        return self._compiled.get(sha)

    def compile_s(self, sha: str) -> float | None:
        """What compiling an incumbent took, 0 without a compiler; None where it was not done."""
        return 0.0 if self._compiler is None else self._took_s.get(sha)

    def remember(self, candidates: Sequence[Candidate], shas: Collection[str]) -> None:
        """These have been timed: what compiles to the same need not be."""
        for candidate in candidates:
            if candidate.sha in shas:
                self._duplicates.remember(candidate.title, self._compiled.get(candidate.sha))

    def _found_before(self, shas: Sequence[str], tests: Sequence[str]) -> dict[str, CompiledCommit]:
        """What was compiled of these ahead, or by earlier runs."""
        if not shas or (self._kept is None and not self._of_trees):
            return {}
        trees, asked = self._trees(shas), tuple(tests)
        ahead = {t: c for t in trees.values() if (c := self._of_trees.get((t, asked)))}
        left = [tree for tree in trees.values() if tree not in ahead]
        found = ahead | (self._kept.find(left, tests) if self._kept and left else {})
        return {sha: found[tree] for sha, tree in trees.items() if tree in found}

    def _keep(self, compiled: Mapping[str, CompiledCommit | None], tests: Sequence[str]) -> None:
        """Keep what was compiled whole, for later runs: a failure may have been the machine's."""
        whole = {
            sha: found
            for sha, found in compiled.items()
            if found
            and found.results
            and not found.of_best
            and all(isinstance(result, Artifact) for result in found.results)
        }
        if self._kept is None or not whole:
            return
        trees = self._trees(list(whole))
        self._kept.keep({trees[sha]: found for sha, found in whole.items()}, tests)


def _is_whole(found: CompiledCommit | None) -> TypeGuard[CompiledCommit]:
    return found is not None and found.conclusive


def in_short(reasons: Sequence[str]) -> str:
    """The reason, or the first of several different ones."""
    if len(set(reasons)) == 1:
        return reasons[0] if len(reasons) == 1 else f"of each variant: {reasons[0]}"
    return f"none of {len(reasons)} variants is worth a run: {reasons[0]}; {reasons[-1]}"
