"""Whatever a kernel looks like: it is found or not, and each entry changes it or says why not."""

from __future__ import annotations

import ast
import warnings

import libcst as cst
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.backends import detect
from agent.playbook import ADVICE, for_backend
from agent.proposers.answer import problems
from agent.syntax import Source
from tests.fuzz.mutations import EDITS, Edit, mutated, seeds
from tests.fuzz.profile import examples, folders, time_limit

pytestmark = pytest.mark.full
HARDWARE = (Hardware(sm=90), Hardware(sm=100), Hardware(interpreted=True))
KERNELS = st.sampled_from(seeds(folders()))


def parses(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return False
    return True


def readable(text: str) -> Source | None:
    """The source, unless it is Python that its parser does not take, which is told at the start."""
    source = Source(text)
    try:
        _ = source.module
    except cst.ParserSyntaxError:
        return None
    return source


@examples(60)
@given(seed=KERNELS, edits=EDITS, hardware=st.sampled_from(HARDWARE))
def test_every_entry_changes_a_kernel_or_says_why_not(
    seed: str, edits: list[Edit], hardware: Hardware
) -> None:
    text = mutated(seed, edits).removeprefix("\ufeff")
    if (source := readable(text)) is None:
        return
    with time_limit():
        backend = detect(source)
        if backend is None:
            return
        subject = Subject(source, backend.classify(source).kernel_class, hardware)
        for advice in (entry for entry in ADVICE if entry.backend == backend.name):
            try:
                assert advice.fits(subject)
            except NotApplicable as reason:
                assert str(reason)
        for entry in for_backend(backend.name):
            try:
                variants = list(entry.variants(subject))
            except NotApplicable as reason:
                assert str(reason) and "\n" not in str(reason), entry.name
                continue
            for params in (*variants[:1], *variants[1:][-1:]):
                try:
                    after = entry.apply(subject, params)
                except NotApplicable as reason:
                    assert str(reason) and "\n" not in str(reason), entry.name
                    continue
                assert after != text, entry.name
                assert parses(after), (entry.name, after)
                assert entry.describe(params)


@examples(60)
@given(seed=KERNELS, edits=EDITS, answer=EDITS)
def test_an_answer_is_looked_at_whatever_it_holds(
    seed: str, edits: list[Edit], answer: list[Edit]
) -> None:
    """What a model, a program or an assistant hands over, which need not be Python at all."""
    before = readable(mutated(seed, edits).removeprefix("\ufeff")) or Source(seed)
    text = mutated(seed, answer)
    with time_limit():
        problems(before, text)
        problems(before, text[: len(text) // 2])


@examples(100)
@given(text=st.text(max_size=200), seed=KERNELS, at=st.integers(0, 9_999))
def test_a_text_that_is_no_python_is_told_so(text: str, seed: str, at: int) -> None:
    where = at % (len(seed) + 1)
    whole = seed[:where] + text + seed[where:]
    try:
        whole.encode()
    except UnicodeEncodeError:
        reject()
    with time_limit():
        found = problems(Source(seed), whole)
        assert parses(whole) or found
