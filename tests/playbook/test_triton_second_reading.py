"""The last pass over a row from its end: where blocks are independent, and where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.launches import ObservedLaunch
from agent.playbook.triton.second_reading import SecondReading
from agent.syntax import Source

BACKWARDS = {"last_pass": "backwards", "policies": "as written"}
ENTRY = SecondReading()
SCALED = ENTRY.before
LAST = "        tl.store(y_ptr + row * stride + cols, x / scale, mask=cols < n_cols)\n"
SECOND = "        x = tl.load(x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0)\n" + LAST
SHAPES = [[[3, 1024]], [[5, 77]], [[1, 1]], [[4, 2500]], [[2, 2048]]]


def subject(text: str, *launches: ObservedLaunch) -> Subject:
    return Subject(Source(text), KernelClass.MEMORY, Hardware(), launches=launches)


def backwards(text: str) -> str:
    return ENTRY.apply(subject(text), BACKWARDS)


def check(text: str, new: str, folder: Path) -> None:
    """The same numbers, to the last digit."""
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    assert new != text
    assert disagreement("normalize", SHAPES, text, [new], rounding=False, folder=folder) == ""


def changed(old: str, new: str, text: str = SCALED) -> str:
    assert old in text
    return text.replace(old, new)


IN_PLACE = changed("y = torch.empty_like(x)", "y = x", changed("tl.store(y_ptr", "tl.store(x_ptr"))
BY_TWO = changed("y = torch.empty_like(x)", "y = x")
BRANCHES = changed(
    LAST,
    """\
        if HALF:
            factor = 0.5
        y = x / scale
        if HALF:
            y = y * factor
        else:
            y = y + 0.0
        tl.store(y_ptr + row * stride + cols, y, mask=cols < n_cols)
""",
    changed("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, HALF: tl.constexpr = True)"),
)
POINTERS = changed(
    SECOND,
    """\
        from_x = x_ptr + row * stride + cols
        x = tl.load(from_x, mask=cols < n_cols, other=0.0).to(tl.float32)
        y_row = y_ptr + row * stride
        tl.store(y_row + cols, x / scale, mask=cols < n_cols)
