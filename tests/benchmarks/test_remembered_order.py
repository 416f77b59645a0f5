"""What the guide says of kernels of one kind is what the tables of results give."""

from __future__ import annotations

import re

import pytest

from benchmarks.remembered_order import main, measured
from tests.support.pages import DOCS


def test_the_guide_has_the_figures_of_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    *kernels, total = capsys.readouterr().out.splitlines()
    told = (DOCS / "decisions.md").read_text(encoding="utf-8").replace("\n", " ")
    found = re.search(
        r"each of (\d+) kernels .* two came .* in fewer iterations and three in more, "
        r"(\d+) in all in place of (\d+) ",
        told,
    )
    assert found is not None
    assert len(kernels) == int(found[1])
    assert total == f"all: {found[3]} -> {found[2]}"
    moved = [re.search(r"(\d+) -> (\d+)$", kernel) for kernel in kernels]
    later = [int(m[2]) - int(m[1]) for m in moved if m]
    assert (sum(n < 0 for n in later), sum(n > 0 for n in later)) == (2, 3)


def test_a_row_is_read_with_its_verdict_and_interval() -> None:
    softmax = next(each for each in measured("triton") if each.name == "triton/softmax")
    step = softmax.steps[0]
    assert (step.entry, step.status, step.gain) == ("warps-by-row", "keep", 0.251)
    assert (step.low, step.high) == (0.245, 0.256)
