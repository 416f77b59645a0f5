"""known-divisors: what the compiler makes of it, that results stay, and which numbers are told."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.subject import NotApplicable, Subject
from agent.launches import ObservedLaunch
from agent.proposers.playbook import edited as laid_out
from tests.support.rewriting import subject

ENTRY = playbook.get("known-divisors")
SHAPES = [[[3, 1000]], [[5, 77]], [[1, 1]], [[4, 72]], [[2, 64]]]


def seen(text: str, *launches: dict[str, int]) -> Subject:
    """A file as its tests were seen to launch it."""
    observed = tuple(
        ObservedLaunch("double_kernel", "test", (1,), given, {}, {}) for given in launches
    )
    return replace(subject(text, sm=90), launches=observed)


def rows(*columns: int) -> Subject:
    return seen(ENTRY.before, *({"stride": n, "n_cols": n, "BLOCK": 1024} for n in columns))


def changed(given: Subject) -> str:
    return laid_out(ENTRY, given, {})


def refusal(given: Subject) -> str:
    with pytest.raises(NotApplicable) as refused:
        ENTRY.variants(given)
    return str(refused.value)


@pytest.mark.parametrize(("columns", "divisor"), [((1000, 72), 8), ((1000, 36), 4), ((50258,), 2)])
def test_the_divisor_is_what_divides_every_launch(columns: tuple[int, ...], divisor: int) -> None:
    text = changed(rows(*columns))
    assert f"        stride = stride // {divisor} * {divisor}\n" in text
    assert f'args["n_cols"] % {divisor} == 0' in text


@pytest.mark.parametrize("columns", [(1024,), (1000, 77), (1,), (4096, 1), (32, 64)])
def test_what_triton_knows_or_nothing_divides_is_left(columns: tuple[int, ...]) -> None:
    assert "no launch of double_kernel was seen with one" in refusal(rows(*columns))


def test_each_number_has_its_own() -> None:
    text = changed(seen(ENTRY.before, {"stride": 1000, "n_cols": 998}))
    assert "stride = stride // 8 * 8" in text and "n_cols = n_cols // 2 * 2" in text
    text = changed(seen(ENTRY.before, {"stride": 1024, "n_cols": 1000}))
    assert "n_cols = n_cols // 8 * 8" in text and "stride = stride" not in text


def test_nobody_saw_a_launch() -> None:
    assert "nobody saw which strides" in refusal(subject(ENTRY.before, sm=90))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    row = tl", "    n_cols = tl.minimum(n_cols, BLOCK)\n    stride += 0\n    row = tl"),
        ("stride, n_cols, BLOCK: tl.constexpr", "BLOCK: tl.constexpr, stride=1, n_cols=1"),
        ("x.stride(0), n_cols,", "None if n_rows < 2 else n_cols, None,"),
        ("mask=cols < n_cols)", "mask=cols < 9)"),
    ],
)
def test_numbers_that_are_others_on_the_way_or_place_nothing_are_left(old: str, new: str) -> None:
    text = ENTRY.before.replace(old, new)
    if "mask" in old:
        text = text.replace("row * stride", "row * BLOCK")
    assert text != ENTRY.before
    assert "was seen with one" in refusal(seen(text, {"stride": 1000, "n_cols": 1000}))


def test_what_a_helper_is_given_may_place_elements() -> None:
    text = ENTRY.before.replace(
        "@triton.jit",
        "@triton.jit\ndef place(x_ptr, row, stride, cols):\n"
        "    return x_ptr + row * stride + cols\n\n\n@triton.jit",
        1,
    ).replace("x_ptr + row * stride + cols, mask", "place(x_ptr, row, stride, cols), mask")
    assert "stride = stride // 8 * 8" in changed(seen(text, {"stride": 1000, "n_cols": 77}))


def test_results_are_the_same_for_any_rows(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from tests.support.triton_numbers import disagreement

    new = changed(rows(1000))
    assert (
        disagreement("double", SHAPES, ENTRY.before, [new], rounding=False, folder=tmp_path) == ""
    )


@pytest.mark.usefixtures("compiler")
def test_rows_are_loaded_sixteen_bytes_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from tests.support.triton_compiler import compiled

    types = ["*fp16", "*fp16", "i32", "i32", 1024]
    for text, more, loads in ((ENTRY.before, [], 8), (changed(rows(1000)), [True], 1)):
        path = tmp_path / f"kernel_{loads}.py"
        path.write_text(text)
        ptx = compiled(path, "double_kernel", [*types, *more], 90, {}).asm["ptx"]
        assert len(re.findall(r"ld\.global", ptx)) == loads
