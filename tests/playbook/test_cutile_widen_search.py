"""Searches that an author wrote: what is added to their configs, and what is left alone."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agent import playbook
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.searches import search_of
from agent.playbook.base import Optimization
from agent.syntax import Source

pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from tests.support.rewriting import refusal, rewritten, subject

ENTRY = playbook.get("widen-search")
assert isinstance(ENTRY, Optimization)
BEFORE = ENTRY.before
LISTED = BEFORE.replace("list(configs())", "CONFIGS").replace(
    "def configs():",
    """\
CONFIGS = [
    SimpleNamespace(m=128, n=128, k=64, occupancy=1, num_ctas=1),  # what it was written with
    SimpleNamespace(m=64, n=64, k=32, occupancy=1, num_ctas=1),
]


def configs():""",
)
LOOPS = BEFORE.replace(
    "        yield SimpleNamespace(m=128, n=128, k=64, occupancy=1, num_ctas=1)\n"
    "        yield SimpleNamespace(m=64, n=64, k=128, occupancy=1, num_ctas=1)\n",
    "        for m in (64, 128):\n            for n in (64, 128):\n"
    "                yield SimpleNamespace(m=m, n=n, k=64, occupancy=1, num_ctas=1)\n",
).replace("m=256, n=256, k=64", "m=256, n=256, k=32")


def widened(text: str, sm: int = 90) -> str:
    assert isinstance(ENTRY, Optimization)
    return ENTRY.apply(subject(text, sm), {})


def yielded(text: str, capability: tuple[int, int]) -> list[dict[str, int]]:
    """What the generator of a file gives on a GPU of that generation."""
    body = text[text.index("def configs") : text.index("def matmul(")]
    asked = SimpleNamespace(cuda=SimpleNamespace(get_device_capability=lambda: capability))
    names: dict[str, Any] = {"SimpleNamespace": SimpleNamespace, "torch": asked}
    exec(body, names)
    return [vars(config) for config in names["configs"]()]


def test_a_generation_gets_its_own_configs_and_the_others_theirs() -> None:
    new = widened(BEFORE)
    there = len(yielded(BEFORE, (9, 0)))
    assert len(yielded(new, (9, 0))) == there + 7
    assert yielded(new, (8, 0)) == yielded(BEFORE, (8, 0))
    assert yielded(new, (10, 0)) == yielded(BEFORE, (10, 0))
    best = {"m": 256, "n": 128, "k": 64, "occupancy": 2, "num_ctas": 2}
    assert best in yielded(new, (9, 0)) and best not in yielded(BEFORE, (9, 0))
    blackwell = widened(BEFORE, 100)
    assert {"m": 256, "n": 256, "k": 64, "occupancy": 1, "num_ctas": 4} in yielded(
        blackwell, (10, 0)
    )


@pytest.mark.parametrize("text", [BEFORE, LISTED, LOOPS])
def test_the_results_stay_the_same(text: str, tmp_path: Path) -> None:
    calls = [(torch.randn(70, 90), torch.randn(90, 50)), (torch.randn(8, 8), torch.randn(8, 8))]
    halves = [tuple(tensor.half() for tensor in call) for call in calls]
    rewritten("widen-search", text.replace("def matmul(", "def run("), *halves, folder=tmp_path)


def test_a_list_grows_and_keeps_its_comments() -> None:
    new = widened(LISTED)
    assert "num_ctas=1),  # what it was written with\n" in new
    assert new.count("SimpleNamespace(m=") == LISTED.count("SimpleNamespace(m=") + 8
    assert "    SimpleNamespace(m=256, n=128, k=64, occupancy=2, num_ctas=2),\n]\n" in new


def test_configs_of_loops_are_joined_by_more() -> None:
    assert len(yielded(widened(LOOPS), (9, 0))) == len(yielded(LOOPS, (9, 0))) + 9


def test_what_no_row_sets_is_as_in_every_config() -> None:
    more = BEFORE.replace("num_ctas=1)\n", "num_ctas=1, group=-8)\n")
    more = more.replace("num_ctas=2)\n", "num_ctas=2, group=-8)\n")
    assert "m=256, n=128, k=64, occupancy=2, num_ctas=2, group=-8)" in widened(more)
    differing = more.replace("group=-8)\n    else", "group=4)\n    else")
    assert "differ in `group`" in refusal("widen-search", differing, 90)


def test_without_clusters_no_row_has_one() -> None:
    text = BEFORE.replace(', "num_ctas": cfg.num_ctas', "")
    for count in (1, 2):
        text = text.replace(f", num_ctas={count})", ")")
    assert "m=256, n=128" not in widened(text)
    assert "m=128, n=128, k=32, occupancy=2" in widened(text)


def _longer(found: re.Match[str]) -> str:
    return f"edge_of_the_tile_along_{found[0]}"


def test_a_long_config_takes_several_lines() -> None:
    text = re.sub(r"\b([mnk])=(?=\d)|(?<=cfg\.)([mnk])\b", _longer, BEFORE)
    new = widened(text)
    assert max(len(line) for line in set(new.splitlines()) - set(text.splitlines())) <= 100
    assert len(yielded(new, (9, 0))) == 9


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("k=128", "k=64", "`k` is the same in every config"),
        ("    else:\n", "        return\n    else:\n", "ends configs early"),
        ("list(configs())", "list(made())", "no list or generator of this file"),
        ("yield SimpleNamespace(m=64, n=64, k=128, occupancy=1, num_ctas=1)",
         "yield from others()", "not written out, or not all alike"),
        ("m=64, n=64, k=128, occupancy=1", "m=64, n=64, k=128", "not all alike"),
        ("sum = ct.mma(left, right, sum)", "sum = sum + ct.sum(left) * ct.sum(right)",
         "no plain matrix product"),
        ("(a, b, c, cfg.m, cfg.n, cfg.k),\n            lambda",
         "(a, b, c, cfg.m, cfg.n, 64),\n            lambda", "no config sets the sizes M, N and K"),
    ],
)  # fmt: skip
def test_what_is_left_alone(old: str, new: str, reason: str) -> None:
    text = BEFORE.replace(old, new)
    assert text != BEFORE
    assert reason in refusal("widen-search", text, 90)


def test_what_a_search_sets() -> None:
    source = Source(BEFORE)
    (kernel,) = CUTILE.chosen(source)
    search = search_of(source, kernel)
    assert search.fields == ("m", "n", "k", "occupancy", "num_ctas")
    assert search.constants == {"m": "M", "n": "N", "k": "K"}
    assert search.hints == {"occupancy": "occupancy", "num_ctas": "num_ctas"}
    assert search.values(source, "k") == ("64", "128")
    by_def = BEFORE.replace(
        "            lambda cfg: (a, b, c, cfg.m, cfg.n, cfg.k),\n", "            arguments,\n"
    ).replace(
        "    def grid(cfg):",
        "    def arguments(c_):\n        return a, b, c, c_.m, c_.n, c_.k\n\n    def grid(cfg):",
    )
    source = Source(by_def)
    (kernel,) = CUTILE.chosen(source)
    assert search_of(source, kernel).constants == {"m": "M", "n": "N", "k": "K"}


SCALED = BEFORE.replace(
    "        sum = ct.mma(left, right, sum)\n",
    "        scale = ct.load(scales, (INDEX,), (1,)).reshape((1, 1))\n"
    "        product = ct.mma(left, right, ct.zeros((M, N), dtype=ct.float32))\n"
    "        sum = sum + product * scale\n",
)


def test_sizes_that_the_kernel_needs_are_not_widened() -> None:
    assert "counts its blocks" in refusal("widen-search", SCALED.replace("INDEX", "k"))


@pytest.mark.parametrize(
    "text",
    [
        SCALED.replace("INDEX", "k * K // 64"),
        BEFORE.replace(", padding_mode=ct.PaddingMode.ZERO", ""),
    ],
)
def test_sizes_that_only_fit_into_those_listed_are_no_larger(text: str) -> None:
    small = text.replace("k=128", "k=16").replace("k=64", "k=32")
    assert {config["k"] for config in yielded(widened(small), (9, 0))} == {16, 32}
    assert len(yielded(widened(small), (9, 0))) > len(yielded(small, (9, 0)))
    assert max(config["k"] for config in yielded(widened(text), (9, 0))) == 128
    loops = small.replace("k=16", "k=32 // 2")
    assert "may not grow, and is computed" in refusal("widen-search", loops)
