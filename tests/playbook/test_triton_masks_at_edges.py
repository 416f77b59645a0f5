"""masks-at-edges: what it writes, that results are the same, and which masks stay as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import libcst as cst
import pytest

from agent import playbook
from agent.analysis.common.constant_flow import Flow
from agent.analysis.common.size_changes import SizeChanges
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.launches import ObservedLaunch, ObservedTensor
from agent.proposers.playbook import edited as laid_out
from agent.syntax import Source, descendants
from tests.support.causal_kernel import PREFIX
from tests.support.rewriting import subject
from tests.support.tiers import others_full

ENTRY = playbook.get("masks-at-edges")
SHAPES = [[[n, 16], [n, 16]] for n in (2, 40, 77)]
MASKED = "scores = tl.where(cols[None, :] <= rows[:, None], scores, 0.0)"
LOOP = "for start in range(0, (pid_m + 1) * BLOCK_M, BLOCK_N):"
ASKED = "if start + BLOCK_N > pid_m * BLOCK_M + 1:"
DOT = "scores = tl.dot(q, tl.trans(k))"


def changed(*changes: tuple[str, str]) -> str:
    text = PREFIX
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def edged(text: str) -> str:
    return laid_out(ENTRY, subject(text, sm=90), {})


def test_a_size_may_grow_as_before() -> None:
    """What asks for the mask alone is known from what may hide an access."""
    text = changed(
        ("block_m = 32", "block_n = min(16, triton.next_power_of_2(n))\n    block_m = 32"),
        ("BLOCK_N=16", "BLOCK_N=block_n"),
        (LOOP, "for start in range(0, n, BLOCK_N):"),
        (MASKED, MASKED.replace("0.0", "-1.0e6")),
        ("acc += tl.dot(scores, k)", "acc += tl.sum(tl.exp2(scores), 1)[:, None]"),
    )

    def may_grow(text: str) -> bool:
        source = Source(text)
        (kernel,) = TRITON.launched(source)
        return SizeChanges.of(Flow(TRITON, source, kernel, "BLOCK_N")).may_grow

    assert may_grow(text) and may_grow(edged(text))


@pytest.mark.parametrize("name", ["as it is", "added", "a name", "a window and the diagonal"])
def test_the_question_is_known_however_it_is_laid_out(name: str) -> None:
    source = Source(edged(changed(*FITTING[name][0])))
    assert ("if (\n" in source.text) is (name == "a window and the diagonal")
    (asked,) = descendants(source.module, cst.If)
    assert TRITON.masks_edges(source, asked)
    other = Source(source.text.replace("BLOCK_N > pid_m", "BLOCK_N > 1 + pid_m"))
    (asked,) = descendants(other.module, cst.If)
    assert not TRITON.masks_edges(other, asked)


def test_a_causal_product() -> None:
    below = f"{ASKED}\n            {MASKED}"
    assert edged(PREFIX) == PREFIX.replace(MASKED, below)
    with pytest.raises(NotApplicable, match="under a condition already, that of line 21"):
        edged(edged(PREFIX))


FITTING = {
    "as it is": ((), ASKED),
    "less": (((MASKED, MASKED.replace("<=", "<")),), "if start + BLOCK_N > pid_m * BLOCK_M:"),
    "the other way round": (
        ((MASKED, "scores = tl.where(rows[:, None] >= start + cols0[None, :], scores, 0.0)"),
         ("    acc =", "    cols0 = tl.arange(0, BLOCK_N)\n    acc =")),
        ASKED,
    ),
    "of what is computed": (
        ((MASKED, MASKED.replace("scores, 0.0", "scores * 0.5 + 1.0, -2.0")),),
        "scores = scores * 0.5 + 1.0\n        if start",
    ),
    "added": (
        ((MASKED, "scores += tl.where(cols[None, :] <= rows[:, None], 0, -1.0e6)"),),
        ASKED,
    ),
    "added to a multiple": (
        ((MASKED, "scores = scores * 2.0 + tl.where(cols[None, :] <= rows[:, None], 0, -1.0e6)"),),
        "scores = scores * 2.0\n        if start",
    ),
    "a name": (
        ((MASKED, f"mask = rows[:, None] >= cols[None, :]\n        {MASKED}"),
         ("cols[None, :] <= rows[:, None], scores", "mask, scores")),
        f"{ASKED}\n            mask = ",
    ),
    "a name, and a keyword of that name": (
        ((MASKED, f"mask = rows[:, None] >= cols[None, :]\n        {MASKED}"),
         ("cols[None, :] <= rows[:, None], scores", "mask, scores"),
         ("tl.load(k_ptrs, mask=", "tl.load(pointer=k_ptrs, mask=")),
        f"{ASKED}\n            mask = ",
    ),
    "two conditions": (
        ((MASKED, MASKED.replace(
            "cols[None, :] <= rows[:, None]",
            "(cols[None, :] < n) & (cols[None, :] <= rows[:, None])")),),
        f"if start + BLOCK_N > n or {ASKED[3:]}",
    ),
    "one of them alike in all steps": (
        ((MASKED, MASKED.replace(
            "cols[None, :] <= rows[:, None]",
            "(rows[:, None] < n - 1) & (cols[None, :] <= rows[:, None])")),),
        f"if pid_m * BLOCK_M + BLOCK_M > (n - 1) or {ASKED[3:]}",
    ),
    "expanded afterwards": (
        ((MASKED, MASKED.replace("cols[None, :] <= rows[:, None]", "(cols < n)[None, :]")),),
        "if start + BLOCK_N > n:",
    ),
    "set up and added to": (
        ((DOT, "scores = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)\n"
               "        scores += tl.dot(q, tl.trans(k))\n        scores *= 0.5"),),
        ASKED,
    ),
    "under a constant": (
        ((MASKED, f"if BLOCK_M > 1:\n            {MASKED}"),),
        f"if BLOCK_M > 1:\n            {ASKED}",
    ),
    "a window": (
        ((MASKED, "scores = tl.where(cols[None, :] > rows[:, None] - 20, scores, 0.0)"),),
        "if pid_m * BLOCK_M + BLOCK_M > start + 20:",
    ),
    "how far they are apart": (
        ((MASKED, "scores = tl.where(rows[:, None] - cols[None, :] < 9, scores, 0.0)"),),
        "if pid_m * BLOCK_M + BLOCK_M > 9 + start:",
    ),
    "a window and the diagonal": (
        ((MASKED, "far = rows[:, None] - cols[None, :]\n"
                  "        scores = tl.where((far >= 0) & (far <= 24), scores, 0.0)"),),
        "            or pid_m * BLOCK_M + BLOCK_M > 24 + start + 1\n",
    ),
    "a limit that only the mask reads": (
        ((MASKED, "left = n - start\n"
                  "        at = tl.arange(0, BLOCK_N)[None, :]\n"
                  "        scores = tl.where(at < left, scores, 0.0)"),),
        "left = n - start\n        if BLOCK_N > left:",
    ),
    "whole numbers of 64 bits": (
        (("        k_ptrs =", "        cols = (start + tl.arange(0, BLOCK_N)).to(tl.int64)\n"
                              "        k_ptrs ="),),
        ASKED,
    ),
    "from the middle": (
        ((LOOP, "for start in range(pid_m * BLOCK_M, (pid_m + 1) * BLOCK_M, BLOCK_N):"),),
        ASKED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", others_full(list(FITTING), 4))
def test_results_are_the_same(name: str, tmp_path: Path) -> None:
    """Where blocks end within the array and where they do not."""
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    changes, written = FITTING[name]
    text = changed(*changes)
    new = edged(text)
    assert written in new
    assert disagreement("prefix", SHAPES, text, [new], rounding=False, folder=tmp_path) == ""


@pytest.mark.parametrize("sizes", [(16, 32), (16, 16), (64, 16)])
def test_tiles_of_any_size(sizes: tuple[int, int], tmp_path: Path) -> None:
    """A tile over the diagonal, several left of it, none of them whole."""
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    rows, columns = sizes
    text = changed(("block_m = 32", f"block_m = {rows}"), ("BLOCK_N=16", f"BLOCK_N={columns}"))
    new = edged(text)
    assert disagreement("prefix", SHAPES, text, [new], rounding=False, folder=tmp_path) == ""


REFUSED = {
    "no mask": (((MASKED, "pass"),), "has none"),
    "a mask of the rows": (((MASKED, MASKED.replace("cols[None, :]", "4")),), "same in each step"),
    "either": (
        ((MASKED, MASKED.replace("cols[None, :] <=", "(rows[:, None] < 4) | (cols[None, :] <=")
          .replace("rows[:, None], s", "rows[:, None]), s")),),
        "it asks",
    ),
    "equal": (((MASKED, MASKED.replace("<=", "==")),), "it asks"),
    "of what is loaded": (((MASKED, MASKED.replace("scores, 0.0", "k, 0.0")),), "no product"),
    "another type": (((DOT, "scores = tl.dot(q, tl.trans(k)).to(tl.float16)"),), "no product"),
    "a tile instead": (((MASKED, MASKED.replace("0.0", "k")),), "by a number"),
    "an operand": (((MASKED, f"{MASKED} * 2.0"),), "does more than to mask"),
    "changed since": (
        ((MASKED, f"{MASKED}\n        pid_m = pid_m + 0"),), "another number by then|one by one",
    ),
    "a mask of the target's name": (
        ((MASKED, "keep = cols[None, :] <= rows[:, None]\n"
                  "        keep = tl.where(keep, scores, 0.0)"),
         ("tl.dot(scores, k)", "tl.dot(keep, k)")),
        "the name of what it masks by",
    ),
    "a number of the target's name": (
        ((MASKED, "w = -1.0\n        w = tl.where(cols[None, :] <= rows[:, None], scores, w)"),),
        "the name of what it masks by",
    ),
    "a limit of the target's name": (
        ((MASKED, "lim = n - 3\n        lim = tl.where(cols[None, :] < lim, scores, 0.0)"),),
        "the name of what it masks by",
    ),
    "numbers without a sign": (
        ((MASKED, "pos = (start - 5 + tl.arange(0, BLOCK_N)).to(tl.uint32)\n"
                  "        scores = tl.where(pos[None, :] < n, scores, 0.0)"),),
        "one by one",
    ),
    "numbers that are rounded": (
        ((MASKED, "pos = tl.cast(cols, tl.float16)\n"
                  "        scores = tl.where(pos[None, :] < n, scores, 0.0)"),),
        "one by one",
    ),
    "a call with an effect": (
        ((MASKED, "pos = tl.atomic_add(out_ptr, 1) + start + tl.arange(0, BLOCK_N)\n"
                  "        scores = tl.where(pos[None, :] < n, scores, 0.0)"),),
        "another number when it is asked again",
    ),
    "a number that is read": (
        ((MASKED, "keep = cols < tl.load(out_ptr)\n        tl.store(out_ptr, start)\n"
                  "        scores = tl.where(keep[None, :], scores, 0.0)"),),
        "another number when it is asked again",
    ),
    "a size that changes": (
        (("        k_ptrs =", "        BLOCK_N: tl.constexpr = 4\n        k_ptrs ="),),
        "`BLOCK_N` may be another number by then",
    ),
    "a limit that is a tile": (
        ((MASKED, "lim = tl.broadcast_to(n, (BLOCK_N,))\n"
                  "        scores = tl.where((cols < lim)[None, :], scores, 0.0)"),),
        "one by one",
    ),
    "numbers of another file": (
        (("import torch\n", "import torch\nfrom elsewhere import offsets\n"),
         ("cols = start + tl.arange(0, BLOCK_N)", "cols = offsets(start, BLOCK_N)")),
        "one by one",
    ),
    "numbers of another file, added behind": (
        (("import torch\n", "import torch\nfrom elsewhere import shifts\n"),
         ("cols = start + tl.arange(0, BLOCK_N)",
          "cols = start + tl.arange(0, BLOCK_N) + shifts(BLOCK_N)")),
        "one by one",
    ),
    "numbers of another file, added before": (
        (("import torch\n", "import torch\nfrom elsewhere import shifts\n"),
         ("cols = start + tl.arange(0, BLOCK_N)",
          "cols = (shifts(BLOCK_N) + tl.arange(0, BLOCK_N)) + start")),
        "one by one",
    ),
    "a row that a product is added to": (
        ((DOT, "scores = tl.zeros([1, BLOCK_N], dtype=tl.float32)"),
         ("acc +=", "scores += tl.dot(q, tl.trans(k))\n        acc +=")),
        "no product",
    ),
    "a bias that a product is added to": (
        ((DOT, "scores = tl.load(k_ptr + cols)[None, :]"),
         ("acc +=", "scores += tl.dot(q, tl.trans(k))\n        acc +=")),
        "no product",
    ),
    "runs that were cast to themselves": (
        ((MASKED, MASKED.replace("cols[None, :] <= rows[:, None]", "(cols < n)[None, :]")),
         ("        k_ptrs =", "        cols = cols.to(tl.int64)\n        k_ptrs =")),
        "one by one",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_may_need_its_mask_keeps_it(name: str) -> None:
    changes, why = REFUSED[name]
    with pytest.raises(NotApplicable, match=why):
        ENTRY.apply(subject(changed(*changes), sm=90), {})


@pytest.mark.parametrize(
    ("dtype", "refused"), [("uint8", True), ("uint32", True), ("int32", False)]
)
def test_limits_of_small_types_keep_their_mask(dtype: str, refused: bool) -> None:
    """A sum with a block's size would have their type: of 250 + 16 eight bits hold 10."""
    text = changed(
        ("    acc =", "    first = tl.load(out_ptr + pid_m)\n    acc ="),
        ("cols[None, :] <= rows[:, None], scores", "(first + cols)[None, :] < n, scores"),
    )
    tensors = {"out_ptr": ObservedTensor(dtype, (40,), (1,), aligned=True)}
    seen = ObservedLaunch("prefix_kernel", "test.py::test", (2,), {}, tensors, {})
    asked = replace(subject(text, sm=90), launches=(seen,))
    if refused:
        with pytest.raises(NotApplicable, match=f"counts in numbers of out_ptr of {dtype}"):
            ENTRY.apply(asked, {})
    else:
        assert "if first + start + BLOCK_N > n:" in ENTRY.apply(asked, {})
