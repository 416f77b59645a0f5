"""edge-masks: what it writes, that results are the same, and which masks stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.environment import probe

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from agent import playbook  # noqa: E402
from agent.analysis.common.subject import NotApplicable  # noqa: E402
from agent.proposers.playbook import edited as laid_out  # noqa: E402
from tests.playbook.test_cutile_compiles import compiled, load  # noqa: E402
from tests.support.rewriting import subject  # noqa: E402
from tests.support.tiers import others_full  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402

ENTRY = playbook.get("edge-masks")
ATTENTION = (Path(__file__).parents[2] / "benchmarks/cutile/attention/attention.py").read_text()
SUMS = """\
import cuda.tile as ct
import torch

ROWS, COLUMNS = 16, 8


@ct.kernel
def k(x, z, y, extra: ct.Constant[int]):
    i = ct.bid(0)
    rows = i * ROWS + ct.arange(ROWS, dtype=ct.int32)[:, None]
    left = ct.load(x, (i, 0), (ROWS, ROWS), padding_mode=ct.PaddingMode.ZERO)
    total = ct.zeros((ROWS, 1), dtype=ct.float32)
    for j in range(ct.cdiv((i + 1) * ROWS, COLUMNS) + extra):
        right = ct.load(z, (0, j), (ROWS, COLUMNS), padding_mode=ct.PaddingMode.ZERO)
        tile = ct.mma(left, right, ct.zeros((ROWS, COLUMNS), dtype=ct.float32))
        columns = j * COLUMNS + ct.arange(COLUMNS, dtype=ct.int32)[None, :]
        tile = ct.where(columns <= rows, tile, -2.0)
        total += ct.sum(tile, axis=1, keepdims=True)
    ct.store(y, (i, 0), total)


def run(x, z):
    y = torch.zeros((x.shape[0], 1))
    grid = (ct.cdiv(x.shape[0], ROWS),)
    ct.launch(torch.cuda.current_stream(), grid, k, (x, z, y, 2))
    return y
