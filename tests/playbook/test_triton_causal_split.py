"""A causal attention: where its loop is split, and its programs turned round, and where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.syntax import Source

ENTRY = playbook.get("causal-split")
PREFIX = ENTRY.before
SELECT = "scores = tl.where(cols[None, :] <= rows[:, None], scores, 0.0)\n"
END = "(pid_m + 1) * BLOCK_M"
SHAPES = [[[n, 16], [n, 16]] for n in (2, 40, 77)]


def split(text: str) -> str:
    return ENTRY.apply(Subject(Source(text), KernelClass.COMPUTE, Hardware()), {})


def refusal(text: str) -> str:
    with pytest.raises(NotApplicable) as refused:
        split(text)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ((SELECT, "scores = tl.where(rows[:, None] > cols[None, :], scores, 0.0)\n"), " > "),
        ((SELECT, "scores *= tl.where(cols[None, :] < rows[:, None], 0.5, 0.25)\n"), "0.25"),
        (
            (SELECT, "keep = (cols[None, :] < n) & (cols[None, :] <= rows[:, None])\n"
                     "        scores = tl.where(keep, scores, 0.0)\n"),
            "keep",
        ),
        (
            (SELECT, "scores = tl.where((cols[None, :] <= rows[:, None]) & (scores > 0), "
                     "scores, 0.0)\n"),
            "<=",
        ),
        ((END, "n"), "<="),
        ((END, "tl.minimum(n, (pid_m + 1) * BLOCK_M)"), "<="),
        (("BLOCK_N=16", "BLOCK_N=64"), "<="),
        (("in range(0, ", "in tl.range(0, "), "<="),
    ],
)  # fmt: skip
def test_other_forms_keep_their_numbers(change: tuple[str, str], gone: str, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    text = PREFIX.replace(*change)
    assert text != PREFIX
    new = split(text)
    below, diagonal = new.split("diagonal = ")[1].split("range(diagonal, ")
    assert gone not in below
    assert gone in diagonal
    assert disagreement("prefix", SHAPES, text, [new], rounding=False, folder=tmp_path) == ""


def test_an_end_that_may_come_before_the_rows_bounds_the_first_loop() -> None:
    assert "diagonal = tl.minimum(pid_m * BLOCK_M // BLOCK_N * BLOCK_N, n)\n" in split(
        PREFIX.replace(END, "n")
    )


def test_bounds_stay_where_the_grid_may_have_more_programs() -> None:
    new = split(PREFIX.replace("triton.cdiv(n, 32)", "triton.cdiv(n, 32) + 1"))
    assert new.count("mask=cols[:, None] < n, other=0.0") == 2
    assert new.count("<= rows") == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("in range(0, ", "in range(BLOCK_N, "), "does not step through columns from 0"),
        ((SELECT, "pass\n"), "compares no columns with the rows"),
        (("cols[None, :] <= rows", "cols[None, :] >= rows"), "compares no columns with the rows"),
        (("cols[None, :] <= rows", "cols[None, :] + 1 <= rows"), "compares no columns with the"),
        (("rows = pid_m * BLOCK_M", "rows = n - pid_m * BLOCK_M"), "compares no columns with the"),
        (
            (SELECT, "scores *= (cols[None, :] <= rows[:, None]).to(tl.float32)\n"),
            "does more with a comparison than to select",
        ),
        (
            (SELECT, "keep = cols[None, :] <= rows[:, None]\n"
                     "        scores = tl.where(keep, scores, 0.0)\n        acc += keep.sum()\n"),
            "does more with a comparison than to select",
        ),
        (
            (SELECT, "keep = cols[None, :] <= rows[:, None]\n"
                     "        scores = tl.where(keep, scores, 0.0)\n        keep = 1\n"),
            "is not all that `keep` is",
        ),
    ],
)  # fmt: skip
def test_loops_that_stay_whole(change: tuple[str, str], reason: str) -> None:
    text = PREFIX.replace(*change)
    assert text != PREFIX
    assert reason in refusal(text)


def test_descriptors_and_the_split_go_together() -> None:
    """Both in one kernel: TMA loads in the loop below the diagonal and in the one over it."""
    subject = Subject(Source(PREFIX), KernelClass.COMPUTE, Hardware(sm=90))
    new = split(playbook.get("tile-descriptors").apply(subject, {"tiles": "loads"}))
    assert new.count("k_desc.load([start, 0])") == 2


# --- longest-first ------------------------------------------------------------------------------


def turned(text: str) -> str:
    entry = playbook.get("longest-first")
    return entry.apply(Subject(Source(text), KernelClass.COMPUTE, Hardware()), {})


@pytest.mark.parametrize(
    "end",
    [
        "(pid_m + 1) * BLOCK_M",
        "BLOCK_M + pid_m * BLOCK_M",
        "tl.cdiv((pid_m + 1) * BLOCK_M, BLOCK_N) * BLOCK_N",
    ],
)
def test_programs_that_run_further_start_first(end: str, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    text = PREFIX.replace(END, end)
    new = turned(text)
    assert new == text.replace("tl.program_id(0)", "tl.num_programs(0) - 1 - tl.program_id(0)")
    both = turned(split(text))
    assert disagreement("prefix", SHAPES, text, [new, both], rounding=False, folder=tmp_path) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((END, "n"), "no loop of prefix_kernel runs further in later programs"),
        ((END, "n - pid_m * BLOCK_M"), "no loop of prefix_kernel runs further"),
        (("dims = tl", "first = tl.program_id(0)\n    dims = tl"), "asks twice for its place"),
        (("dims = tl", "tl.debug_barrier()\n    dims = tl"), "may wait for another program"),
        (("dims = tl", "count = tl.num_programs(0)\n    dims = tl"), "deals with the grid itself"),
    ],
)
def test_programs_that_keep_their_order(change: tuple[str, str], reason: str) -> None:
    text = PREFIX.replace(*change)
    assert text != PREFIX
    with pytest.raises(NotApplicable) as refused:
        turned(text)
    assert reason in str(refused.value)