""",
)
NUMBERED = changed(
    "cols = start + ", "cols = start * BLOCK + ", changed("range(0, n_cols, BLOCK)",
                                                        "range(tl.cdiv(n_cols, BLOCK))")
)  # fmt: skip
HELPED = changed(
    "x / scale",
    "divided(x, scale)",
    changed(
        "@triton.jit\ndef normalize_kernel",
        "@triton.jit\ndef divided(x, by):\n    return x / by\n\n\n"
        "@triton.jit\ndef normalize_kernel",
    ),
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(SCALED, id="out of place"),
        pytest.param(IN_PLACE, id="in place"),
        pytest.param(BRANCHES, id="branches"),
        pytest.param(POINTERS, id="pointers"),
        pytest.param(NUMBERED, id="numbered blocks"),
        pytest.param(HELPED, id="a helper"),
    ],
)
def test_blocks_that_know_nothing_of_each_other_are_walked_backwards(
    text: str, tmp_path: Path
) -> None:
    new = backwards(text)
    assert new.count("from_end") == 2
    check(text, new, tmp_path)
    with pytest.raises(NotApplicable):
        backwards(new)


def test_what_was_just_written_is_not_read_at_once() -> None:
    """By other threads perhaps, where the two passes lay their blocks out differently."""
    line = "        largest = tl.maximum(largest, tl.abs(x))\n"
    store = "        tl.store(x_ptr + row * stride + cols, 2 * x, mask=cols < n_cols)\n"
    with pytest.raises(NotApplicable, match="just written"):
        backwards(changed(line, line + store))


def test_what_ends_the_kernel_is_not_on_the_way(tmp_path: Path) -> None:
    """As in a cross entropy, which has nothing to do for a target that is left out."""
    empty = "    if row > 1000:\n        tl.store(x_ptr + row * stride, 0.0)\n        return\n"
    text = changed("    largest = tl.zeros", f"{empty}    largest = tl.zeros", IN_PLACE)
    check(text, backwards(text), tmp_path)
    with pytest.raises(NotApplicable, match="just written"):
        backwards(text.replace("        return\n", ""))


def test_a_name_that_is_taken_is_left(tmp_path: Path) -> None:
    text = changed("scale = ", "from_end = 1.0\n    scale = from_end * ")
    new = backwards(text)
    assert "from_end_2 = (n_cols - 1) // BLOCK * BLOCK - start" in new
    check(text, new, tmp_path)


def test_every_variant_keeps_the_numbers(tmp_path: Path) -> None:
    variants = ENTRY.variants(subject(IN_PLACE))
    assert len(variants) == len(ENTRY.sweep)
    for number, params in enumerate(variants):
        folder = tmp_path / str(number)
        folder.mkdir()
        check(IN_PLACE, ENTRY.apply(subject(IN_PLACE), params), folder)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (changed(LAST, LAST + "        scale += tl.max(x, axis=0)\n"), "from round to round"),
        (changed(LAST, LAST + "    tl.store(y_ptr, tl.sum(x, axis=0))\n"), "the last round leaves"),
        (changed(LAST, LAST + "        tl.store(y_ptr + row, start)\n"), "is not shown"),
        (changed(LAST, LAST.replace("+ cols", "+ cols // 2")), "is not shown"),
        (changed(LAST, LAST.replace("+ cols", "+ start")), "is not shown"),
        (changed("stride + cols, x / ", "stride + cols + 1, x / ", IN_PLACE), "may read"),
        (BY_TWO, "may read"),
        (
            changed(
                "+ cols, x / scale",
                "+ cols, x / scale + tl.load(p + cols, mask=cols < n_cols)",
                changed(
                    "    scale = ", "    p = x_ptr\n    p = y_ptr + row * stride + 1\n    scale = "
                ),
            ),
            "may read",
        ),
        (BY_TWO.replace("(x, y, ", "(x[1:], y, "), "may read"),
        (changed("+ cols, x /", "+ cols + tl.arange(0, BLOCK), x /"), "is not shown"),
        (changed("+ cols, x /", "+ cols * stride, x /"), "is not shown"),
        (
            changed("        tl.store(y", "        y_ptr = x_ptr + 1\n        tl.store(y"),
            "not known",
        ),
        (
            changed(LAST, LAST + "        tl.store(y_ptr + row * stride + cols + BLOCK, x)\n"),
            "may write",
        ),
        (changed(LAST, LAST + "        tl.atomic_add(y_ptr, 1.0)\n"), "may do more"),
        (changed(LAST, LAST + "        tl.debug_barrier()\n"), "may do more"),
        (changed(LAST, LAST + "        n_cols = n_cols - 1\n"), "how far it goes"),
        (
            changed(
                LAST, "        for _ in range(2):\n    " + LAST.replace("x / scale", "x / scale")
            ),
            "holds another",
        ),
        (
            changed(
                LAST,
                "        if row > 1:\n            half = x / 2\n"
                + LAST.replace("x / scale", "half / scale"),
            ),
            "from round to round",
        ),
        (
            changed(
                LAST,
                "        if row > 1:\n            if row > 2:\n                half = x / 2\n"
                "        if row > 2:\n    " + LAST.replace("x / scale", "half / scale"),
            ),
            "from round to round",
        ),
    ],
)
def test_blocks_that_depend_on_their_order_stay(text: str, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        backwards(text)
    assert "evict_last" in ENTRY.apply(subject(text), ENTRY.sweep[1])  # hints change nothing


@pytest.mark.parametrize(
    "loop",
    [
        "in tl.range(0, n_cols, step=BLOCK)",
        "in tl.range(0, arg2=n_cols)",
        "in range(0, tl.atomic_add(y_ptr, 8), BLOCK)",
        "in range(0, tl.load(x_ptr), BLOCK)",
    ],
)
def test_how_far_a_loop_goes_is_to_be_seen(loop: str) -> None:
    """And to be the same each time that it is asked for."""
    with pytest.raises(NotApplicable):
        backwards(changed("in range(0, n_cols, BLOCK)", loop))


def test_a_loop_whose_number_has_the_name_of_its_end_stays() -> None:
    loop = "for start in range(0, n_cols, BLOCK):\n        cols = start"
    with pytest.raises(NotApplicable, match="how far it goes"):
        backwards(changed(loop, loop.replace("start", "n_cols")))


def test_another_condition_that_is_spelled_like_the_opposite_says_nothing() -> None:
    text = changed("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, A: tl.constexpr, B: tl.constexpr)")
    line = LAST.replace("x / scale", "half / scale")
    text = text.replace(
        LAST,
        "        if A or B:\n            other = 1.0\n        else:\n            half = x / 2\n"
        f"        if not A or B:\n    {line}        half = x\n",
    )
    with pytest.raises(NotApplicable, match="from round to round"):
        backwards(text)


def test_what_all_programs_read_is_no_row() -> None:
    weights = changed("x_ptr + row * stride + cols", "x_ptr + cols")
    with pytest.raises(NotApplicable, match="no two passes"):
        backwards(weights)


def test_a_row_that_its_block_holds_is_not_walked_through() -> None:
    def seen(n_cols: int) -> ObservedLaunch:
        return ObservedLaunch(
            "normalize_kernel", "t.py::t", (1,), {"n_cols": n_cols, "BLOCK": 1024}, {}, {}
        )

    with pytest.raises(NotApplicable, match="held the row in every launch"):
        ENTRY.variants(subject(SCALED, seen(1024), seen(77)))
    assert ENTRY.variants(subject(SCALED, seen(1024), seen(1025)))
