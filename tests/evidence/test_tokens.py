"""Which accesses wait for which others: read from what cuTile's compiler makes of real kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.environment import probe
from agent.evidence.advice import suggestions
from agent.evidence.model import Artifact
from agent.evidence.text import difference, lines
from agent.evidence.tokens import MemoryAccess, Wait
from tests.support.evidence import evidence, only
from tests.support.tiers import others_full

ENVIRONMENT = probe()
pytestmark = pytest.mark.skipif(
    ENVIRONMENT.versions["cuda-tile"] is None or ENVIRONMENT.tileiras is None,
    reason="tileiras is not installed",
)

FILE = """\
import cuda.tile as ct
import torch

T = 64


@ct.kernel
def kernel(x, y, z, n):
    row = ct.bid(0)
{body}


def run():
    x, y, z = (torch.ones(T, 16 * T, device="cuda") for _ in range(3))
    ct.launch(torch.cuda.current_stream(), (1,), kernel, (x, y, z, 8))
"""
"""The body begins at line 10."""

SHIFTED = ["for i in range(n):",
           "    tile = ct.load(x, (row, i + 1), (T, T))",
           "    ct.store(y, (row, i + 1), tile * 2)"]  # fmt: skip
OWN = ["for i in range(1, n + 1):",
       "    tile = ct.load(x, (row, i), (T, T))",
       "    ct.store(y, (row, i), tile * 2)"]  # fmt: skip
IN_PLACE = ["for i in range(n):",
            "    tile = ct.load(x, (row, i), (T, T))",
            "    ct.store(x, (row, i), tile * 2)"]  # fmt: skip
SUMS = ["lane = ct.arange(T, dtype=ct.int32)",
        "for i in range(n):",
        "    tile = ct.load(x, (row, i), (T, T))",
        "    ct.atomic_add(y, (row, lane), ct.sum(tile, axis=0))"]  # fmt: skip
RELAXED = [*SUMS[:3], SUMS[3][:-1] + ", memory_order=ct.MemoryOrder.RELAXED)"]
AFTER_A_LOOP = [*SHIFTED, "ct.store(z, (row, 0), ct.load(y, (row, 1), (T, T)))"]
BY_CONDITION = ["i = 0",
                "while i < n:",
                "    if i > 2:",
                "        ct.store(y, (row, i), ct.load(x, (row, i), (T, T)))",
                "    i += 1"]  # fmt: skip
NESTED = ["total = ct.full((T, T), 0, ct.float32)",
          "for i in range(n):",
          "    for k in range(n):",
          "        total = total + ct.load(x, (row, k), (T, T))",
          "    ct.store(x, (row, i), total)"]  # fmt: skip
UNROLLED = ["for i in ct.static_iter(range(3)):",
            "    ct.store(y, (row, i), ct.load(x, (row, i), (T, T)))"]  # fmt: skip
HELPER = ["both(x, row)", "", "", "def both(array, row):",
          "    ct.store(array, (row, 0), ct.full((T, T), 1, ct.float32))",
          "    ct.store(array, (row, 1), ct.load(array, (row, 0), (T, T)))"]  # fmt: skip


def load(line: int) -> MemoryAccess:
    return MemoryAccess(line, "load")


def store(line: int) -> MemoryAccess:
    return MemoryAccess(line, "store")


ATOMIC = MemoryAccess(13, "atomic")
ACQUIRING = MemoryAccess(13, "atomic", acquires=True)
CASES = {
    "shifted": (SHIFTED, [Wait(store(12), store(12), True)]),
    "own": (OWN, []),
    "in place": (IN_PLACE, [Wait(load(11), store(12), True), Wait(store(12), store(12), True)]),
    "sums": (SUMS, [Wait(load(12), ACQUIRING, True), Wait(ACQUIRING, ACQUIRING, True)]),
    "relaxed": (RELAXED, [Wait(ATOMIC, ATOMIC, True)]),
    "after a loop": (
        AFTER_A_LOOP,
        [Wait(store(12), store(12), True), Wait(load(13), store(12), False)],
    ),
    "by condition": (BY_CONDITION, [Wait(store(13), store(13), True)]),
    "nested": (NESTED, [Wait(load(13), store(14), True), Wait(store(14), store(14), True)]),
    "unrolled": (UNROLLED, [Wait(store(11), store(11), False)]),
    "helper": (HELPER, [Wait(load(15), store(14), False), Wait(store(15), store(14), False)]),
}


def compiled(folder: Path, body: list[str], sm: int = 90) -> Artifact:
    folder.mkdir(exist_ok=True)
    inside = [f"    {line}" for line in body[: body.index("") if "" in body else None]]
    text = "\n".join([*inside, *body[len(inside) :]])
    return only(evidence(folder, FILE.format(body=text), sm))


@pytest.mark.parametrize("name", others_full(CASES))
def test_what_waits(name: str, tmp_path: Path) -> None:
    body, expected = CASES[name]
    assert list(compiled(tmp_path, body).waits) == expected


@pytest.mark.full
@pytest.mark.parametrize("sm", [80, 100])
def test_other_generations_order_alike(sm: int, tmp_path: Path) -> None:
    assert list(compiled(tmp_path, IN_PLACE, sm).waits) == CASES["in place"][1]


@pytest.mark.full
def test_an_atomic_that_acquires_keeps_loads_from_being_made_ahead(tmp_path: Path) -> None:
    """The order is in the machine code: without it the loads of later rounds have a place."""
    before, after = compiled(tmp_path / "a", SUMS), compiled(tmp_path / "b", RELAXED)
    assert after.shared_bytes > 4 * before.shared_bytes
    (said,) = [line for line in suggestions(before, multiplies=False) if "acquires" in line]
    assert said.startswith("nothing at line 12 is loaded ahead of line 13, which acquires: ")
    assert not [line for line in suggestions(after, multiplies=False) if "acquires" in line]


def test_it_is_told_with_what_it_suggests(tmp_path: Path) -> None:
    in_place = compiled(tmp_path / "a", IN_PLACE)
    said = "\n".join(lines([in_place], ()))
    assert "    line 11: the load waits for the store at line 12, of the round before\n" in said
    assert "-> the loads at line 11 wait for what the round before stores: " in said
    assert "loc(" not in in_place.listing
    shifted = compiled(tmp_path / "b", SHIFTED)
    (hint,) = [line for line in suggestions(shifted, multiplies=False) if "token-order" in line]
    assert hint.startswith("the stores at line 12 go one after the other: ")
    own = compiled(tmp_path / "c", OWN)
    (changed,) = difference([shifted], [own])
    assert "waits for a round before 1 -> 0" in changed