"""
"""Row sums of a product, all that is right of the diagonal as minus two."""
LOOP = "for j in range(ct.cdiv((i + 1) * ROWS, COLUMNS) + extra):"
COLUMNS = "columns = j * COLUMNS + ct.arange(COLUMNS, dtype=ct.int32)[None, :]"
MASKED = "ct.where(columns <= rows, tile, -2.0)"
ALONG = "ct.arange(COLUMNS, dtype=ct.int32)[None, :] + i"
CHANGED = f"{MASKED}\n        i = i + 1"
TWO = "(columns <= rows) & (columns < z.shape[1])"
STARTS = "for start in range(0, (i + 1) * ROWS, COLUMNS):\n        j = start // COLUMNS"
LOOP_OF_TWO = "for j in range(0, i + 1 + extra):"
UNDER_A_CONSTANT = f"""\
        if extra == 2:
            {COLUMNS}
            tile = {MASKED}"""
Changes = tuple[tuple[str, str], ...]


def edited(changes: Changes) -> str:
    text = SUMS
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def edged(text: str) -> str:
    return laid_out(ENTRY, subject(text), {})


def numbers(*shape: int) -> Any:
    return torch.randint(-9, 10, shape).half()


def test_a_causal_attention(tmp_path: Path) -> None:
    """The results are the same to the last bit."""
    new = edged(ATTENTION)
    asked = "        if j * TILE_N + TILE_N > i * TILE_M + 1:\n"
    start, end = (ATTENTION.index(at) for at in ("        columns = j", "\n        new_largest"))
    lines = ATTENTION[start:end].splitlines(keepends=True)
    below = "".join(f"    {line}" for line in lines)
    assert new == ATTENTION[:start] + asked + below + ATTENTION[end:]
    given = tuple(torch.randn(1, 2, 200, 16).to(torch.float16) for _ in range(3))
    results = [result_of(text, "attention", given, tmp_path) for text in (ATTENTION, new)]
    assert torch.equal(*results)
    with pytest.raises(NotApplicable, match="under a condition already, that of line 49"):
        edged(new)


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize("sm", others_full(["sm_90", "sm_80", "sm_100"]))
def test_it_compiles(sm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", "0")
    module = load(tmp_path / "apart.py", edged(ATTENTION))
    given: tuple[Any, ...] = (*[("bfloat16", 4)] * 4, "float32", 128, 64, 64)
    assert compiled(module, "attention_kernel", given, sm).startswith(b"\x7fELF")


OTHERS = [
    *("folded-scale", "exp2", "fast-math", "tile-sizes", "autotune", "occupancy-hint"),
    *("load-latency", "longest-blocks-first"),
]


@pytest.mark.parametrize("other", others_full(OTHERS, 2))
def test_others_follow_and_come_before(other: str, tmp_path: Path) -> None:
    """With the same choices: none counts on a mask in every step."""
    entry, new = playbook.get(other), edged(ATTENTION)
    variants = entry.variants(subject(ATTENTION))
    assert entry.variants(subject(new)) == variants
    after = laid_out(entry, subject(new), variants[0])
    assert after == edged(laid_out(entry, subject(ATTENTION), variants[0]))
    if other == "autotune":
        return  # it searches on a GPU alone
    given = tuple(torch.randn(1, 2, 200, 32).to(torch.float16) for _ in range(3))
    expected = result_of(ATTENTION, "attention", given, tmp_path)
    found = result_of(after, "attention", given, tmp_path)
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-3)


FITTING = {
    "as it is": (),
    "less": ((MASKED, "ct.where(columns < rows, tile, -2.0)"),),
    "the other way round": ((MASKED, "ct.where(rows >= columns, tile, -2.0)"),),
    "shifted": ((MASKED, "ct.where(columns <= rows + extra, tile, -2.0)"),),
    "far to the left": ((MASKED, "ct.where(columns <= rows + (extra - 40), tile, -2.0)"),),
    "a name": (
        (MASKED, "ct.where(mask, tile, -2.0)"),
        (COLUMNS, COLUMNS + "\n        mask = columns <= rows"),
    ),
    "a window": ((MASKED, "ct.where(columns > rows - 20, tile, -2.0)"),),
    "how far they are apart": ((MASKED, "ct.where(rows - columns < 9, tile, -2.0)"),),
    "a limit that only the mask reads": (
        (
            COLUMNS,
            "first = j * COLUMNS\n        " + COLUMNS.replace("j * COLUMNS", "first"),
        ),
    ),
    "one of them alike in all steps": (
        (MASKED, MASKED.replace("columns <= rows", "(columns <= rows) & (rows < 40)")),
    ),
    "two conditions": ((MASKED, MASKED.replace("columns <= rows", TWO)),),
    "two masks": (
        (MASKED, MASKED + "\n        tile = ct.where(columns < z.shape[1] - 4, tile, 5.0)"),
    ),
    "of what is computed": ((MASKED, "ct.where(columns <= rows, tile * 2.0 + 1.0, -2.0)"),),
    "another step": ((LOOP, LOOP_OF_TWO), (COLUMNS, COLUMNS.replace("j *", "2 * j *"))),
    "starts": ((LOOP, STARTS), (COLUMNS, COLUMNS.replace("j * COLUMNS", "start"))),
    "the other half": ((MASKED, "ct.where(columns >= rows, tile, -2.0)"),),
    "moving rows": ((MASKED, "ct.where(columns <= rows + 3 * j, tile, -2.0)"),),
    "under a constant": (("        " + COLUMNS + "\n        tile = " + MASKED, UNDER_A_CONSTANT),),
    "from the middle": ((LOOP, "for j in range(i, i * 2 + 1 + extra):"),),
    "behind the end": ((LOOP, "for j in range(i + 9, i * 2 + 1 + extra):"),),
    "columns read again": (
        (MASKED, MASKED + "\n        total += ct.sum((columns + rows).astype(ct.float32) * 0.5)"),
    ),
}


@pytest.mark.parametrize("name", others_full(list(FITTING), 4))
def test_results_are_the_same(name: str, tmp_path: Path) -> None:
    """Where tiles end within the array and where they do not, rows and columns of other sizes."""
    text = edited(FITTING[name])
    new = edged(text)
    assert new.count("        if ") - text.count("        if ") == 1 + (name == "two masks")
    for rows, columns in ((96, 96), (90, 75), (16, 200), (5, 3)):
        given = numbers(rows, 16), numbers(16, columns)
        expected, found = (result_of(each, "run", given, tmp_path) for each in (text, new))
        assert torch.equal(found, expected), (rows, columns)


@pytest.mark.parametrize("sizes", [(16, 8), (8, 16), (16, 16), (32, 4), (4, 32)])
def test_tiles_of_any_size(sizes: tuple[int, int], tmp_path: Path) -> None:
    """A tile over the diagonal, several left of it, none of them whole."""
    text = edited((("ROWS, COLUMNS = 16, 8", f"ROWS, COLUMNS = {sizes[0]}, {sizes[1]}"),))
    given = numbers(100, sizes[0]), numbers(sizes[0], 100)
    expected, found = (result_of(each, "run", given, tmp_path) for each in (text, edged(text)))
    assert torch.equal(found, expected)


REFUSED = {
    "no mask": ((MASKED, "tile"), "has none"),
    "a mask of the rows": ((MASKED, "ct.where(rows < 40, tile, 0.0)"), "same in each step"),
    "either": ((MASKED, "ct.where((columns <= rows) | (rows < 4), tile, 0.0)"), "asks"),
    "equal": ((MASKED, "ct.where(columns == rows, tile, 0.0)"), "asks"),
    "wide": ((MASKED, "ct.where(columns <= rows, sums, 0.0)"), "larger than what it masks"),
    "another type": ((MASKED, "ct.where(columns <= rows, columns, 0.5)"), "may not be float32"),
    "a tile instead": ((MASKED, "ct.where(columns <= rows, tile, right)"), "more than a number"),
    "an operand": ((MASKED, MASKED + " * 2.0"), "does more than to mask"),
    "one axis": ((MASKED, MASKED.replace("rows", ALONG)), "along one axis"),
    "random": ((MASKED, "ct.where(columns <= left, tile, 0.0)"), "count one by one"),
    "a mask of the target's name": (
        (f"tile = {MASKED}", "keep = columns <= rows\n        keep = ct.where(keep, tile, -2.0)"),
        "the name of what it masks by",
    ),
    "numbers without a sign": (
        (MASKED, "ct.where((columns - 5).astype(ct.uint32) <= 40, tile, -2.0)"),
        "another type than int32",
    ),
    "a number that is read": (
        (MASKED, "ct.where(columns <= ct.gather(x, (i, 0)).astype(ct.int32), tile, -2.0)"),
        "another number when it is asked again|count one by one",
    ),
    "a tile of numbers instead": (
        (MASKED, "ct.where(columns <= rows, tile, ct.full((ROWS, COLUMNS), 0.0, ct.float64))"),
        "more than a number",
    ),
    "changed since": ((MASKED, CHANGED), "another number by then"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_may_need_its_mask_keeps_it(name: str) -> None:
    change, why = REFUSED[name]
    text = edited((change,))
    if "sums" in text:
        wide = "        sums = ct.sum(tile, axis=1, keepdims=True)\n        tile = ct.where"
        text = text.replace("        tile = ct.where", wide)
    with pytest.raises(NotApplicable, match=why):
        ENTRY.apply(subject(text), {})


def test_a_name_that_is_read_elsewhere_stays_where_it_is() -> None:
    new = edged(edited(FITTING["columns read again"]))
    assert new.index("columns = j") < new.index("if j * COLUMNS + COLUMNS > ")
