"""Looks at what the playbook has left before one of it is chosen: what gains most comes first.

An estimate is one short look, of the best of several variants: it puts proposals in order and keeps
what it leaves no chance of a gain from being tried. What is kept is measured afresh.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.asking import Asking
from agent.candidates import Candidates
from agent.events import Candidate, Gathered, Proposed, Scouted, Skipped
from agent.foresight import Foresight
from agent.harness.measuring.budget import screen_pair_s, screened_subset
from agent.harness.measuring.judge import Judge
from agent.harness.measuring.line_ups import AT_ONCE, AT_ONCE_WITH_ROOM
from agent.harness.measuring.line_ups import LEAST_S as SCREEN_S
from agent.harness.processes.worker_session import deadline_in, tunes_itself
from agent.measuring.screening import LEAST_ERROR, SHORT_QUADS, Look, LookRules, ScreenResult
from agent.measuring.subset import Subset
from agent.playbook.base import Optimization
from agent.proposers.base import Declined, Proposal
from agent.proposers.playbook import PlaybookProposer, offered
from agent.state import Run
from agent.sweep import SHARE, look_rules, looked_at, near_noise

MOST_S = 120.0
"""What looking before one choice may take: half of it for compiling, half for the looks, of which
a group of variants that others follow, in which one that hangs holds up the rest, has half of what
is left."""
BUDGET_SHARE = 1 / 3
"""The part of what is left of a run's time that looking before a choice may take."""
LEAST_S = 20.0
"""In less, too little is seen to be worth it."""
CLEAR, LARGE = 2.0, 5.0
"""Times the gain after whose keep every look is out of date: a look that shows the first leaves no
doubt that it comes to that; the second is worth taking before all optimizations were in a look."""
COMPILE_S = 3.0
"""What a variant's choice of cuTile's search takes to be compiled, where nobody knows: ten and more
for a product, but several are compiled beside each other."""
SHORT_TUNING_S = 1.5
"""What a tuner of Triton's takes in a short look for fifty configs that are compiled already, see
`tile_agent_pytest.tuning_effort`: some ten ms each, and an eighth of a second for the best."""


@dataclass
class _Enough:
    """Ends the looks once each optimization was in one and what gains most is clear, or is large.

    After its keep all that is left is looked at again: what more looks would say is of no use.
    """

    groups: Sequence[frozenset[str]]
    """The commits of each optimization that are to be looked at."""
    major: float
    """The share of the latency after whose gain all looks are out of date."""
    reached: bool = False
    """Whether that ended them."""

    def __call__(self, seen: Mapping[str, Look], left: Sequence[str]) -> bool:
        unseen = any(group and group.issubset(left) for group in self.groups)
        whole = (look for look in seen.values() if not look.is_cut)
        best = max((-math.expm1(-look.log_ratio) for look in whole), default=0.0)
        is_enough = best >= (LARGE if unseen else CLEAR) * self.major
        self.reached = self.reached or is_enough
        return is_enough


