"""Programs that start where the most work is: a causal attention, and where the order stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.syntax import Source
from tests.support.causal_kernel import PREFIX

END = "(pid_m + 1) * BLOCK_M"
SHAPES = [[[n, 16], [n, 16]] for n in (2, 40, 77)]


def turned(text: str) -> str:
    entry = playbook.get("longest-first")
    return entry.apply(Subject(Source(text), KernelClass.COMPUTE, Hardware()), {})


@pytest.mark.parametrize(
    "end",
    [
        "(pid_m + 1) * BLOCK_M",
        "BLOCK_M + pid_m * BLOCK_M",
        "tl.cdiv((pid_m + 1) * BLOCK_M, BLOCK_N) * BLOCK_N",
        "tl.minimum((pid_m + 1) * BLOCK_M, n)",
        "n if n < 0 else min((pid_m + 1) * BLOCK_M, n)",
    ],
)
def test_programs_that_run_further_start_first(end: str, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    text = PREFIX.replace(END, end)
    new = turned(text)
    assert new == text.replace("tl.program_id(0)", "tl.num_programs(0) - 1 - tl.program_id(0)")
    assert disagreement("prefix", SHAPES, text, [new], rounding=False, folder=tmp_path) == ""


@pytest.mark.parametrize(
    "bounds",
    [
        "if n < 0:\n        lo, hi = 0, n\n    else:\n        lo, hi = 0, END",
        "if n > 0:\n        hi = min(n, END)\n    else:\n        hi = n",
    ],
)
def test_the_end_may_be_one_of_several(bounds: str, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    loop = next(line for line in PREFIX.splitlines() if END in line and "for " in line)
    bounds = bounds.replace("END", END)
    text = PREFIX.replace(loop, f"    {bounds}\n{loop.replace(END, 'hi')}")
    new = turned(text)
    assert new == text.replace("tl.program_id(0)", "tl.num_programs(0) - 1 - tl.program_id(0)")
    assert disagreement("prefix", SHAPES, text, [new], rounding=False, folder=tmp_path) == ""


HELPED = """\
import triton
import triton.language as tl


@triton.jit
def sum_until(x_ptr, count, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, {end}, BLOCK):
        total += tl.load(x_ptr + start + tl.arange(0, BLOCK))
    return tl.sum(total, axis=0)


@triton.jit
def sums_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(y_ptr + pid, sum_until(x_ptr, pid, BLOCK))


def sums(x, y):
    sums_kernel[(y.numel(),)](x, y, x.numel(), BLOCK=64)
