"""Compiles what may be looked at next, while the noise is measured or a candidate is judged.

It decides nothing: what it did not foresee is compiled when it is needed. Compilers take a few
processors and give way there; a machine with few has none to spare.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from agent.analysis.common.subject import Subject
from agent.candidates import Candidates
from agent.evidence.duplicates import CompiledCommit
from agent.harness.compiling.artifacts import processors
from agent.playbook.base import Optimization
from agent.proposers.base import Declined, Proposal
from agent.proposers.playbook import offered
from agent.state import Run

LEAST_PROCESSORS = 8
"""In fewer what is compiled would be in the way of what is measured."""

Offers = Mapping[str, Proposal | Declined]
"""Name of an optimization -> what it would have tried, or why it does not apply."""


@dataclass(frozen=True)
class _Foreseen:
    """What was begun."""

    run: Run
    """As it was then."""
    subject: Subject
    offers: Offers
    given_up: threading.Event
    compiled: Future[Mapping[str, CompiledCommit]]
    """Files of a commit -> what came of it."""


@dataclass
class Foresight:
    """What is compiled beside something else, for one subject at a time."""

    candidates: Candidates
    _foreseen: _Foreseen | None = field(init=False, default=None)

    def begin(
        self, run: Run, sha: str, subject: Subject, entries: Sequence[Optimization], until: float
    ) -> None:
        """Ask optimizations and have their variants compiled, in a thread.

        Args:
            run: as it is now.
            sha: the commit that is or may become the incumbent.
            subject: that one, as optimizations see it.
            entries: what may be looked at on it.
            until: when compiling must be over, by the monotonic clock.
        """
        self.give_up()
        if self.candidates.compiler is None or not entries or processors() < LEAST_PROCESSORS:
            return
        offers, given_up = dict[str, Proposal | Declined](), threading.Event()

        def work() -> Mapping[str, CompiledCommit]:
            source = subject.source.with_text(subject.source.text)  # each thread has its own
            for entry in entries:
                if given_up.is_set():
                    break
                offers[entry.name] = offered(entry, replace(subject, source=source))
            return self.candidates.compiled_ahead(run, sha, _texts(offers), until, given_up)

        thread = ThreadPoolExecutor(1)
        self._foreseen = _Foreseen(run, subject, offers, given_up, thread.submit(work))
        thread.shutdown(wait=False)

    def offers(self, subject: Subject) -> Offers:
        """What optimizations offer of a subject, as far as that was asked; nothing of another one.

        Where the text is the same it waits until all is compiled, and the candidates know of it;
        what is launched of it may have been foreseen wrongly.
        """
        foreseen = self._foreseen
        if foreseen is None or foreseen.subject.source.text != subject.source.text:
            self.give_up()
            return {}
        self._foreseen = None
        self.candidates.learn(foreseen.run, foreseen.compiled.result())
        return foreseen.offers if _are_alike(foreseen.subject, subject) else {}

    def give_up(self) -> None:
        """End what was begun, where nobody asked for it."""
        if self._foreseen is not None:
            self._foreseen.given_up.set()
            self._foreseen.compiled.exception()  # its worktrees and processes are gone then
            self._foreseen = None


def _texts(offers: Offers) -> Sequence[str]:
    proposals = [offer for offer in offers.values() if isinstance(offer, Proposal)]
    return list(dict.fromkeys(variant.source for each in proposals for variant in each.variants))


def _are_alike(one: Subject, other: Subject) -> bool:
    """Whether an optimization makes the same of both."""
    return (one.launches, one.kernel_class, one.elsewhere) == (
        other.launches,
        other.kernel_class,
        other.elsewhere,
    )
