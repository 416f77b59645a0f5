"""In which order the playbook's entries come, and when one comes again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.causes import Cause, Diagnosis
from agent.events import Measured, Settled, Skipped, Verified
from agent.measuring.decision import Status
from agent.measuring.scouting import MOST_LOOKS, Estimate
from agent.options import Options
from agent.playbook import for_backend, ordered
from agent.playbook.base import Optimization
from agent.proposers.base import Exhausted, Proposal
from agent.proposers.playbook import PlaybookProposer
from agent.state import Phase, Row, Run
from agent.syntax import Source
from agent.transitions import advance
from tests.support.history import STARTED, comparison, proposed, run_in


class _Entry(Optimization):
    backend = "triton"
    priority: ClassVar = {}
    expected = hypothesis = before = after = ""
    example: ClassVar[Params] = {}

    def variants(self, subject: Subject) -> Sequence[Params]:
        return [{}]

    def apply(self, subject: Subject, params: Params) -> str:
        return subject.source.text + f"# {self.name}\n"


class Tiles(_Entry):
    name, title, family = "tiles", "tiles", "tiles"


class Warps(_Entry):
    name, title, family = "warps", "warps", "warps"
    revisit_after = frozenset({"tiles"})


class Climbing(_Entry):
    name, title, family = "climbing", "climbing", "sizes"
    climbs = True


class Never(_Entry):
    name, title, family = "never", "never", "never"

    def variants(self, subject: Subject) -> Sequence[Params]:
        raise NotApplicable("no loop")


class Fewer(_Entry):
    name, title, family = "fewer", "fewer bits", "numerics"
    opt_in = "it gives up digits"
    saves = "memory"


COMPUTE, MEMORY = KernelClass.COMPUTE, KernelClass.MEMORY
SUBJECT = Subject(Source("x = 1\n"), KernelClass.MEMORY, Hardware())
PROPOSER = PlaybookProposer([Fewer(), Warps(), Never(), Tiles()])


def first(run: Run) -> str | None:
    found = PROPOSER.propose(run, SUBJECT)
    return None if isinstance(found, Exhausted) else found.optimization


def test_what_an_entry_saves_is_told() -> None:
    run = Run(started=replace(STARTED, options=Options(only=("fewer",))))
    proposal = PROPOSER.propose(run, SUBJECT)
    assert isinstance(proposal, Proposal)
    assert proposal.saves == "memory"
    other = PROPOSER.propose(Run(iteration=1), SUBJECT)
    assert isinstance(other, Proposal)
    assert other.saves == ""


def test_each_is_tried_once_in_order() -> None:
    run, order = Run(iteration=1), []
    while (name := first(run)) is not None:
        order.append(name)
        run = replace(run, tried={**run.tried, name: run.iteration}, iteration=run.iteration + 1)
    assert order == ["warps", "never", "tiles"]


def test_one_comes_again_after_a_keep_that_its_best_value_depends_on() -> None:
    tried = {"warps": 1, "never": 2, "tiles": 2}
    assert first(Run(tried=tried, kept_families={"warps": 1})) is None
    assert first(Run(tried=tried, kept_families={"tiles": 2})) == "warps"
    assert first(Run(tried={**tried, "warps": 3}, kept_families={"tiles": 2})) is None


def test_what_undoes_the_authors_wish_is_tried_where_it_is_asked_for() -> None:
    asked = Run(started=replace(STARTED, options=Options(only=("fewer", "tiles"))))
    assert first(asked) == "fewer"
    assert first(replace(asked, tried={"fewer": 1})) == "tiles"


def test_what_gained_little_comes_last() -> None:
    assert first(Run(demoted=frozenset({"warps"}), tried={"never": 1})) == "tiles"


def test_what_the_diagnosis_names_comes_first() -> None:
    found = Diagnosis(Cause.OCCUPANCY, ("compiled: 25 % occupancy",), ("tiles",))
    assert first(Run(diagnosis=found)) == "tiles"
    assert first(Run(diagnosis=found, demoted=frozenset({"tiles"}), tried={"never": 1})) == "warps"


def test_more_rows_a_program_come_before_all_where_blocks_have_little_to_do() -> None:
    found = Diagnosis(Cause.LATENCY, ("launched: 524288 blocks",), ("rows", "tiles"))
    entries = ordered("triton", KernelClass.MEMORY)
    proposer = PlaybookProposer([_stand_in(entry) for entry in entries])
    proposal = proposer.propose(Run(diagnosis=found), SUBJECT)
    assert isinstance(proposal, Proposal)
    assert proposal.optimization == "rows-per-program"


def test_an_older_look_counts_for_less_what_has_been_gained_since() -> None:
    """Two looks promised 5 % by what removes the same cause: one of them gained it."""
    looks = {"tiles": Estimate(1, 0.052, 0.01), "warps": Estimate(2, 0.046, 0.01)}
    run = Run(iteration=2, estimates=looks, tried={"never": 1})
    assert first(run) == "tiles"
    kept = Row(1, "never", 1.0, True, Status.KEEP, at_least=0.04)
    assert first(replace(run, rows=(kept,))) == "warps"
    assert first(replace(run, rows=(replace(kept, at_least=0.003),))) == "tiles"
    assert first(replace(run, rows=(replace(kept, status=Status.REVERT),))) == "tiles"
    tried = replace(run, rows=(kept,), tried={"never": 1, "warps": 2})
    assert first(tried) == "tiles"  # it may gain it all the same


def test_what_slows_a_config_down_comes_behind_what_does_not() -> None:
    looks = {"tiles": Estimate(1, 0.2, 0.01, slowed="384"), "warps": Estimate(1, 0.03, 0.01)}
    run = Run(iteration=1, estimates=looks, tried={"never": 1})
    assert first(run) == "warps"
    assert first(replace(run, tried={"never": 1, "warps": 1})) == "tiles"  # it may be kept


def test_what_a_small_keep_made_doubtful_is_looked_at_again_once_nothing_promises_a_gain() -> None:
    """A SwiGLU's sizes gained what faster arithmetic had promised: two iterations were for nothing.

    What made the same code of the incumbent before was tried without any look.
    """
    looks = {
        "warps": Estimate(1, 0.048, 0.01),  # promised as much as was gained
        "never": Estimate(1, looks=MOST_LOOKS),  # did not apply
        "tiles": Estimate(1, 0.004, 0.01),  # promises nothing
    }
    run = Run(iteration=2, estimates=looks)

    def looked_at(run: Run) -> list[str]:
        return [entry.name for entry in PROPOSER.unknown(run)]

    assert looked_at(run) == []
    kept = Row(1, "sizes", 1.0, True, Status.KEEP, at_least=0.044)
    assert looked_at(replace(run, rows=(replace(kept, status=Status.REVERT),))) == []
    assert looked_at(replace(run, rows=(kept,))) == ["never", "warps"]
    promising = {**looks, "tiles": Estimate(2, 0.03, 0.01)}
    assert looked_at(replace(run, rows=(kept,), estimates=promising)) == []
    again = {**looks, "warps": Estimate(2, 0.012, 0.01), "never": Estimate(2, looks=MOST_LOOKS)}
    assert looked_at(replace(run, rows=(kept,), estimates=again)) == []


def test_the_order_is_of_what_is_timed() -> None:
    """Not of a product that the file holds as well, and no perf test launches."""
    proposer = PlaybookProposer(for_backend("triton"))
    run = run_in(Phase.PROPOSE)
    assert run.started is not None and run.baseline is not None
    for before, timed in ((COMPUTE, MEMORY), (MEMORY, COMPUTE)):
        baseline = replace(run.baseline, kernel_class=timed.value)
        started = replace(run.started, kernel_class=before.value, options=Options())
        seen = replace(run, started=started, baseline=baseline, diagnosis=None)
        names = [e.name for e in ordered("triton", timed) if not e.opt_in]
        assert [e.name for e in proposer.left(seen)] == names


def test_one_that_climbs_goes_on_until_it_gains_no_more() -> None:
    climber = PlaybookProposer([Climbing()])

    def is_open(tried: int, kept: int) -> bool:
        run = Run(tried={"climbing": tried}, kept_families={"sizes": kept})
        return not isinstance(climber.propose(run, SUBJECT), Exhausted)

    assert is_open(tried=1, kept=1)
    assert not is_open(tried=2, kept=1)


def test_one_that_climbs_rests_where_it_has_nothing_left_to_try() -> None:
    run = Run(iteration=2, tried={"climbing": 1}, kept_families={"sizes": 1})
    run = advance(replace(run, phase=Phase.PROPOSE), Skipped("climbing", "all were tried"))
    climber = PlaybookProposer([Climbing()])
    assert isinstance(climber.propose(run, SUBJECT), Exhausted)
    later = replace(run, iteration=3, kept_families={"sizes": 2})
    assert not isinstance(climber.propose(later, SUBJECT), Exhausted)


@pytest.mark.parametrize("backend", ["cutile", "triton"])
def test_an_entry_is_looked_at_once_an_incumbent(backend: str) -> None:
    """Whatever is kept, set aside or not worth a run: the run comes to its end."""
    rng = random.Random(backend)
    proposer = PlaybookProposer(
        [_stand_in(entry) for entry in ordered(backend, SUBJECT.kernel_class)]
    )
    for _ in range(20):
        run = replace(run_in(Phase.PROPOSE), started=replace(STARTED, options=Options()))
        looked_at, keeps = set[str](), 12
        while not isinstance(found := proposer.propose(run, SUBJECT), Exhausted):
            assert isinstance(found, Proposal)
            assert found.optimization not in looked_at
            looked_at.add(found.optimization)
            if rng.random() < 0.5:
                run = advance(run, Skipped(found.optimization, "nothing to try"))
                continue
            kept = keeps > 0 and rng.random() < 0.5
            for event in (
                proposed(found.optimization, "a1", family=found.family),
                Verified("a1", 12),
                Measured(comparison(0.1 if kept else -0.2)),
                Settled(f"kept-{run.iteration}" if kept else run.incumbent_sha),
            ):
                run = advance(run, event)
            if kept:
                looked_at, keeps = set(), keeps - 1


def _stand_in(entry: Optimization) -> Optimization:
    """An entry of that name, family and dependence that always has something to try."""

    class StandIn(_Entry):
        name, title, family = entry.name, entry.title, entry.family
        revisit_after, climbs, opt_in = entry.revisit_after, entry.climbs, entry.opt_in

    return StandIn()
