"""relaxed-atomics: sums that many blocks add to, and what an order may matter to."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.environment import probe

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from agent.evidence.advice import suggestions  # noqa: E402
from tests.support.evidence import evidence, only  # noqa: E402
from tests.support.rewriting import refusal, rewritten, subject  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402

ENTRY = "relaxed-atomics"
BACKWARD = """\
import cuda.tile as tile
import torch


@tile.kernel
def k(x, grad, out, weight, bias, n, ROWS: tile.Constant[int], TILE: tile.Constant[int]):
    first, column = tile.bid(0) * ROWS, tile.bid(1)
    at = column * TILE + tile.arange(TILE, dtype=tile.int32)
    for row in range(first, first + ROWS):
        seen = tile.load(x, (row, column), (1, TILE), padding_mode=tile.PaddingMode.ZERO)
        given = tile.load(grad, (row, column), (1, TILE), padding_mode=tile.PaddingMode.ZERO)
        tile.store(out, (row, column), given + given)
        tile.atomic_add(weight, at, (given * seen).reshape((TILE,)))
        tile.atomic_add(bias, (at,), given.reshape((TILE,)))  # of all rows


def run(x, grad):
    out = torch.empty_like(x)
    weight, bias = torch.zeros_like(x[0]), torch.zeros_like(x[0])
    grid = (tile.cdiv(x.shape[0], 4), tile.cdiv(x.shape[1], 128))
    arguments = (x, grad, out, weight, bias, x.shape[1], 4, 128)
    tile.launch(torch.cuda.current_stream(), grid, k, arguments)
    return torch.cat((out, weight[None], bias[None]))
"""
"""Two sums over all rows beside a plain store, in a loop."""
ALONE = BACKWARD.replace("        tile.store(out, (row, column), given + given)\n", "").replace(
    "        tile.atomic_add(weight, at, (given * seen).reshape((TILE,)))\n", ""
)
"""One sum and nothing else."""


def relaxed(text: str) -> str:
    return playbook.get(ENTRY).apply(subject(text), {})


def test_sums_of_a_backward_pass(tmp_path: Path) -> None:
    """Of small integers, so that no order of the sum rounds."""
    given = torch.randint(-3, 4, (37, 300)).float(), torch.randint(-3, 4, (37, 300)).float()
    new = rewritten(ENTRY, BACKWARD, given, folder=tmp_path)
    assert new.count("memory_order=tile.MemoryOrder.RELAXED") == 2
    assert "# of all rows" in new
    found = result_of(new, "run", given, tmp_path)
    x, grad = given
    assert torch.equal(found[-2], (x * grad).sum(0))
    assert torch.equal(found[-1], grad.sum(0))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            "        tile.atomic_add(weight, at",
            "        old = tile.atomic_add(weight, at",
            "line 13 uses the result of an atomic",
        ),
        (
            "tile.store(out, (row, column), given + given)",
            "tile.store(out, (row, column), given + tile.load(bias, (0,), (TILE,)))",
            "line 12 of k does more to bias than accumulate",
        ),
        (
            "tile.atomic_add(bias, (at,)",
            "tile.atomic_xchg(bias, (at,)",
            "line 14 may hand something to another block",
        ),
        (
            "tile.atomic_add(bias, (at,), given.reshape((TILE,)))",
            "tile.atomic_add(bias, (column,), 1)",
            "line 14 may count what is ready: it is not seen to update a tile, and the kernel "
            "writes more",
        ),
        (
            "given.reshape((TILE,)))",
            "given.reshape((TILE,)), memory_order=tile.MemoryOrder.RELEASE)",
            "line 14 gives an order or a scope by itself",
        ),
        (
            "given.reshape((TILE,)))",
            "given.reshape((TILE,)), memory_scope=tile.MemoryScope.SYS)",
            "line 14 gives an order or a scope by itself",
        ),
        ("x, grad, out, weight, bias, x.shape[1]", "x, grad, out, weight, weight, x.shape[1]",
         "line 22 hands the same to "),
    ],
)  # fmt: skip
def test_what_an_order_may_matter_to_stays(old: str, new: str, why: str) -> None:
    text = BACKWARD.replace(old, new)
    assert text != BACKWARD
    assert refusal(ENTRY, text).startswith(why)


def test_a_sum_in_a_helper_stays() -> None:
    helper = "def add(to, at, what):\n    tile.atomic_add(to, at, what)\n\n\n@tile.kernel\n"
    text = BACKWARD.replace("@tile.kernel\n", helper).replace(
        "tile.atomic_add(weight, at", "add(weight, at"
    )
    assert refusal(ENTRY, text) == "line 6 accumulates in a helper"


def test_a_counter_of_a_kernel_that_writes_nothing_else_is_no_signal() -> None:
    text = ALONE.replace("(at,), given.reshape((TILE,))", "(0,), 1.0")
    assert "1.0, memory_order=tile.MemoryOrder.RELAXED" in relaxed(text)


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize(
    "sm", [90, *(pytest.param(other, marks=pytest.mark.full) for other in (80, 100))]
)
def test_no_fence_is_left(sm: int, tmp_path: Path) -> None:
    """No access waits until another block may have seen an atomic."""
    text = ALONE.replace(
        "def run(x, grad):\n",
        'def run():\n    x, grad = torch.empty(2, 64, 256, device="cuda")\n',
    )
    found = []
    for name, version in (("before", text), ("after", relaxed(text))):
        (tmp_path / name).mkdir()
        found.append(only(evidence(tmp_path / name, version, sm)))
    before, after = found
    assert before.instructions.atomics
    assert after.instructions.atomics
    assert any(wait.awaited.acquires for wait in before.waits)
    assert not any(wait.awaited.acquires for wait in after.waits)
    told = [[hint for hint in suggestions(a, multiplies=False) if ENTRY in hint] for a in found]
    assert [len(hints) for hints in told] == [1, 0]
