"""Blocks that start where the most work is: a causal attention, and where the order stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.environment import probe

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from agent import playbook  # noqa: E402
from tests.playbook.test_cutile_compiles import compiled, load  # noqa: E402
from tests.support.rewriting import refusal, rewritten, subject  # noqa: E402
from tests.support.tiers import others_full  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402

ENTRY = "longest-blocks-first"
TURNED = "ct.num_blocks(0) - 1 - ct.bid(0)"
ATTENTION = (Path(__file__).parents[2] / "benchmarks/cutile/attention/attention.py").read_text()
SUMS = """\
import cuda.tile as ct
import torch

TILE = 16


@ct.kernel
def k(x, y, n: int, CAUSAL: ct.Constant[bool]):
    i = ct.bid(0)
    total = ct.zeros((TILE,), dtype=ct.float32)
    for j in range(i + 1):
        total += ct.load(x, index=(j,), shape=(TILE,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, index=(i,), tile=total)


def run(x):
    y = torch.zeros_like(x)
    n = ct.cdiv(x.shape[0], TILE)
    ct.launch(torch.cuda.current_stream(), (n,), k, (x, y, n, True))
    return y
"""
"""The sums of all tiles up to one."""


def numbers(*shape: int) -> torch.Tensor:
    return torch.randint(-9, 10, shape).float()


def edited(*changes: tuple[str, str]) -> str:
    text = SUMS
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def attention_inputs() -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(1, 2, 200, 16).to(torch.float16) for _ in range(3))


def test_a_causal_attention(tmp_path: Path) -> None:
    new = playbook.get(ENTRY).apply(subject(ATTENTION), {})
    assert new == ATTENTION.replace("i = ct.bid(0)", f"i = {TURNED}")
    given = attention_inputs()
    expected = result_of(ATTENTION, "attention", given, tmp_path)
    assert torch.equal(result_of(new, "attention", given, tmp_path), expected)
    assert "line 39 runs less far in them" in refusal(ENTRY, new)


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize("sm", others_full(["sm_90", "sm_80", "sm_100"]))
def test_it_compiles(sm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", "0")
    module = load(tmp_path / "turned.py", playbook.get(ENTRY).apply(subject(ATTENTION), {}))
    given: tuple[Any, ...] = (*[("bfloat16", 4)] * 4, "float32", 128, 64, 64)
    assert compiled(module, "attention_kernel", given, sm).startswith(b"\x7fELF")


OTHERS = ["autotune", "exp2", "fast-math", "tile-sizes", "occupancy-hint", "load-latency"]


@pytest.mark.parametrize("other", others_full(OTHERS, 2))
def test_it_works_on_what_others_wrote_and_they_on_what_it_wrote(other: str) -> None:
    entry, turned = playbook.get(other), playbook.get(ENTRY).apply(subject(ATTENTION), {})
    variants = entry.variants(subject(ATTENTION))
    assert variants == entry.variants(subject(turned))
    for params in (variants[0], variants[-1]):
        new = entry.apply(subject(ATTENTION), params)
        assert playbook.get(ENTRY).apply(subject(new), {}) == new.replace("ct.bid(0)", TURNED)
        assert entry.apply(subject(turned), params) == new.replace("ct.bid(0)", TURNED)


def test_persistent_blocks_count_on(tmp_path: Path) -> None:
    turned = playbook.get(ENTRY).apply(subject(SUMS), {})
    new = rewritten("persistent-blocks", turned, (numbers(200),), folder=tmp_path)
    assert "in range(ct.bid(0), " in new
    assert "at line 9 shares out the tiles beforehand" in refusal(ENTRY, new)


HELPER = """\
def summed(x, first, end):
    total = ct.zeros((TILE,), dtype=ct.float32)
    for j in range(first, end):
        total += ct.load(x, index=(j,), shape=(TILE,), padding_mode=ct.PaddingMode.ZERO)
    return total


@ct.kernel
"""
BY_HELPER = [
    ("@ct.kernel\n", HELPER),
    (
        SUMS[SUMS.index("    total = ") : SUMS.index("    ct.store")],
        "    total = summed(x, {first}, i + 1)\n",
    ),
]
"""The loop is one of a helper."""


def by_helper(first: str) -> str:
    return edited(*((old, new.replace("{first}", first)) for old, new in BY_HELPER))


END = "range(i + 1)"
BRANCHES = """\
    if CAUSAL:
        end = min(n, i + 1)
    else:
        end = n
    total = ct.zeros"""


@pytest.mark.parametrize(
    "text",
    others_full(
        [
            by_helper("0"),
            edited((END, "range(end)"), ("    total = ct.zeros", BRANCHES)),
            edited((END, "range(0, ct.cdiv((i + 1) * TILE, 16))")),
            edited((END, "range(0, ct.minimum((i * TILE + 16 + TILE - 1) // TILE, n), 1)")),
            edited((END, "range(max(0, i - 3), i + 1)")),
            edited((END, "range(last)"), ("i = ct.bid(0)", "i = ct.bid(0)\n    last = i + 1")),
            edited((END, "range(n - (n - 1 - i))")),
            edited((END, "range(i.astype(ct.int32) + 1)")),
            edited((END, "range(j + 1)"), ("total = ct", "j = ct.bid(axis=0)\n    total = ct")),
            edited((END, "range(ct.bid(0) * 2 + 1)")),
            edited(("i = ct.bid(0)", "i, other = ct.bid(0), ct.num_blocks(0)")),
        ],
        3,
    ),
)
def test_blocks_that_run_further_start_first(text: str, tmp_path: Path) -> None:
    new = rewritten(ENTRY, text, (numbers(200),), (numbers(7),), folder=tmp_path)
    asked = text.count("ct.bid(")
    assert asked == new.count("ct.num_blocks(0) - 1 - ct.bid(")


FLAT = edited(
    ("i = ct.bid(0)", "block = ct.bid(0)\n    i = block % n\n    row = block // n"),
    ("index=(j,), shape=(TILE,)", "index=(row, j), shape=(1, TILE)"),
    ("index=(i,)", "index=(row, i)"),
    ("zeros((TILE,)", "zeros((1, TILE)"),
    ("shape[0]", "shape[1]"),
    ("(n,), k", "(n * x.shape[0] + more,), k"),
    ("run(x)", "run(x, more=0)"),
)
SECOND = FLAT.replace("block = ct.bid(0)", "block = ct.bid(1)").replace("(n * x", "(1, n * x")
BY_ROWS = (
    FLAT.replace("block % n", "block // x.shape[0]")
    .replace("block // n", "block % x.shape[0]")
    .replace(" + more", "")
)


@pytest.mark.parametrize("text", others_full([FLAT, BY_ROWS, SECOND]))
def test_a_flat_grid_is_turned_as_a_whole(text: str, tmp_path: Path) -> None:
    """With more blocks than there are tiles, too: they store past the end, whichever they are."""
    calls = [(numbers(3, 200), more) for more in (0, 5)]
    new = rewritten(ENTRY, text, *calls, folder=tmp_path)
    axis = int(text is SECOND)
    assert f"block = ct.num_blocks({axis}) - 1 - ct.bid({axis})" in new


def test_a_block_that_is_an_operand_gets_parentheses(tmp_path: Path) -> None:
    text = edited((END, "range(i // TILE + 1)"), ("i = ct.bid(0)", "i = ct.bid(0) * TILE"))
    text = text.replace("index=(i,)", "index=(i // TILE,)")
    assert f"i = ({TURNED}) * TILE" in rewritten(ENTRY, text, (numbers(200),), folder=tmp_path)


COUNTED = "    j = 0\n    while j < i:\n        j += 1\n    total = ct"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([(END, "range(n)")], "no loop of k runs further in later blocks"),
        ([(END, "range(i, n)")], ": that at line 11 begins further on in them"),
        ([(END, "range(i, i + 4)")], ": that at line 11 begins further on in them, too"),
        ([(END, "range(max(0, i - 4), n)")], "line 11 may begin further on in them"),
        ([(END, "range(n - i)")], "line 11 runs less far in them"),
        ([("ct.bid(0)", "n - 1 - ct.bid(0) % n")], "line 11 runs less far in them"),
        ([(END, "range(n ^ i)")], ", as far as line 11 is followed"),
        (
            [(END, "range(n)"), ("    total = ct", COUNTED)],
            ", as far as line 11 is followed",
        ),
        (
            [("    ct.store", "    for j in range(i, n):\n        total += j\n    ct.store")],
            "not all loops of k run further in later blocks: that at line 13 begins further on",
        ),
        (
            [(END, "range(i, n, ct.num_blocks(0))")],
            "the loop of k at line 11 shares out the tiles beforehand",
        ),
        ([("i = ct.bid(0)", "i = n")], "k never asks which block it is"),
        ([("ct.bid(0)", "ct.bid(CAUSAL)")], "line 9 asks for a block along a computed axis"),
        (
            [("ct.bid(0)", "asked()"), ("@ct.k", "def asked():\n    return ct.bid(0)\n\n\n@ct.k")],
            "line 8 of asked deals with the grid itself: `ct.bid(0)`",
        ),
        (
            [("ct.bid(0)", "bid(0)"), ("import torch", "import torch\nfrom cuda.tile import bid")],
            "`bid` stands for a function of cuda.tile by itself",
        ),
    ],
)  # fmt: skip
def test_blocks_that_keep_their_order(changes: list[tuple[str, str]], why: str) -> None:
    assert why in refusal(ENTRY, edited(*changes))


def test_a_helper_that_begins_later_too_takes_as_long() -> None:
    assert "line 9 begins further on in them, too" in refusal(ENTRY, by_helper("i"))


SPLIT = """\
    if CAUSAL:
        first = i * 4
        end = min(first + 4, n)
    else:
        first = 0
        end = n
    total = ct.zeros"""


def test_what_one_branch_gives_belongs_together() -> None:
    """No block begins where one branch says and ends where the other does."""
    text = edited((END, "range(end - first)"), ("    total = ct.zeros", SPLIT))
    assert "as far as line 17 is followed" in refusal(ENTRY, text)
    text = text.replace("first = i * 4", "first = 4").replace("first + 4", "i + 8")
    assert TURNED in playbook.get(ENTRY).apply(subject(text), {})


STORE = "    ct.store(y"


@pytest.mark.parametrize(
    ("waits", "line"),
    [
        ("    ct.atomic_cas(y, (0,), 0.0, 1.0)\n", 13),
        ("    flag = ct.load(y, (0,), (1,), memory_order=ct.MemoryOrder.ACQUIRE)\n", 13),
        ("    while ct.atomic_add(y, (0,), 0.0).item() == 0:\n        total += 1\n", 13),
        (
            "    ct.atomic_add(y, (0,), 1.0)\n    flag = 0\n    while flag < n:\n"
            "        flag = ct.gather(y, (0,)).item()\n",
            15,
        ),
    ],
)
def test_blocks_that_may_wait_keep_their_order(waits: str, line: int) -> None:
    text = edited((STORE, waits + STORE))
    for entry in (ENTRY, "persistent-blocks"):
        assert f"line {line} may wait for another block" in refusal(entry, text)


@pytest.mark.parametrize(
    "adds",
    [
        "    ct.atomic_add(y, (0,), 1.0, memory_order=ct.MemoryOrder.RELAXED)\n",
        "    ct.atomic_add(y, (0,), 1.0)\n    low = 0\n    while low < n:\n        low += 1\n",
        "    low = 0\n    while low < n:\n        low += ct.gather(y, (low,)).item()\n",
    ],
)
def test_what_only_adds_or_searches_waits_for_none(adds: str) -> None:
    assert TURNED in playbook.get(ENTRY).apply(subject(edited((STORE, adds + STORE))), {})
