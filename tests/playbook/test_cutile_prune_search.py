"""prune-search: which configs of an author's search cannot win, and which may."""

from __future__ import annotations

import re

import pytest

from agent import playbook
from tests.tuning import sources

pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from tests.support.rewriting import refusal, subject

ENTRY = "prune-search"
CONFIGS = """\
CONFIGS = [
    Config(tm=128, tn=128, tk=64, ctas=1, resident=1),  # by hand
{listed}]
"""
SEARCHED = (
    sources.MATMUL.replace("import torch\n", """\
import torch
from cuda.tile.tune import exhaustive_search
from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    tm: int
    tn: int
    tk: int
    ctas: int
    resident: int


{configs}
""", 1).rpartition("def matmul")[0]
    + """\
def matmul(a, b):
    m, n = a.shape[0], b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    stream = torch.cuda.current_stream()
    grid = lambda c_: (ct.cdiv(m, c_.tm), ct.cdiv(n, c_.tn))
    found = exhaustive_search(
        CONFIGS, stream, grid, matmul_kernel,
        lambda c_: (a, b, c, c_.tm, c_.tn, c_.tk),
        lambda c_: {"num_ctas": c_.ctas, "occupancy": c_.resident},
    )
    best = found.best.config
    kernel = matmul_kernel.replace_hints(num_ctas=best.ctas, occupancy=best.resident)
    ct.launch(stream, grid(best), kernel, (a, b, c, best.tm, best.tn, best.tk))
    return c
"""
)  # fmt: skip
"""The product of tests.tuning, under a search over a list with names of its own."""


def searched(*rows: tuple[int, ...]) -> str:
    fields = ("tm", "tn", "tk", "ctas", "resident")
    lines = (
        "    Config({}),\n".format(", ".join(f"{f}={v}" for f, v in zip(fields, row, strict=True)))
        for row in rows
    )
    return SEARCHED.replace("{configs}", CONFIGS.format(listed="".join(lines)))


def left(text: str) -> list[tuple[int, ...]]:
    """The configs of the list, without the one that is written by hand."""
    new = playbook.get(ENTRY).apply(subject(text), {})
    assert "resident=1),  # by hand\n" in new
    listed = new[new.index("CONFIGS = [") : new.index("]\n")]
    rows = [tuple(map(int, re.findall(r"=(\d+)", line))) for line in listed.splitlines()[1:]]
    return rows[1:]


MAY_WIN = [
    (64, 64, 64, 1, 4),
    (256, 256, 64, 1, 1),  # fills the tensor memory of sm_100
    (512, 256, 64, 2, 1),
    (128, 128, 64, 1, 4),
    (256, 128, 32, 1, 4),  # no config has this with fewer blocks
]


@pytest.mark.parametrize(
    "lost",
    [
        (512, 256, 64, 1, 1),
        (64, 64, 2048, 1, 1),
        (128, 128, 64, 1, 8),
        (128, 128, 64, 1, 1),
        (64, 64, 64, 1, 4),
    ],
    ids=["sums", "operands", "blocks", "as by hand", "again"],
)
def test_what_cannot_win_is_taken_out(lost: tuple[int, ...]) -> None:
    assert left(searched(*MAY_WIN, lost)) == MAY_WIN
    first = [row for row in MAY_WIN if row != lost]
    assert left(searched(lost, *first, lost, lost)) == ([lost] if lost in MAY_WIN else []) + first


def test_what_may_win_stays() -> None:
    assert refusal(ENTRY, searched(*MAY_WIN)) == "each of the 6 configs of matmul_kernel may win"


def test_sums_of_another_type_and_sizes_that_are_computed_stay() -> None:
    large = searched((512, 256, 64, 1, 1))
    half = large.replace("dtype=ct.float32", "dtype=ct.float16")
    assert half != large
    assert "is not seen to sum in fp32" in refusal(ENTRY, half)
    computed = large.replace("tm=512", "tm=2 * side")
    assert refusal(ENTRY, computed) == "each of the 2 configs of matmul_kernel may win"


SLOW = (512, 256, 64, 1, 1)


@pytest.mark.parametrize(
    "use",
    [
        "LAST = CONFIGS[-1]",
        "LARGEST = max(CONFIGS, key=lambda config: config.tm)",
        "CONFIGS.append(Config(tm=64, tn=64, tk=64, ctas=1, resident=1))",
        "assert len(CONFIGS) == 2",
        "for config in CONFIGS:\n    print(config)",
        "ALL = CONFIGS\nLAST = ALL[-1]",
        "def other(run, *given):\n    return exhaustive_search(CONFIGS, *given)",
    ],
)
@pytest.mark.parametrize("entry", [ENTRY, "widen-search"])
def test_configs_that_the_file_uses_otherwise_stay(use: str, entry: str) -> None:
    text = f"{searched(*MAY_WIN, SLOW)}\n\n{use}\n"
    line = text[: text.rindex("CONFIGS" if "ALL[" not in use else "ALL[")].count("\n") + 1
    why = f"line {line} uses the configs of matmul_kernel otherwise"
    assert refusal(entry, text) == why


def test_configs_that_the_file_takes_by_number_stay_where_they_are() -> None:
    text = searched(SLOW, *MAY_WIN, SLOW) + "\n\nFALLBACK = CONFIGS[1]\n"
    assert left(text) == [SLOW, *MAY_WIN]
    assert left(text.replace("CONFIGS[1]", "CONFIGS[0]")) == MAY_WIN


@pytest.mark.parametrize(
    "use",
    [
        "FIRST = next(configs())",
        "def listed():\n    return [config for config in configs() if config.m < 512]",
    ],
)
def test_a_generator_of_configs_that_the_file_uses_otherwise_stays(use: str) -> None:
    entry = playbook.get(ENTRY)
    text = f"{entry.before}\n\n{use}\n"
    assert "uses the configs of matmul_kernel otherwise" in refusal(ENTRY, text)


def test_two_searches_of_one_kernel_share_their_configs() -> None:
    text = searched(*MAY_WIN, SLOW)
    second = text[text.index("def matmul(") :].replace("def matmul(", "def again(")
    assert left(f"{text}\n\n{second}") == MAY_WIN
