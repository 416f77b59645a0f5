"""The deterministic proposer: the playbook's entries, in the order of the kernel's class.

Where they were looked at before, by what that promises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent.analysis.common.subject import NotApplicable, Subject
from agent.analysis.triton.wrapped import decorated
from agent.measuring.decision import percent
from agent.measuring.scouting import Estimate
from agent.playbook import by_class
from agent.playbook.base import Optimization
from agent.proposers.base import Declined, Exhausted, Proposal, ProposedVariant
from agent.proposers.faults import faults_as_refusals
from agent.rewriting.common.dead_names import without_dead_names
from agent.rewriting.common.line_width import within_width
from agent.rewriting.common.repeated_names import with_one_assignment_each
from agent.rewriting.common.same_branches import with_one_branch_each
from agent.state import Run
from agent.store.experience import NOTHING
from agent.store.recall import Recall

HEAD_START = 3
"""Places that an optimization is ahead of its own where the diagnosis names its family. The order
of the class rests on measurements, a diagnosis on one kernel's symptoms: in front of everything,
what it named took the place of what would have gained more."""
FIRST = frozenset({"rows"})
"""Families that come first where they are named: of blocks with little to do, a count says enough.
More rows a program took 78 % off a norm of short rows, other warps 0.6 %."""


PROMISING, UNKNOWN, POSSIBLE, FLAT, SLOWER = range(5)
"""What gained what the rules reward in a look at it; what was not looked at; what may gain that, as
far as the look goes, or gained it and slowed a config down; what may not; what lost beyond
doubt."""
DOUBTFUL = frozenset({UNKNOWN, POSSIBLE})
"""What another incumbent may decide: what did not apply to the one before may apply to it."""


class PlaybookProposer:
    """Tries each optimization once.

    Where short looks were taken, what may gain most by them comes first, and what may gain nothing
    that the rules reward is tried only by a run that keeps going. The rest is in the order of the
    class: what the diagnosis names is ahead of its place, and families that gained little come
    last.

    One whose best value depends on what has been kept since is tried again: the occupancy that
    suited a kernel with TMA stores need not suit the same kernel without them. So is one whose best
    value was the first or the last of its sweep, as far as there are others beyond it.
    """

    def __init__(self, playbook: Sequence[Optimization], recall: Recall | None = None) -> None:
        """Take the optimizations of one backend, and what is remembered."""
        self._playbook = playbook
        self._recall = recall

    def propose(self, run: Run, subject: Subject) -> Proposal | Declined | Exhausted:
        """The next optimization that has not been tried, or not since what it depends on."""
        left = self.left(run)
        if not left:
            by_look = any(skipped.by_look for skipped in run.skipped)
            least = percent(run.options.rules.minor)
            why = f"short looks promise less than {least} of what is left" if by_look else ""
            return Exhausted(why)
        entry = left[0]
        if (estimate := _estimate(run, entry)) and self._is_passed_over(run, entry):
            assert estimate.gain is not None
            gain, error = percent(abs(estimate.gain)), percent(estimate.error)
            what = f"{gain} {'slower' if estimate.gain < 0 else 'faster'}, {error} more or less"
            found = f"a short look found its best variant {what}"
            return Declined(entry.name, found, by_look=True)
        return offered(entry, subject)

    def _is_passed_over(self, run: Run, entry: Optimization) -> bool:
        """Whether a look leaves it no chance of a gain that the rules reward, and nobody insists.

        What has a variant that no look saw, or that one did not see out, is tried; and of what may
        gain a little what was named, what saves something else, and what may gain more in configs
        that no look had.
        """
        group, estimate = self._group(run, entry), _estimate(run, entry)
        if run.options.keep_going or estimate is None:
            return False
        if estimate.is_cut or not estimate.all_variants:
            return False
        if group == FLAT:
            named = entry.name in run.options.only
            return estimate.all_configs and not (named or entry.saves)
        return group == SLOWER

    def left(self, run: Run) -> list[Optimization]:
        """What is still to be tried, in the order in which it will be."""
        only = run.options.only
        left = [
            entry
            for entry in self._playbook
            if _is_open(entry, run) and (entry.name in only if only else not entry.opt_in)
        ]
        return sorted(left, key=lambda entry: self._place(run, entry))

    def unknown(self, run: Run) -> list[Optimization]:
        """What is to be looked at, so that it can be put in order; none where there is no choice.

        Everything at first. After a keep what depends on it, and after a large one, which moves
        what bounds the kernel, all that is left. In between what the time did not suffice for, and
        once nothing promises a gain any more what a smaller keep has made doubtful: a look takes a
        fifth of an iteration.
        """
        left = self.left(run)
        if len(left) < 2:
            return []
        groups = {entry.name: self._group(run, entry) for entry in left}
        is_time = PROMISING not in groups.values()
        return [
            entry
            for entry in left
            if _is_unknown(run, entry)
            or (is_time and groups[entry.name] in DOUBTFUL and _is_older(run, entry))
        ]

    def _place(
        self, run: Run, entry: Optimization
    ) -> tuple[int, float, bool, tuple[int, float], int, int]:
        estimate = _estimate(run, entry)
        group = self._group(run, entry)
        most = estimate.high if estimate and group not in (UNKNOWN, FLAT) else None
        gained = _gained_since(run, estimate) if estimate else 0.0
        return group, gained - (most or 0.0), *self._place_in_class(run, entry)

    def _group(self, run: Run, entry: Optimization) -> int:
        """Which of the five it belongs to; what saves something else may be a little slower."""
        estimate, rules = _estimate(run, entry), run.options.rules
        if estimate is None or estimate.gain is None:
            return UNKNOWN
        high = estimate.gain + estimate.error
        if high < (-rules.regression if entry.saves else 0.0):
            return SLOWER
        if high < rules.minor:
            return FLAT
        left = estimate.gain - _gained_since(run, estimate)
        return PROMISING if left >= rules.minor and not estimate.slowed else POSSIBLE

    def _place_in_class(
        self, run: Run, entry: Optimization
    ) -> tuple[bool, tuple[int, float], int, int]:
        own = by_class(self._playbook, run.kernel_class).index(entry)
        named = run.diagnosis.families if run.diagnosis else ()
        place = own - HEAD_START if entry.family in named else own
        if entry.family in FIRST.intersection(named):
            place = -len(self._playbook)
        experience = self._recall.of(run) if self._recall else NOTHING
        return entry.family in run.demoted, experience.place(entry.name), place, own


def _estimate(run: Run, entry: Optimization) -> Estimate | None:
    """What a look says of an entry, unless what was kept since has made it doubtful."""
    estimate = run.estimates.get(entry.name)
    if estimate is None:
        return None
    since = [row for row in run.kept if row.iteration >= estimate.iteration]
    if any(row.at_least > run.options.rules.major for row in since):
        return None
    beyond = {entry.family} if entry.name in run.at_the_end else set()
    kept = (run.kept_families.get(family, -1) for family in entry.depends_on | beyond)
    return None if any(when >= estimate.iteration for when in kept) else estimate


def _is_older(run: Run, entry: Optimization) -> bool:
    """Whether its look, or what kept it from being looked at, is of an incumbent before."""
    when = run.estimates[entry.name].iteration
    return any(row.iteration >= when for row in run.kept)


def _gained_since(run: Run, estimate: Estimate) -> float:
    """What has been gained at least since a look: another optimization may have gained the same.

    Of a SwiGLU on an H200 looks promised 5.2 % by other tile sizes, and as much by faster
    arithmetic; behind that other sizes gained 0.5 %.
    """
    return sum(row.at_least for row in run.kept if row.iteration >= estimate.iteration)


def _is_unknown(run: Run, entry: Optimization) -> bool:
    estimate = _estimate(run, entry)
    return estimate is None or estimate.is_unseen(run.iteration)


def offered(entry: Optimization, subject: Subject) -> Proposal | Declined:
    """What an entry would have tried of a kernel, or why it does not apply."""
    subject = replace(subject, source=decorated(subject.source))
    try:
        with faults_as_refusals():
            variants = _variants(entry, subject)
        return Proposal(
            optimization=entry.name,
            family=entry.family,
            hypothesis=entry.hypothesis,
            variants=variants,
            rounding=entry.changes_rounding,
            saves=entry.saves,
        )
    except NotApplicable as reason:
        return Declined(entry.name, str(reason))


def _is_open(entry: Optimization, run: Run) -> bool:
    if entry.name not in run.tried or entry.name in run.at_the_end:
        return True
    looked_at = run.tried[entry.name]
    kept = run.kept_families.get(entry.family, 0)
    gained = kept > looked_at or (kept == looked_at and entry.name not in run.spent_out)
    if entry.climbs and gained:
        return True
    return any(run.kept_families.get(family, 0) > looked_at for family in entry.revisit_after)


def edited(entry: Optimization, subject: Subject, params: Mapping[str, object]) -> str:
    """What an entry makes of a file, laid out as that is, without what only the old text needed.

    Raises:
        NotApplicable: it does not apply with these parameters.
    """
    before = subject.source.text
    after = with_one_branch_each(before, entry.apply(subject, params))
    after = with_one_assignment_each(before, after)
    after = without_dead_names(before, after)
    return within_width(before, after)


def _variants(entry: Optimization, subject: Subject) -> tuple[ProposedVariant, ...]:
    """Every distinct text that the entry's parameters give.

    A variant that does not apply is left out as long as another one does.
    """
    found: dict[str, ProposedVariant] = {}
    refusal: NotApplicable | None = None
    for params in entry.variants(subject):
        try:
            with faults_as_refusals():
                text = edited(entry, subject, params)
        except NotApplicable as reason:
            refusal = reason
            continue
        if text != subject.source.text:
            found.setdefault(text, ProposedVariant(params, entry.describe(params), text))
    if not found:
        raise refusal or NotApplicable("nothing would change")
    return tuple(found.values())
