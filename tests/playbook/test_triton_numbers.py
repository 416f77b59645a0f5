"""Every Triton entry keeps the numbers of its example, run in Triton's interpreter.

bfloat16 is left out: the interpreter multiplies the bit patterns of its tiles. Whatever an entry
tunes, each of its configs is run and compared.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.playbook import for_backend
from agent.playbook.base import Optimization
from agent.playbook.trial import PRODUCTS, TritonTrial
from agent.proposers.playbook import edited
from agent.syntax import Source
from tests.support.triton_numbers import disagreement

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")


@pytest.mark.parametrize("entry", for_backend("triton"), ids=lambda entry: entry.name)
def test_numbers_are_kept(entry: Optimization, tmp_path: Path) -> None:
    subject = Subject(Source(entry.before), KernelClass.MEMORY, Hardware(), entry.observed)
    texts = [entry.after, *(edited(entry, subject, params) for params in entry.variants(subject))]
    trial = entry.trial
    assert isinstance(trial, TritonTrial)
    before = trial.reference or entry.before
    rounding = entry.changes_rounding or before is not entry.before
    assert disagreement(trial.function, trial.calls, before, texts, rounding, tmp_path) == ""


FLAT = {"programs_per_sm": 1, "flatten": True}


def test_persistent_products_keep_the_numbers(tmp_path: Path) -> None:
    """With one loop made of the two, and without."""
    before = playbook.get("grouped-programs").before
    subject = Subject(Source(before), KernelClass.COMPUTE, Hardware(sm=90))
    entry = playbook.get("persistent-programs")
    variants = list(entry.variants(subject))
    assert FLAT in variants
    texts = [edited(entry, subject, params) for params in variants]
    assert sum("flatten=True" in text for text in texts) == 1
    assert disagreement("matmul", PRODUCTS, before, texts, False, tmp_path) == ""


def test_only_a_nest_of_two_loops_is_made_one() -> None:
    product = playbook.get("grouped-programs").before
    body = "        ks = start + tl.arange(0, BLOCK_K)\n"
    assert body in product
    inner = product.replace(body, f"{body}        for _ in range(0, 1):\n            acc += 0\n")
    entry = playbook.get("persistent-programs")
    for text in (inner, entry.before):
        subject = Subject(Source(text), KernelClass.COMPUTE, Hardware(sm=90))
        assert not any("flatten" in params for params in entry.variants(subject))