"""


def test_the_loop_may_be_one_of_a_helper() -> None:
    text = HELPED.format(end="(count + 1) * BLOCK")
    asked = "tl.program_id(0)"
    assert turned(text) == text.replace(asked, f"tl.num_programs(0) - 1 - {asked}")
    with pytest.raises(NotApplicable):
        turned(HELPED.format(end="BLOCK"))


def test_a_helper_that_begins_later_too_takes_as_long() -> None:
    text = HELPED.format(end="count").replace("x_ptr, count", "x_ptr, first, count")
    text = text.replace("range(0,", "range(first,").replace("pid, BLOCK)", "{}, pid + 4, BLOCK)")
    assert "range(first, count, BLOCK)" in text
    assert "tl.num_programs(0) - 1" in turned(text.replace("{}", "0"))
    with pytest.raises(NotApplicable):
        turned(text.replace("{}", "pid"))


def test_what_is_not_followed_is_said_to_be() -> None:
    text = PREFIX.replace(END, "n ^ pid_m * BLOCK_M")
    with pytest.raises(NotApplicable, match=r"later programs, as far as line \d+ is followed"):
        turned(text)


@pytest.mark.parametrize(
    ("first", "end"),
    [
        ("pid_m * BLOCK_M", END),
        ("pid_m * BLOCK_M", "min((pid_m + 1) * BLOCK_M, n)"),
        ("rows_before", "min(rows_before + BLOCK_M, n)"),
    ],
)
def test_loops_that_begin_later_too_take_as_long(first: str, end: str) -> None:
    text = PREFIX.replace(f"0, {END}", f"{first}, {end}")
    text = text.replace("    dims = tl", "    rows_before = pid_m * BLOCK_M\n    dims = tl")
    assert first in text
    with pytest.raises(NotApplicable, match=r": that at line \d+ begins further on in them, too"):
        turned(text)


def test_loops_that_make_up_for_each_other_take_as_long() -> None:
    """Of a backward attention: one goes over later queries, the other over earlier keys."""
    other = "for at in range(pid_m, n):\n        q += at\n    out_ptrs ="
    with pytest.raises(NotApplicable) as refused:
        turned(PREFIX.replace("out_ptrs =", other, 1))
    assert "not all loops of prefix_kernel run further in later programs" in str(refused.value)
    assert ": that at line 23 begins further on in them" in str(refused.value)


def test_numbers_that_are_taken_off_each_other_come_to_an_end() -> None:
    """Seen in a solver of fla: each of two names is a difference with the other."""
    text = PREFIX.replace(
        "    for start in range(0, (pid_m + 1) * BLOCK_M, BLOCK_N):",
        "    first, last = 0, n\n"
        "    for _ in range(2):\n"
        "        first = last - first\n"
        "        last = first - last\n"
        "    for start in range(first, last, BLOCK_N):",
    )
    with pytest.raises(NotApplicable, match="runs further in later programs"):
        turned(text)


def test_what_one_branch_gives_belongs_together() -> None:
    """No program begins where one branch says and ends where the other does."""
    bounds = (
        "if n < 0:\n        lo, hi = pid_m, min(pid_m + 8, n)\n"
        "    else:\n        lo, hi = 0, n\n    dims = tl"
    )
    text = PREFIX.replace("dims = tl", bounds).replace(f"0, {END}", "lo, hi")
    with pytest.raises(NotApplicable, match="as far as line 20 is followed"):
        turned(text)
    assert "tl.num_programs(0) - 1" in turned(text.replace("lo, hi = pid_m,", "lo, hi = 0,"))


@pytest.mark.parametrize("first", ["max(0, pid_m * BLOCK_M - 64)", "first"])
def test_loops_that_may_begin_at_zero_are_turned(first: str) -> None:
    """Of a window, and of a half of causal attention: it begins there in another branch."""
    text = PREFIX.replace(f"0, {END}", f"{first}, {END}")
    branch = "first = 0\n    if n < 0:\n        first = pid_m * BLOCK_M\n    dims = tl"
    assert "tl.num_programs(0) - 1" in turned(text.replace("dims = tl", branch))


def test_a_number_may_be_one_of_two(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    text = PREFIX.replace("pid_m = tl.program_id(0)", "pid_m, other = tl.program_id(0), 0")
    assert text != PREFIX
    new = turned(text)
    assert new == text.replace("tl.program_id(0)", "tl.num_programs(0) - 1 - tl.program_id(0)")
    assert disagreement("prefix", SHAPES, text, [new], rounding=False, folder=tmp_path) == ""


def test_a_number_that_is_part_of_a_product_is_turned_as_a_whole(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    text = PREFIX.replace("rows = pid_m * BLOCK_M", "rows = tl.program_id(0) * BLOCK_M")
    new = turned(text)
    assert "(tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M" in new
    assert disagreement("prefix", SHAPES, text, [new], rounding=False, folder=tmp_path) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "pid_m = tl.program_id(0)",
            "pid = tl.program_id(0)\n    pid_m = pid % tl.cdiv(n, BLOCK_M)",
        ),
        ("pid_m = tl.program_id(0)", "pid_m = tl.program_id(0) // 1"),
        (
            "pid_m = tl.program_id(0)",
            "pid, n = tl.program_id(0), n + 0\n    pid_m = pid.to(tl.int32)",
        ),
        (END, "(BLOCK_M * pid_m + BLOCK_M + BLOCK_N - 1) // BLOCK_N * BLOCK_N"),
        ("dims = tl", "pid_m = tl.program_id(0)\n    if n < 0:\n        pid_m = 0\n    dims = tl"),
    ],
)
def test_a_number_may_be_computed_with(old: str, new: str, tmp_path: Path) -> None:
    """Of a flat grid what is left over by the blocks of one sequence is a block's place in it."""
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    text = PREFIX.replace(old, new)
    assert text != PREFIX
    changed = turned(text)
    assert "tl.num_programs(0) - 1 - tl.program_id(0)" in changed
    assert disagreement("prefix", SHAPES, text, [changed], rounding=False, folder=tmp_path) == ""


@pytest.mark.parametrize("name", ["pid_m", "again"])
def test_who_asks_twice_is_told_the_same(name: str, tmp_path: Path) -> None:
    """As flash attention does, which spares registers so."""
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    text = PREFIX.replace("dims = tl", f"{name} = tl.program_id(0)\n    dims = tl")
    new = turned(text)
    assert new.count("tl.num_programs(0) - 1 - tl.program_id(0)") == 2
    assert disagreement("prefix", SHAPES, text, [new], rounding=False, folder=tmp_path) == ""


def test_a_barrier_is_one_of_a_program() -> None:
    text = PREFIX.replace("dims = tl", "tl.debug_barrier()\n    dims = tl")
    assert "tl.num_programs(0) - 1 - tl.program_id(0)" in turned(text)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((END, "n"), "no loop of prefix_kernel runs further in later programs"),
        ((END, "n - pid_m * BLOCK_M"), "line 16 runs less far in them"),
        ((f"0, {END}", "pid_m, n"), "line 16 begins further on in them"),
        ((END, "-pid_m * BLOCK_M + n"), "line 16 runs less far in them"),
        (
            ("dims = tl", "while tl.load(k_ptr, volatile=True) == 0:\n        pass\n    dims = tl"),
            "may wait for another program",
        ),
        (("dims = tl", "count = tl.num_programs(0)\n    dims = tl"), "deals with the grid itself"),
    ],
)
def test_programs_that_keep_their_order(change: tuple[str, str], reason: str) -> None:
    text = PREFIX.replace(*change)
    assert text != PREFIX
    with pytest.raises(NotApplicable) as refused:
        turned(text)
    assert reason in str(refused.value)
