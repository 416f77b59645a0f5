"""Which steps still show in the end of a run: texts as entries of the playbook change them."""

from __future__ import annotations

import pytest

from agent.finalizing.contribution import replaced, without

ORIGIN = """\
@ct.kernel
def scale(x, y, n):
    tile = ct.load(x)
    y = tile / n
    ct.store(y)
"""
FOUR = ORIGIN.replace("@ct.kernel", "@ct.kernel(occupancy=4)")
EIGHT = ORIGIN.replace("@ct.kernel", "@ct.kernel(occupancy=8)")
BOTH = ORIGIN.replace("@ct.kernel", "@ct.kernel(occupancy=4, num_ctas=2)")
HOISTED = FOUR.replace("y = tile / n", "y = tile * (1 / n)")
WITHOUT_STORE = ORIGIN.replace("    ct.store(y)\n", "")


def merge(base: str, ours: str, theirs: str) -> str | None:
    """By lines that all three texts have at the same place: enough here."""
    rows = zip(base.splitlines(), ours.splitlines(), theirs.splitlines(), strict=True)
    found = []
    for old, mine, other in rows:
        if old not in (mine, other) and mine != other:
            return None
        found.append(other if mine == old else mine)
    return "".join(f"{line}\n" for line in found)


@pytest.mark.parametrize(
    ("texts", "names", "found"),
    [
        pytest.param((ORIGIN, FOUR), "a", {}, id="the only step"),
        pytest.param((ORIGIN, FOUR, ORIGIN), "ab", {0: 1}, id="taken back"),
        pytest.param((ORIGIN, FOUR, EIGHT), "aa", {0: 1}, id="another value of the same"),
        pytest.param((ORIGIN, FOUR, EIGHT), "ab", {}, id="words of it are left"),
        pytest.param((ORIGIN, FOUR, BOTH), "ab", {}, id="the same line for another reason"),
        pytest.param((ORIGIN, FOUR, BOTH), "aa", {}, id="the same entry adds to it"),
        pytest.param((ORIGIN, FOUR, HOISTED), "ab", {}, id="another line"),
        pytest.param(
            (ORIGIN, FOUR, HOISTED, HOISTED.replace("=4", "=8")), "aba", {0: 2}, id="later"
        ),
        pytest.param((ORIGIN, WITHOUT_STORE, ORIGIN), "ab", {}, id="what it took out lasts"),
    ],
)
def test_a_step_is_replaced_where_nothing_of_it_is_left(
    texts: tuple[str, ...], names: str, found: dict[int, int]
) -> None:
    assert replaced(texts, names) == found


def test_a_step_is_left_out_of_those_between_and_the_end_stays() -> None:
    end = HOISTED.replace("=4", "=8")
    hoisted_alone = ORIGIN.replace("y = tile / n", "y = tile * (1 / n)")
    texts = without((ORIGIN, FOUR, HOISTED, end), 0, 2, merge)
    assert texts == (ORIGIN, ORIGIN, hoisted_alone, end)


def test_a_step_is_left_out_of_all() -> None:
    hoisted_alone = ORIGIN.replace("y = tile / n", "y = tile * (1 / n)")
    assert without((ORIGIN, FOUR, HOISTED), 0, None, merge) == (ORIGIN, ORIGIN, hoisted_alone)
    assert without((ORIGIN, FOUR, EIGHT), 0, None, merge) is None  # the next one builds on it
    assert without((ORIGIN, FOUR), 0, None, merge) == (ORIGIN, ORIGIN)
