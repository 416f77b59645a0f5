"""What holds for every entry of the playbook."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.backends import BACKENDS, detect
from agent.errors import UsageError
from agent.playbook import ADVICE, PLAYBOOK
from agent.playbook.base import Entry, Optimization
from agent.proposers.playbook import edited
from agent.syntax import Source

ALL: tuple[Entry, ...] = (*PLAYBOOK, *ADVICE)
entries = pytest.mark.parametrize("entry", PLAYBOOK, ids=lambda entry: entry.name)
all_entries = pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)


def subject(text: str, entry: Entry | None = None, **hardware: int) -> Subject:
    seen = entry.observed if isinstance(entry, Optimization) else ()
    return Subject(Source(text), KernelClass.MEMORY, Hardware(**hardware), seen)


@all_entries
def test_the_docstring_is_a_recipe(entry: Entry) -> None:
    text = inspect.getdoc(inspect.getmodule(entry)) or ""
    headings = ("When:", "Do:", "Risk:", "Source:")
    places = [text.find(f"\n{heading} ") for heading in headings]
    assert -1 not in places
    assert places == sorted(places)


@all_entries
def test_the_file_has_the_entrys_name(entry: Entry) -> None:
    file = Path(inspect.getfile(type(entry)))
    assert file.stem == entry.name.replace("-", "_")
    assert file.parent.name == entry.backend
    assert entry.backend in BACKENDS


def test_every_file_is_in_the_playbook() -> None:
    folder = Path(inspect.getfile(playbook)).parent
    files = {p for b in BACKENDS for p in (folder / b).glob("*.py") if p.stem != "__init__"}
    assert files == {Path(inspect.getfile(type(entry))) for entry in ALL}


def test_names_are_unique() -> None:
    assert len({entry.name for entry in ALL}) == len(ALL)


@entries
def test_before_becomes_after(entry: Optimization) -> None:
    assert entry.before != entry.after
    assert edited(entry, subject(entry.before, entry), entry.example) == entry.after


@entries
def test_before_becomes_after_with_other_line_endings(entry: Optimization) -> None:
    before, after = (
        text.rstrip("\n").replace("\n", "\r\n") for text in (entry.before, entry.after)
    )
    assert edited(entry, subject(before, entry), entry.example) == after


@entries
def test_after_stays_as_it_is(entry: Optimization) -> None:
    with pytest.raises(NotApplicable) as refusal:
        entry.apply(subject(entry.after, entry), entry.example)
    assert "\n" not in str(refusal.value)


@entries
def test_the_example_is_a_variant_of_before_only(entry: Optimization) -> None:
    assert entry.example in list(entry.variants(subject(entry.before, entry)))
    try:
        left = list(entry.variants(subject(entry.after, entry)))
    except NotApplicable:
        left = []
    assert entry.example not in left


@entries
def test_every_variant_is_json_and_gives_python(entry: Optimization) -> None:
    before = subject(entry.before, entry)
    variants = entry.variants(before)
    assert 1 <= len(variants) <= 8
    for params in variants:
        assert json.loads(json.dumps(params)) == params
        text = entry.apply(before, params)
        ast.parse(text)
        assert text != entry.before
        assert entry.describe(params).startswith(entry.title)


@entries
def test_the_example_is_a_complete_file_of_its_language(entry: Optimization) -> None:
    for text in (entry.before, entry.after):
        backend = detect(Source(text))
        assert backend is not None
        assert backend.name == entry.backend
        assert any(kernel.launched_from for kernel in backend.kernels(Source(text)))
        assert max(map(len, text.splitlines())) <= 100


@entries
def test_a_file_of_another_language_is_refused(entry: Optimization) -> None:
    other = next(e for e in PLAYBOOK if e.backend != entry.backend)
    with pytest.raises(NotApplicable):
        entry.variants(subject(other.before))


def test_hints_are_refused_in_the_interpreter() -> None:
    for name in ("warps-and-stages", "loop-stages", "eviction-policy"):
        entry = playbook.get(name)
        interpreted = Subject(Source(entry.before), KernelClass.MEMORY, Hardware(interpreted=True))
        with pytest.raises(NotApplicable, match="interpreter"):
            entry.variants(interpreted)


def test_hardware_gates() -> None:
    num_ctas, without_tma = playbook.get("num-ctas"), playbook.get("store-without-tma")
    assert num_ctas.variants(subject(num_ctas.before, sm=100))
    with pytest.raises(NotApplicable, match="sm_120"):
        num_ctas.variants(subject(num_ctas.before, sm=120))
    with pytest.raises(NotApplicable, match="sm_80 has no TMA"):
        without_tma.variants(subject(without_tma.before, sm=80))


def test_the_order_follows_the_class() -> None:
    def first(backend: str, kernel_class: KernelClass) -> str:
        return playbook.ordered(backend, kernel_class)[0].name

    assert first("cutile", KernelClass.MEMORY) == "row-hints"
    assert first("cutile", KernelClass.COMPUTE) == "tf32-guard"
    assert first("triton", KernelClass.MEMORY) == "needed-programs"
    assert first("triton", KernelClass.COMPUTE) == "needed-programs"
    assert playbook.ordered("triton", KernelClass.MEMORY)[1].name == "row-in-registers"
    assert playbook.ordered("triton", KernelClass.COMPUTE)[1].name == "blocks-and-warps"
    assert playbook.ordered("triton", KernelClass.COMPUTE)[-1].name == "eviction-policy"


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    with pytest.raises(UsageError, match="did you mean occupancy-hint"):
        playbook.get("occupancy")
