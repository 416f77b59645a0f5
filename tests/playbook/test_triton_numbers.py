"""Every Triton entry keeps the numbers of its example, run in Triton's interpreter.

bfloat16 is left out: the interpreter multiplies the bit patterns of its tiles. Whatever an entry
tunes, each of its configs is run and compared.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.playbook import for_backend
from agent.playbook.base import Optimization
from agent.syntax import Source
from tests.support.triton_numbers import disagreement

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

ROWS: list[list[list[int]]] = [[[3, 1024]], [[5, 77]], [[1, 1]], [[4, 2500]]]
"""Shapes of the tensors of one call, several calls."""
PRODUCTS: list[list[list[int]]] = [
    [[64, 64], [64, 64]],
    [[70, 36], [36, 132]],
    [[70, 33], [33, 130]],
    [[1, 7], [7, 3]],
]
SHAPES: dict[str, tuple[str, list[list[list[int]]]]] = {
    "warps-and-stages": ("softmax", ROWS),
    "block-size": ("gelu", ROWS),
    "blocks-and-warps": ("swish", ROWS),
    "causal-split": ("prefix", [[[n, 16], [n, 16]] for n in (1, 32, 77, 128)]),
    "loop-stages": ("row_sum", ROWS),
    "eviction-policy": ("rms_norm", [[*shapes, shapes[0][1:]] for shapes in ROWS]),
    "reciprocal-square-root": ("layer_norm", ROWS),
    "warps-by-row": ("log_softmax", ROWS),
    "rows-per-program": (
        "resize",
        [[[n, k], [n]] for n, k in ((3, 1024), (5, 77), (1, 1), (130, 20))],
    ),
    "row-in-registers": ("l2_normalize", ROWS),
    "add-autotune": ("add", [[shapes[0], shapes[0]] for shapes in ROWS]),
    "widen-configs": ("relu", ROWS),
    "grouped-programs": ("matmul", PRODUCTS),
    "longest-first": ("prefix_sum", [[[1]], [[256]], [[1000]]]),
    "even-blocks": ("scale", ROWS),
    "folded-exp2": ("scaled_softmax", ROWS),
    "host-descriptors": ("matmul", PRODUCTS),
    "tile-descriptors": ("matmul", PRODUCTS),
    "warp-specialized-loops": ("matmul", PRODUCTS),
    "persistent-programs": ("center", ROWS),
    "aligned-offsets": ("mix", [*ROWS[:2], [[4, 2448]]]),
    "unrolled-loops": ("row_max", ROWS),
    "static-ranges": ("powers", ROWS),
    "cache-modifiers": ("gate", [[shapes[0], shapes[0]] for shapes in ROWS]),
    "hoisted-reciprocal": ("share", ROWS),
    "block-descriptors": ("row_sum", [*ROWS, [[3, 77]], [[20, 132]]]),
    "epilogue-halves": ("matmul", PRODUCTS),
    "tf32-dots": ("gram", [[[16, 16]], [[37, 37]], [[1, 1]]]),
}
"""Host function of each example, and what to call it with."""

REFERENCES = {"block-descriptors": "def row_sum(x):\n    return x.sum(dim=1)\n"}
"""What to compare with where the example needs a Triton that still has block pointers."""


@pytest.mark.parametrize("entry", for_backend("triton"), ids=lambda entry: entry.name)
def test_numbers_are_kept(entry: Optimization, tmp_path: Path) -> None:
    subject = Subject(Source(entry.before), KernelClass.MEMORY, Hardware())
    texts = [entry.after, *(entry.apply(subject, params) for params in entry.variants(subject))]
    wrapper, calls = SHAPES[entry.name]
    before = REFERENCES.get(entry.name, entry.before)
    rounding = entry.changes_rounding or before is not entry.before
    assert disagreement(wrapper, calls, before, texts, rounding, tmp_path) == ""


FLAT = {"programs_per_sm": 1, "flatten": True}


def test_persistent_products_keep_the_numbers(tmp_path: Path) -> None:
    """With one loop made of the two, and without."""
    before = playbook.get("grouped-programs").before
    subject = Subject(Source(before), KernelClass.COMPUTE, Hardware(sm=90))
    entry = playbook.get("persistent-programs")
    variants = list(entry.variants(subject))
    assert FLAT in variants
    texts = [entry.apply(subject, params) for params in variants]
    assert sum("flatten=True" in text for text in texts) == 1
    assert disagreement("matmul", PRODUCTS, before, texts, False, tmp_path) == ""


def test_only_a_nest_of_two_loops_is_made_one() -> None:
    product = playbook.get("grouped-programs").before
    body = "        ks = start + tl.arange(0, BLOCK_K)\n"
    assert body in product
    inner = product.replace(body, f"{body}        for _ in range(0, 1):\n            acc += 0\n")
    entry = playbook.get("persistent-programs")
    for text in (inner, entry.before):
        subject = Subject(Source(text), KernelClass.COMPUTE, Hardware(sm=90))
        assert not any("flatten" in params for params in entry.variants(subject))
