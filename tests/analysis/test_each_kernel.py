"""A refusal says why each kernel refuses."""

from __future__ import annotations

import pytest

from agent.analysis.common.each_kernel import all_refuse, of_constants, of_each
from agent.analysis.common.subject import NotApplicable


def halved(number: int) -> dict[int, int]:
    if number % 2:
        raise NotApplicable(f"{number} is odd")
    return {number: number // 2} if number else {}


def refusal(*asked: int) -> str:
    with pytest.raises(NotApplicable) as refused:
        of_each(asked, halved, "nothing is asked")
    return str(refused.value)


def test_what_some_refuse_is_found_in_the_others() -> None:
    assert of_each((1, 4, 0, 6), halved, "nothing is asked") == [{4: 2}, {6: 3}]


def test_every_different_reason_is_given_once() -> None:
    assert refusal(1, 3, 1, 5) == "1 is odd; 3 is odd; 5 is odd"


def test_many_reasons_are_cut() -> None:
    assert refusal(1, 3, 5, 7, 9, 11).endswith("; 7 is odd; and 2 more reasons")


def test_what_has_nothing_of_what_is_looked_for_is_told_last() -> None:
    reasons = ["looks for loops, and a has none", "line 7 of b has no mask", "looks for x"]
    told = "line 7 of b has no mask; looks for loops, and a has none; looks for x"
    assert str(all_refuse(reasons, "")) == told


def test_where_there_is_nothing_to_ask() -> None:
    assert refusal() == refusal(0) == "nothing is asked"


def test_constants_that_share_a_reason_are_counted() -> None:
    assert of_constants("k", {"A": "no"}) == ["A of k: no"]
    assert of_constants("k", {"A": "no", "B": "odd", "C": "no"}) == [
        "A and C of k: no",
        "B of k: odd",
    ]
    assert of_constants("k", dict.fromkeys("ABCD", "no")) == ["A, B and 2 more of k: no"]