@dataclass
class Scouting:
    """Short looks at the variants of many optimizations, all beside the incumbent."""

    judge: Judge
    candidates: Candidates
    asking: Asking
    doing: Callable[[Run, str], None]
    """Told in a few words what is looked at."""

    def __post_init__(self) -> None:
        self.foresight = Foresight(self.candidates)

    def due(self, run: Run) -> list[Optimization]:
        """What is to be looked at before the next choice; mostly nothing."""
        proposer = self.asking.proposers.get(run.proposer)
        if not isinstance(proposer, PlaybookProposer) or not self.has_time(run):
            return []
        return proposer.unknown(run)

    def has_time(self, run: Run) -> bool:
        """Whether enough is left of the run's time for looks to be worth theirs."""
        return _time_s(run) >= LEAST_S

    def foresee_first(self, run: Run) -> None:
        """Have what will be looked at first compiled, while the noise is measured."""
        if entries := self.due(run):
            until = deadline_in(_time_s(run) / 2)
            subject = self.asking.subject(run)
            self.foresight.begin(run, run.incumbent_sha, subject, entries, until)

    def foresee_next(self, run: Run, sha: str) -> None:
        """Have what will be looked at after a keep compiled, while the candidate is judged.

        Only where its look says that all looks are out of date after it.
        """
        look = run.scouted.get(sha)  # none where nothing is looked at
        seen = look.improvement if look is not None else None
        is_large = seen is not None and seen >= run.options.rules.major
        is_last = run.iteration >= run.options.max_iterations
        proposer = self.asking.proposers.get(run.proposer)
        if not is_large or is_last or not isinstance(proposer, PlaybookProposer):
            return
        if self.has_time(run):
            until = deadline_in(_time_s(run) / 2)
            subject = self.asking.subject(replace(run, incumbent_sha=sha))
            self.foresight.begin(run, sha, subject, proposer.left(run), until)

    def gather(self, run: Run, entries: Sequence[Optimization]) -> Gathered:
        """Commit and compile all variants of some entries on the incumbent.

        What is not compiled in time is looked at all the same, last.
        """
        self.doing(run, f"compiling what {len(entries)} optimizations would try")
        subject = self.asking.subject(run)
        known = self.foresight.offers(subject)
        offers = [known.get(entry.name) or offered(entry, subject) for entry in entries]
        proposals = [offer for offer in offers if isinstance(offer, Proposal)]
        until = deadline_in(_time_s(run) / 2)
        made = self.asking.committed(run, subject, proposals, until)
        declined = (
            Skipped(offer.optimization, offer.reason)
            for offer in offers
            if isinstance(offer, Declined)
        )
        return Gathered(
            tuple(each for each in made if isinstance(each, Proposed)),
            (*declined, *(each for each in made if isinstance(each, Skipped))),
        )

    def look(self, run: Run) -> Scouted:
        """Look at what was gathered: the first variant of each, then the second, as time allows.

        Those that are not compiled by then come last. All are looked at by a run that keeps going,
        and where nothing gains so much that its keep changes what the others gain.
        """
        within_s = _time_s(run) / 2
        stop = deadline_in(within_s)
        groups = [each.candidates for each in _gathered_now(run)]
        chosen = _in_turn(groups)
        left = [candidate.sha for candidate in chosen if not _is_seen(run, candidate)]
        # What is not compiled would be in its look: the others in it would wait for that.
        shas = sorted(left, key=lambda sha: self.candidates.known(sha) is None)
        pair_s = _screen_pair_s(len(shas), within_s, self._tuning_s(run))
        subset = screened_subset(run, pair_s)
        configs = subset.configs if subset and subset != run.subset else ()
        known = self.candidates.known_looks(run, shas, self.judge.setting(), configs)
        new = [sha for sha in shas if sha not in known]
        major = math.inf if run.options.keep_going else run.options.rules.major
        enough = _Enough([frozenset(c.sha for c in group) & {*new} for group in groups], major)
        self.doing(run, f"a short look at {len(new)} variants of what is left")
        self.judge.compare_on(subset)
        try:
            seen = self._seen(run, new, stop, subset, enough) if new else {}
        finally:
            self.judge.compare_on(run.subset)
        rules = look_rules(run)
        results = tuple(known.get(sha) or _result(sha, seen.get(sha), rules) for sha in shas)
        error = max(LEAST_ERROR, near_noise(run))
        return Scouted(results, error, configs, tuple(known), enough.reached)

    def _tuning_s(self, run: Run) -> float:
        """What each variant of a kernel that tunes itself takes more than the incumbent, whose
        choice is known: where its configs are not compiled ahead, as long as all of the
        incumbent's took to be compiled."""
        if not tunes_itself(self.candidates.checkout(run, run.incumbent_sha)):
            return 0.0
        is_triton = run.started is not None and run.started.backend == "triton"
        return SHORT_TUNING_S if is_triton else run.compile_s or COMPILE_S

    def _seen(
        self,
        run: Run,
        shas: Sequence[str],
        stop: float,
        subset: Subset | None,
        enough: _Enough,
    ) -> dict[str, Look]:
        variants = dict(zip(shas, self.candidates.checkouts(run, shas), strict=True))
        incumbent = self.candidates.checkout(run, run.incumbent_sha)
        try:
            with self.judge.line_ups(incumbent, variants, looked_at(run, subset)) as line_ups:
                return dict(line_ups.look(shas, SHORT_QUADS, stop, last=True, enough=enough))
        finally:
            self.candidates.release(variants)


def _gathered_now(run: Run) -> Iterator[Proposed]:
    """What was gathered for this look; of the rest one on the same incumbent has told."""
    for name, found in run.gathered.items():
        if isinstance(found, Proposed) and run.estimates[name].iteration == run.iteration:
            yield found


def _is_seen(run: Run, candidate: Candidate) -> bool:
    look = run.scouted.get(candidate.sha)
    return look is not None and look.improvement is not None


def _time_s(run: Run) -> float:
    """What looking may take once."""
    most_s = min(MOST_S, SHARE * run.options.iteration_timeout_s)
    if run.options.time_budget_s is None:
        return most_s
    return min(most_s, BUDGET_SHARE * (run.options.time_budget_s - run.spent_s))


def _screen_pair_s(variants: int, within_s: float, tuning_s: float = 0.0) -> float:
    """What a pair may take of the configs of the first screen, however many it has room for.

    `LineUps` leaves half of the time to a screen that others follow, and at least `LEAST_S`.
    """
    found = []
    for at_once in (AT_ONCE, AT_ONCE_WITH_ROOM):
        followed_s = max(within_s / 2, min(within_s, SCREEN_S))
        first_s = followed_s if variants > at_once else within_s
        found.append(screen_pair_s(1 + min(variants, at_once), first_s, tuning_s))
    return min(found)


def _in_turn(groups: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """The first of each group, then the second of each, and so on."""
    rounds = itertools.zip_longest(*groups)
    return [candidate for some in rounds for candidate in some if candidate is not None]


def _result(sha: str, look: Look | None, rules: LookRules) -> ScreenResult:
    if look is None:
        return ScreenResult(sha, None, "not seen in a short look")
    return ScreenResult(
        sha,
        look.latency_ms,
        improvement=-math.expm1(-look.log_ratio),
        is_cut=look.is_cut,
        slowed=rules.slowed(look.log_ratios, SHORT_QUADS),
    )
