"""In which order the playbook's entries come, and when one comes again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from agent.backends.base import KernelClass
from agent.causes import Cause, Diagnosis
from agent.options import Options
from agent.playbook.base import Hardware, NotApplicable, Optimization, Params, Subject
from agent.proposers.base import Exhausted
from agent.proposers.playbook import PlaybookProposer
from agent.state import Run
from agent.syntax import Source
from tests.support.history import STARTED


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
    opt_in = True


SUBJECT = Subject(Source("x = 1\n"), KernelClass.MEMORY, Hardware())
PROPOSER = PlaybookProposer([Fewer(), Warps(), Never(), Tiles()])


def proposed(run: Run) -> str | None:
    found = PROPOSER.propose(run, SUBJECT)
    return None if isinstance(found, Exhausted) else found.optimization


def test_each_is_tried_once_in_order() -> None:
    run, order = Run(iteration=1), []
    while (name := proposed(run)) is not None:
        order.append(name)
        run = replace(run, tried={**run.tried, name: run.iteration}, iteration=run.iteration + 1)
    assert order == ["warps", "never", "tiles"]


def test_one_comes_again_after_a_keep_that_its_best_value_depends_on() -> None:
    tried = {"warps": 1, "never": 2, "tiles": 2}
    assert proposed(Run(tried=tried, kept_families={"warps": 1})) is None
    assert proposed(Run(tried=tried, kept_families={"tiles": 2})) == "warps"
    assert proposed(Run(tried={**tried, "warps": 3}, kept_families={"tiles": 2})) is None


def test_what_undoes_the_authors_wish_is_tried_where_it_is_asked_for() -> None:
    asked = Run(started=replace(STARTED, options=Options(only=("fewer", "tiles"))))
    assert proposed(asked) == "fewer"
    assert proposed(replace(asked, tried={"fewer": 1})) == "tiles"


def test_what_gained_little_comes_last() -> None:
    assert proposed(Run(demoted=frozenset({"warps"}), tried={"never": 1})) == "tiles"


def test_what_the_diagnosis_names_comes_first() -> None:
    found = Diagnosis(Cause.OCCUPANCY, ("compiled: 25 % occupancy",), ("tiles",))
    assert proposed(Run(diagnosis=found)) == "tiles"
    assert (
        proposed(Run(diagnosis=found, demoted=frozenset({"tiles"}), tried={"never": 1})) == "warps"
    )


def test_one_that_climbs_goes_on_until_it_gains_no_more() -> None:
    climber = PlaybookProposer([Climbing()])

    def is_open(tried: int, kept: int) -> bool:
        run = Run(tried={"climbing": tried}, kept_families={"sizes": kept})
        return not isinstance(climber.propose(run, SUBJECT), Exhausted)

    assert is_open(tried=1, kept=1)
    assert not is_open(tried=2, kept=1)
