"""Asks whoever writes candidates, and commits what they hand over."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.backends import BACKENDS
from agent.candidates import Candidates
from agent.events import Candidate, CodeChange, FilteredOut, Proposed, Skipped
from agent.evidence.compare import pairs
from agent.evidence.model import Artifact
from agent.harness.compiling.candidate_filter import in_short
from agent.launched_elsewhere import broken_launches, launched_elsewhere
from agent.launches import ObservedLaunch, by_cost
from agent.proposers.base import Declined, Exhausted, Proposal, Proposer
from agent.state import Run, started
from agent.syntax import Source


@dataclass(frozen=True)
class Asking:
    """One proposer after the other, and the commits that candidates become."""

    candidates: Candidates
    proposers: Mapping[str, Proposer]
    hardware: Hardware
    _elsewhere: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)

    def source(self, run: Run) -> Source:
        """The incumbent's text."""
        kernel = started(run).kernel
        text = self.candidates.workspace.repository.read(run.incumbent_sha, kernel).decode()
        return Source(text, kernel, run.timed_kernels)

    def subject(self, run: Run) -> Subject:
        """The incumbent, as entries see it."""
        kernel_class = KernelClass(run.kernel_class)
        elsewhere = frozenset(self.elsewhere(run))
        return Subject(self.source(run), kernel_class, self.hardware, run.launches, elsewhere)

    def elsewhere(self, run: Run) -> Mapping[str, str]:
        """Kernels of the file that others launch; a run changes none of those."""
        place = started(run).origin_sha, started(run).kernel
        if place not in self._elsewhere:
            repository = self.candidates.workspace.repository
            self._elsewhere[place] = launched_elsewhere(repository, *place)
        return self._elsewhere[place]

    def class_of(self, run: Run, launches: Sequence[ObservedLaunch]) -> str:
        """What bounds the incumbent's kernels that were launched; empty where none was."""
        if not launches:
            return ""
        source = self.source(run)
        timed = Source(source.text, source.path, by_cost(launches, {}))
        return BACKENDS[started(run).backend].classify(timed).kernel_class.value

    def ask(self, run: Run) -> Proposed | Skipped | Exhausted:
        """ONE optimization, its variants committed; or why it gives none that is worth a run."""
        subject = self.subject(run)
        proposal = self.proposers[run.proposer].propose(run, subject)
        if isinstance(proposal, Exhausted):
            return proposal
        if isinstance(proposal, Declined):
            reason, by_look = proposal.reason, proposal.by_look
            return Skipped(proposal.optimization, reason, proposal.usage, by_look)
        if known := run.gathered.get(proposal.optimization):
            return known
        (made,) = self.committed(run, subject, [proposal])
        return made

    def committed(
        self, run: Run, subject: Subject, proposals: Sequence[Proposal], until: float = math.inf
    ) -> tuple[Proposed | Skipped, ...]:
        """What becomes of each proposal: its variants as commits, or why none is worth a run.

        Args:
            run: as it is now.
            subject: the incumbent.
            proposals: all for it; they are compiled together.
            until: when compiling must be over, by the monotonic clock.
        """
        text = subject.source.text
        untried = [self.candidates.untried(run, text, each) for each in proposals]
        untried = [self._launchable(run, text, *each) for each in untried]
        commits = [self.candidates.commit(run, proposal) for proposal, _ in untried]
        out = self._filtered_out(run, [one for some in commits for one in some], until)
        made: list[Proposed | Skipped] = []
        for (proposal, known), candidates in zip(untried, commits, strict=True):
            why = [FilteredOut(c.title, out[c.sha]) for c in candidates if c.sha in out]
            passed = (*known, *why)
            if len(why) == len(candidates):
                reason = in_short(tuple(each.reason for each in passed))
                made.append(Skipped(proposal.optimization, reason, proposal.usage))
                continue
            chosen = tuple(c for c in candidates if c.sha not in out)
            made.append(self._proposed(run, proposal, chosen, passed))
        return tuple(made)

    def _launchable(
        self, run: Run, before: str, proposal: Proposal, known: tuple[FilteredOut, ...]
    ) -> tuple[Proposal, tuple[FilteredOut, ...]]:
        """Without the variants that other files of the project could not launch any more."""
        left, broken = [], list(known)
        for variant in proposal.variants:
            if why := broken_launches(before, variant.source, self.elsewhere(run)):
                broken.append(FilteredOut(variant.title, why))
            else:
                left.append(variant)
        return replace(proposal, variants=tuple(left)), tuple(broken)

    def _proposed(
        self,
        run: Run,
        proposal: Proposal,
        chosen: tuple[Candidate, ...],
        filtered_out: tuple[FilteredOut, ...],
    ) -> Proposed:
        return Proposed(
            optimization=proposal.optimization,
            family=proposal.family,
            hypothesis=proposal.hypothesis,
            candidates=chosen,
            filtered_out=filtered_out,
            expected_gain=proposal.expected_gain,
            risk=proposal.risk,
            rounding=proposal.rounding,
            doubts=proposal.doubts,
            usage=proposal.usage,
            saves=proposal.saves,
            code=tuple(each for c in chosen for each in self._code(run, c.sha)),
        )

    def _filtered_out(
        self, run: Run, committed: Sequence[Candidate], until: float
    ) -> Mapping[str, str]:
        """Commit -> why it need not be timed.

        What does not compile is judged all the same where its author may mend it: the tests tell
        all that the compiler says, and the attempt counts.
        """
        out = self.candidates.filtered_out(run, committed, until)
        if run.possible_attempts == 1:
            return out
        compiled = {sha: self.candidates.compiled(run, sha) for sha in out}
        return {sha: why for sha, why in out.items() if not ((c := compiled[sha]) and c.problem)}

    def _code(self, run: Run, sha: str) -> tuple[CodeChange, ...]:
        """What the compiler made of each launch, beside the incumbent's, where that is known."""
        ours, theirs = (self.candidates.known(each) for each in (run.incumbent_sha, sha))
        if ours is None or theirs is None:
            return ()
        found = [
            CodeChange(
                before.launch.kernel,
                (before.registers, after.registers),
                (before.stack_bytes, after.stack_bytes),
                (before.shared_bytes, after.shared_bytes),
                sha,
            )
            for before, after in pairs(ours.results, theirs.results)
            if isinstance(before, Artifact) and isinstance(after, Artifact)
        ]
        return tuple(dict.fromkeys(found))
