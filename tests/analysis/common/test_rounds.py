"""Loops over blocks whose rounds hand on what only that cut of the axis gives."""

from __future__ import annotations

import pytest

from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.dialect import Dialect
from agent.analysis.common.needed_sizes import needed_size
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

CUTILE_KERNEL = """\
import cuda.tile as ct


def peak(tile):
    return ct.max(ct.abs(tile), axis=1, keepdims=True)


@ct.kernel
def kernel(x, y, decay: float, T: ct.Constant[int]):
    row = ct.bid(0)
    s = ct.zeros((1, 1), dtype=ct.float32)
    acc = ct.zeros((1, T), dtype=ct.float32)
    for j in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        t = ct.load(x, (row, j), (1, T), padding_mode=ct.PaddingMode.ZERO)
"""
TRITON_KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, total_ptr, n, decay, T: tl.constexpr):
    s = 0.0
    acc = tl.zeros((T,), dtype=tl.float32)
    for start in range(0, n, T):
        at = start + tl.arange(0, T)
        t = tl.load(x_ptr + at, mask=at < n, other=0.0)
"""
OWN = "stores what it reduces in that round"
NOT_ALL = "keeps of what it reduces what the blocks before say"
BEHIND = "return"
"""The line from which on a kernel is behind its loop."""


def reason(dialect: Dialect, text: str, lines: tuple[str, ...]) -> str | None:
    inside = lines.index(BEHIND) if BEHIND in lines else len(lines)
    body = [f"        {line}\n" for line in lines[:inside]]
    body += [f"    {line}\n" for line in lines[inside + 1 :]]
    source = Source(text + "".join(body))
    (kernel,) = (each for each in dialect.kernels(source) if each.name == "kernel")
    return needed_size(Flow(dialect, source, kernel, "T"))


SUM = "ct.sum(t, axis=1, keepdims=True)"
SCANNED = "ct.store(y, (row, j), s + ct.cumsum(t, axis=1))"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (("ct.store(y, (row, j), ct.cumsum(t, axis=1))",), OWN),
        (("scale = peak(t)", "q = ct.floor(t / scale)", "ct.store(y, (row, j), q * scale)"), OWN),
        (("ct.store(y, (row, j), s + t)", f"s += {SUM}"), OWN),
        ((f"s = s + {SUM}", SCANNED), OWN),
        (("acc += t", "ct.store(y, (row, j), acc)"), OWN),
        ((f"ct.atomic_add(y, (row, 0), {SUM} / {SUM})",), OWN),
        ((f"ct.atomic_max(y, (row, 0), {SUM})",), OWN),
        ((f"s = s * decay + {SUM}", BEHIND, "ct.store(y, (row, 0), s)"), NOT_ALL),
        ((f"s = {SUM} - s", BEHIND, "ct.store(y, (row, 0), s)"), NOT_ALL),
        (("acc *= decay", "acc += t", BEHIND, "ct.store(y, (row, 0), ct.sum(acc))"), NOT_ALL),
        ((f"last = {SUM}", BEHIND, "ct.store(y, (row, 0), last)"), NOT_ALL),
    ],
)
def test_what_a_round_gives_by_itself_goes_with_its_size(lines: tuple[str, ...], why: str) -> None:
    assert why in str(reason(CUTILE, CUTILE_KERNEL, lines))


@pytest.mark.parametrize(
    "lines",
    [
        (f"s += {SUM}", BEHIND, "ct.store(y, (row, 0), s)"),
        (SCANNED, f"s = s + {SUM}"),
        ("acc = acc + t", BEHIND, "ct.store(y, (row, 0), ct.sum(acc, axis=1, keepdims=True))"),
        ("part = ct.sum(t, axis=1, keepdims=True)", "part = part * decay", "s += part", BEHIND,
         "ct.store(y, (row, 0), s)"),
        (f"ct.atomic_add(y, (row, 0), {SUM}.astype(y.dtype))",),
        ("ct.store(y, (row, j), t * decay)",),
        ("new = ct.maximum(acc, ct.max(t, axis=1, keepdims=True))", "p = ct.exp(t - new)",
         "s = s * ct.exp(acc - new) + ct.sum(p, axis=1, keepdims=True)", "acc = new", BEHIND,
         "ct.store(y, (row, 0), s)"),
    ],
)  # fmt: skip
def test_what_is_put_together_over_all_rounds_does_not(lines: tuple[str, ...]) -> None:
    assert reason(CUTILE, CUTILE_KERNEL, lines) is None


def test_a_prefix_is_of_the_same_tile_and_of_the_rounds_before() -> None:
    for step in ("s = s + 2 * ct.sum(t)", "s = ct.sum(t)", "s = s + ct.sum(t * t)"):
        assert OWN in str(reason(CUTILE, CUTILE_KERNEL, (SCANNED, step)))


def test_another_axis_is_reduced_in_any_round() -> None:
    text = CUTILE_KERNEL.replace("(1, T)", "(T, 8)").replace("axis=1, shape", "axis=0, shape")
    text = text.replace("(row, j)", "(j, row)")
    for axis, refused in ((1, False), (0, True)):
        lines = f"s = ct.sum(t, axis={axis}, keepdims=True)", "ct.store(y, (j, 0), t / s)"
        assert (reason(CUTILE, text, lines) is not None) is refused


def test_a_block_beside_the_loop_has_one_size() -> None:
    own = "t = ct.load(x, (row, 0), (1, T), padding_mode=ct.PaddingMode.ZERO)"
    stored = "ct.store(y, (row, 0), t / ct.max(t))"
    beside = reason(CUTILE, CUTILE_KERNEL, ("acc += t", BEHIND, own, stored))
    assert "reduces along it, block by block" in str(beside)
    instead = CUTILE_KERNEL.replace(
        "    for j",
        f"    if x.shape[1] <= T:\n        {own}\n        {stored}\n        return\n    for j",
    )
    lines = "acc += t", BEHIND, "ct.store(y, (row, 0), ct.sum(acc))"
    assert reason(CUTILE, instead, lines) is None


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (("tl.store(y_ptr + at, tl.cumsum(t, 0), mask=at < n)",), OWN),
        (("tl.store(y_ptr + at, t / tl.max(t, 0), mask=at < n)",), OWN),
        (("tl.store(y_ptr + at, s + tl.cumsum(t, 0), mask=at < n)", "s += tl.sum(t, 0)"), None),
        (("tl.atomic_add(total_ptr, tl.sum(t, 0))",), None),
        (("s = s * decay + tl.sum(t, 0)", BEHIND, "tl.store(total_ptr, s)"), NOT_ALL),
        (("s += tl.sum(t, 0)", BEHIND, "tl.store(total_ptr, s)"), None),
        (("acc += t", BEHIND, "tl.store(total_ptr, tl.sum(acc, 0))"), None),
    ],
)
def test_the_same_holds_in_triton(lines: tuple[str, ...], why: str | None) -> None:
    found = reason(TRITON, TRITON_KERNEL, lines)
    assert found is None if why is None else why in str(found)
