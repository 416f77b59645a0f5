"""An entry that ends with an exception is one that does not apply, and the others go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import libcst as cst
import pytest

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.options import Options
from agent.playbook.base import Optimization
from agent.proposers.agenda import agenda
from agent.proposers.base import Declined, Proposal
from agent.proposers.faults import MOST_CHARACTERS, EntryFault, faults_as_refusals
from agent.proposers.playbook import offered
from agent.state import Run
from agent.syntax import Source
from tests.support.history import STARTED

SUBJECT = Subject(Source("x = 1\n"), KernelClass.MEMORY, Hardware())


class Faulty(Optimization):
    backend = "triton"
    name = title = family = "faulty"
    priority: ClassVar = {}
    expected = hypothesis = before = after = ""
    example: ClassVar[Params] = {}
    asked = False
    """Whether it fails where it is asked, too."""
    works: ClassVar[frozenset[int]] = frozenset()

    def variants(self, subject: Subject) -> Sequence[Params]:
        if self.asked:
            return [{"n": subject.source.calls[0].args[0]}]  # the file calls nothing
        return [{"n": 1}, {"n": 2}]

    def apply(self, subject: Subject, params: Params) -> str:
        if params["n"] not in self.works:
            raise ValueError("not enough values\nto unpack")
        return f"y = {params['n']}\n"


class Asked(Faulty):
    asked = True


class Other(Faulty):
    name = "other"


class Half(Faulty):
    works = frozenset({2})


def test_what_fails_in_all_variants_is_declined_with_the_place() -> None:
    found = offered(Faulty(), SUBJECT)
    assert isinstance(found, Declined)
    assert "a fault of tile-agent (" in found.reason
    assert "ValueError: not enough values to unpack" in found.reason
    assert "\n" not in found.reason


def test_what_fails_when_it_is_asked_is_declined() -> None:
    found = offered(Asked(), SUBJECT)
    assert isinstance(found, Declined)
    assert "IndexError" in found.reason


def test_a_variant_that_works_is_tried() -> None:
    found = offered(Half(), SUBJECT)
    assert isinstance(found, Proposal)
    assert [variant.source for variant in found.variants] == ["y = 2\n"]


def test_an_agenda_goes_on() -> None:
    tasks = agenda(Run(started=replace(STARTED, options=Options())), SUBJECT, [Asked(), Other()])
    found = {task.optimization: (task.fits, task.why) for task in tasks}
    assert not found["faulty"][0]
    assert "a fault of tile-agent (" in found["faulty"][1]
    assert found["other"][0]


def test_a_refusal_stays_what_it_is() -> None:
    with pytest.raises(NotApplicable, match="no loop") as caught, faults_as_refusals():
        raise NotApplicable("no loop")
    assert not isinstance(caught.value, EntryFault)


def test_the_place_is_ours_and_what_is_said_is_short() -> None:
    with pytest.raises(EntryFault) as caught, faults_as_refusals():
        Source("f(1)\n").line(cst.Name("elsewhere"))
    assert "agent/syntax/" in str(caught.value)
    assert len(str(caught.value)) < MOST_CHARACTERS + 200
