"""Blocks longer than their axis: lint against what cuTile gives, computed on the CPU.

The compiler takes every one of these kernels; what is out of bounds is as cuda-tile documents it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from agent.lint import lint
from agent.syntax import Source

torch = pytest.importorskip("torch")
ct = pytest.importorskip("cuda.tile")

from tests.lint.compiler import HEAD  # noqa: E402
from tile_agent_pytest.tile_cpu import TileCpu  # noqa: E402

ROWS, LENGTH, BLOCK = 2, 5, 8
PADDING = {"CT203", "CT204", "CT206"}
KERNEL = """
@ct.kernel
def k(x, flat, y, n, ones: ct.Constant[int], size: ct.Constant[int]):
    i = ct.bid(0)
    o = ct.arange(size, dtype=ct.int32)
    whole = ct.full((size,), 1.0, ct.float32)
    flat_row = ct.gather(flat, i * n + o)
    row = ct.gather(x, (i, o))
    masked = ct.gather(flat, i * n + o, mask=o < n)
    zeros = ct.load(x, (i, 0), (1, size), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (i,), BODY)
"""
SUMS = [
    ("ct.sum(flat_row)", True),
    ("ct.sum(flat_row.astype(ct.float64)).astype(ct.float32)", True),
    ("ct.sum(ct.gather(flat, i * flat.shape[0] // 2 + o))", None),
    ("ct.sum(ct.gather(flat, o + n * i))", True),
    ("ct.sum(row)", False),
    ("ct.sum(masked)", False),
    ("ct.sum(ct.where(o < n, flat_row, 0.0))", False),
    ("ct.sum(zeros)", False),
]
"""Of each row; None where lint cannot know and is silent."""
MAXIMA = [
    ("ct.max(flat_row)", True),
    ("ct.max(row)", True),
    ("ct.max(masked)", True),
    ("ct.max(ct.gather(x, (i, o), check_bounds=True))", True),
    ("ct.max(ct.gather(x, (i, o), padding_value=-math.inf))", False),
    ("ct.max(ct.gather(flat, i * n + o, mask=o < n, padding_value=-math.inf))", False),
    ("ct.max(ct.where(o < n, row, -math.inf))", False),
]
"""Of rows of negative numbers: zero is none of them."""
MEANS = [
    ("ct.sum(row) / size", True),
    ("ct.sum(row) / whole.shape[0]", True),
    ("ct.sum(row) * (1.0 / size)", True),
    ("ct.truediv(ct.sum(row), float(size))", True),
    ("ct.sum(zeros) / size", True),
    ("ct.sum(row) / n", False),
    ("ct.sum(row) * (1.0 / n)", False),
    ("ct.sum(row) / x.shape[1]", False),
    ("ct.truediv(ct.sum(masked), n)", False),
]


def computed(body: str, folder: Path) -> object:
    text = (HEAD + KERNEL).replace("BODY", body)
    path = folder / "kernel_under_test.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("kernel_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y = rows(), torch.zeros(ROWS)
    with TileCpu():
        arguments = (x, x.view(-1), y, LENGTH, 1, BLOCK)
        ct.launch(torch.cuda.current_stream(), (ROWS,), module.k, arguments)
    return y


def rows() -> object:
    return -torch.arange(1.0, 1 + ROWS * LENGTH).reshape(ROWS, LENGTH)


def told(body: str) -> bool:
    text = (HEAD + KERNEL).replace("BODY", body)
    return bool(PADDING & {finding.code for finding in lint(Source(text)).findings})


@pytest.mark.parametrize(
    ("body", "found", "wanted"),
    [
        *((body, found, "sum") for body, found in SUMS),
        *((body, found, "amax") for body, found in MAXIMA),
        *((body, found, "mean") for body, found in MEANS),
    ],
)
def test_what_is_told_is_wrong_and_the_rest_right(
    body: str, found: bool | None, wanted: str, tmp_path: Path
) -> None:
    right = torch.equal(computed(body, tmp_path), getattr(torch, wanted)(rows(), dim=1))
    assert right is (found is False)
    assert told(body) is bool(found)


ROW = """
@ct.kernel
def k(x, y, n, size: ct.Constant[int]):
    o = ct.arange(SIZE, dtype=ct.int32)
    t = ct.gather(x, INDEX)
    ct.store(y, (0,), ct.sum(t))

def run(x, y, n, size):
    ct.launch(torch.cuda.current_stream(), (1,), k, (x, y, LAUNCHED))
"""


@pytest.mark.parametrize(
    ("size", "index", "launched", "found"),
    [
        ("size", "ct.bid(0) * n + o", "n, size", True),
        ("size", "ct.bid(0) * n + (ct.bid(1) * size + o)", "n, size", True),
        ("size", "ct.bid(0) * n + o", "n, n", False),  # the block is the row
        ("size", "ct.bid(0) * size + o", "n, size", False),  # the whole array, block by block
        ("size", "ct.bid(0) * n + ct.bid(1) % n + o", "n, size", False),
        ("size", "n + o", "n, size", False),
        ("1", "ct.bid(0) * n + o", "n, size", False),
        ("size", "(ct.bid(0) * n, o)", "n, size", False),  # each has bounds of its own
    ],
)
def test_where_rows_may_end(size: str, index: str, launched: str, found: bool) -> None:
    text = ROW.replace("SIZE", size).replace("INDEX", index).replace("LAUNCHED", launched)
    assert ("CT206" in {f.code for f in lint(Source(HEAD + text)).findings}) is found


SPLITS = """
def weighted(parts, weights):
    return ct.sum(parts * ct.reshape(weights, (SIZE, 1)), axis=0)

@ct.kernel
def k(x, y, size: ct.Constant[int]):
    o = ct.arange(4, dtype=ct.int32)
    weights = ct.gather(x, (ct.bid(0), o))
    parts = ct.load(y, (ct.bid(0), 0, 0), shape=(1, SIZE, 8)PADDING)
    parts = ct.reshape(parts, (SIZE, 8))
    ct.store(x, (ct.bid(0), 0), BODY)
"""


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("weighted(parts, weights)", True),
        ("weighted(weights=weights, parts=parts)", True),
        ("ct.sum(parts, axis=0)", True),
        ("ct.sum(2.0 * parts.astype(ct.float32), axis=0)", True),
        ("ct.sum(ct.mul(parts, -parts), axis=0)", True),
        ("ct.sum(ct.maximum(ct.abs(parts), 1.0) + 1.0, axis=0)", True),
        ("ct.sum(ct.where(o[:, None] < 3, parts, 0.0), axis=0)", False),
        ("weighted(ct.where(o[:, None] < 3, parts, 0.0), weights)", False),
    ],
)
@pytest.mark.parametrize("padding", ["", ", padding_mode=ct.PaddingMode.ZERO"])
def test_what_a_sum_is_given_by_a_kernel_that_pads_with_anything(
    body: str, found: bool, padding: str
) -> None:
    """As in the sum over splits of a decoding: four parts of three, each times its weight."""
    text = SPLITS.replace("BODY", body).replace("PADDING", padding).replace("SIZE", "4")
    codes = {f.code for f in lint(Source(HEAD + text)).findings}
    assert ("CT204" in codes) is (found and not padding)
