"""What only the text before an edit needed goes with it; what its author left unused stays."""

from __future__ import annotations

import textwrap

import pytest

from agent.rewriting.common.dead_names import without_dead_names

BEFORE = """
import triton

def launch(x, rows):
    spare = 1
    # how much a program takes
    block = min(triton.next_power_of_2(x.shape[1]), 65536)
    warps = 8 if block > 2048 else 4  # enough of them
    kernel[(rows,)](x, BLOCK=block, num_warps=warps)
"""


def left_of(after: str, before: str = BEFORE) -> str:
    return without_dead_names(textwrap.dedent(before), textwrap.dedent(after))


def test_what_only_the_old_text_read_is_dropped_and_what_only_that_read() -> None:
    """A comment above it may speak of what follows, too; an unused name of the author's stays."""
    after = BEFORE.replace("BLOCK=block, num_warps=warps", "BLOCK=1024, num_warps=4")
    assert left_of(after) == textwrap.dedent("""
        import triton

        def launch(x, rows):
            spare = 1
            # how much a program takes
            kernel[(rows,)](x, BLOCK=1024, num_warps=4)
    """)


def test_paragraphs_stay_apart() -> None:
    """The blank line above what is dropped stays; where two would meet, one does."""
    before = """
def launch(x, rows):
    spare = 1

    # how much a program takes
    block = min(x.shape[1], 65536)

    warps = 8 if block > 2048 else 4

    kernel[(rows,)](x, BLOCK=block, num_warps=warps)
"""
    after = before.replace("BLOCK=block, num_warps=warps", "BLOCK=1024, num_warps=4")
    assert (
        left_of(after, before)
        == """
def launch(x, rows):
    spare = 1

    # how much a program takes

    kernel[(rows,)](x, BLOCK=1024, num_warps=4)
"""
    )


def test_a_keyword_of_that_name_reads_nothing() -> None:
    before = BEFORE.replace("BLOCK=block", "block=block")
    after = before.replace("block=block", "block=1024").replace("num_warps=warps", "num_warps=4")
    assert "min(" not in left_of(after, before)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("min(triton.next_power_of_2(x.shape[1]), 65536)", "chosen(x.shape[1])"),
        ("min(triton.next_power_of_2(x.shape[1]), 65536)", "(seen := x.shape[1])"),
        ("spare = 1", "global block, warps"),
        ("spare = 1", "block, warps = 0, 0"),
        ("def launch(x, rows)", "def launch(x, rows, block=0)"),
        ("kernel[(rows,)]", "print(f'{block}'); kernel[(rows,)]"),
    ],
)
def test_what_may_do_more_stays(old: str, new: str) -> None:
    """A call that nobody knows, a name that others see, a text that shows it."""
    before = BEFORE.replace(old, new)
    after = before.replace("BLOCK=block, num_warps=warps", "BLOCK=1024, num_warps=warps")
    after = after.replace("8 if block > 2048 else 4", "4")
    assert left_of(after, before) == textwrap.dedent(after)


def test_a_block_holds_something() -> None:
    before = "def f(n):\n    if n:\n        size = n\n    else:\n        size = 1\n    g(size)\n"
    after = before.replace("g(size)", "g(2)")
    assert without_dead_names(before, after) == after


@pytest.mark.parametrize(
    ("given", "is_dropped"),
    [
        ("BM, BN = 32, 64", True),
        ("BM, BN = 32, rows.size()", True),
        ("BM, BN = sizes(rows)", False),
        ("BM, BN = 32, ask(rows)", False),
        ("BM, BN = 32, *rows", False),
        ("BM, spare = 32, 64\n    BN = 64", False),
    ],
)
def test_names_that_one_statement_gives_values_go_together(given: str, *, is_dropped: bool) -> None:
    before = f"""
def launch(x, rows):
    {given}
    kernel[(rows,)](x, BM, BN)
"""
    after = before.replace("(x, BM, BN)", "(x)")
    kept = after.replace("    BN = 64\n", "")
    expected = kept.replace(f"    {given}\n", "") if is_dropped else kept
    assert without_dead_names(before, after) == expected


def test_a_string_reads_no_name() -> None:
    before = "def launch(x):\n    BM = 32\n    kernel[(1,)](x, BM)\n"
    after = before.replace("(x, BM)", '(x, given["BM"])').replace("(1,)", 'lambda m: m["BM"]')
    assert without_dead_names(before, after) == after.replace("    BM = 32\n", "")
