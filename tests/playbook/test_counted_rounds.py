"""Passes over a row in a number of rounds that the host counts, where every launch proves it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from agent import playbook  # noqa: E402
from agent.playbook.triton.row_in_registers import RowInRegisters  # noqa: E402
from tests.playbook.test_cutile_whole_rows import CHUNKS  # noqa: E402
from tests.support.rewriting import refusal, subject  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402
from tests.support.triton_numbers import disagreement  # noqa: E402

ROWS = (
    RowInRegisters.before.replace(
        "for start in range(0, n_cols, BLOCK):\n        cols = start + ",
        "for c in range(N):\n        cols = c * BLOCK + ",
    )
    .replace("n_cols, BLOCK: tl.constexpr", "n_cols, N: tl.constexpr, BLOCK: tl.constexpr")
    .replace("BLOCK=1024", "N=chunks, BLOCK=block")
)
LAUNCH = "    l2_normalize_kernel["
HOSTS = {
    "cdiv": "    block = 64\n    chunks = triton.cdiv(n_cols, block)\n",
    "numbers": "    block = 64\n    chunks = triton.cdiv(n_cols, 64)\n",
    "by hand": "    block = 64\n    chunks = (n_cols + block - 1) // block\n",
    "computed": (
        "    block = min(64, triton.next_power_of_2(n_cols))\n"
        "    chunks = triton.cdiv(n_cols, block)\n"
    ),
}


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_a_row_in_counted_rounds_is_held_in_registers(host: str, tmp_path: Path) -> None:
    text = ROWS.replace(LAUNCH, f"{host}{LAUNCH}")
    entry = playbook.get("row-in-registers")
    new = entry.apply(subject(text), {"elements_per_warp": 512})
    assert new.count("in range(ROW // BLOCK):") == 2
    assert "N: tl.constexpr" not in new and "N=" not in new and "chunks =" not in new
    calls = [[[3, 200]], [[2, 64]], [[4, 1]]]
    assert not disagreement("l2_normalize", calls, text, [new], True, tmp_path)


@pytest.mark.parametrize(
    ("host", "more"),
    [
        ("    block, chunks = 64, 4\n", ""),
        ("    block = 64\n    chunks = triton.cdiv(n_cols, 32)\n", ""),
        ("    block = 64\n    chunks = n_cols // block\n", ""),
        ("    block = 64\n    chunks = triton.cdiv(n_rows, block)\n", ""),
        ("    block = 64\n    chunks = triton.cdiv(n_cols, block)\n    block = 32\n", ""),
        (HOSTS["cdiv"], "    squares += N\n"),
    ],
)
def test_rounds_that_no_launch_proves_are_refused(host: str, more: str) -> None:
    text = ROWS.replace(LAUNCH, f"{host}{LAUNCH}").replace("    norm =", f"{more}    norm =")
    line = 1 + text[: text.index("for c in")].count("\n")
    assert refusal("row-in-registers", text) == (
        f"the loop at line {line} does not step through a row by blocks"
    )


COUNTED = CHUNKS.replace("(N + T - 1) // T", "ROUNDS").replace(
    "T: ct.Constant[int]", "ROUNDS: ct.Constant[int], T: ct.Constant[int]"
)
OF_SHAPE = COUNTED.replace("N: ct.Constant[int], ", "").replace("(x, y, n,", "(x, y,")


@pytest.mark.parametrize(
    ("text", "given"),
    [
        (COUNTED, "(x, y, n, ct.cdiv(n, 64), 64)"),
        (COUNTED, "(x, y, n, -(-n // 64), 64)"),
        (OF_SHAPE, "(x, y, ct.cdiv(x.shape[1], 64), 64)"),
    ],
)
@pytest.mark.parametrize("columns", [100, 9000])
def test_a_row_in_counted_rounds_is_held_in_a_tile(
    text: str, given: str, columns: int, tmp_path: Path
) -> None:
    old = text.replace("(x, y, n, min(64, n))", given).replace("(x, y, min(64, n))", given)
    assert given in old
    new = playbook.get("row-in-one-tile").apply(subject(old), {"occupancy": 0})
    assert "ROUNDS" not in new and "k_whole" in new
    x = (torch.randn(3, columns),)
    expected = result_of(old, "run", x, tmp_path)
    torch.testing.assert_close(result_of(new, "run", x, tmp_path), expected)


@pytest.mark.parametrize("rounds", ["4", "ct.cdiv(n, 32)", "n // 64"])
def test_rounds_that_no_launch_proves_are_refused_in_tiles(rounds: str) -> None:
    old = COUNTED.replace("(x, y, n, min(64, n))", f"(x, y, n, {rounds}, 64)")
    assert "steps through a row by a constant" in refusal("row-in-one-tile", old)
