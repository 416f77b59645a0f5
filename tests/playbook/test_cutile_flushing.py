"""Why fast-math leaves sums and products alone: the compiler's verdict on those that may flush."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.environment import probe

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from tests.support.evidence import evidence
from tests.support.rewriting import ROWS, file, refusal
from tests.support.tiers import others_full

FLUSHING = ", flush_to_zero=True"
KERNEL = (
    "def k(x, y):\n"
    "    one = ct.load(x, (ct.bid(0), 0), (1, 1024)).astype(ct.float32)\n"
    "    other = ct.load(x, (ct.bid(0), 1), (1, 1024)).astype(ct.float32)\n"
    "    scaled = ct.mul(one, other{first})\n"
    "    ct.store(y, (ct.bid(0), 0), ct.maximum(ct.add(scaled, one{second}), other{second}))\n"
    "    ct.store(y, (ct.bid(0), 1), ct.sub(one, other{second}))\n"
)
HOST = ROWS.replace("def run(x):\n", "def run():\n    x = torch.ones(64, 2048, device='cuda')\n")


def text(first: str, second: str) -> str:
    host = HOST.replace("dtype=x.dtype", "dtype=x.dtype, device='cuda'")
    return file(KERNEL.format(first=first, second=second), host, grid="(m,)")


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize("sm", others_full([90, 80, 100]))
def test_flushing_saves_no_instruction_and_half_of_it_costs_some(sm: int, tmp_path: Path) -> None:
    counts = []
    for name, flags in (("plain", ("", "")), ("all", (FLUSHING,) * 2), ("half", (FLUSHING, ""))):
        (tmp_path / name).mkdir()
        (artifact,) = evidence(tmp_path / name, text(*flags), sm).artifacts
        counts.append(artifact.instructions.float_ops)
    plain, every, half = counts
    assert plain == every
    assert half > plain, "a product that flushes is not fused with a sum that does not"


def test_fast_math_leaves_them_alone() -> None:
    assert "divides a whole tile" in refusal("fast-math", text("", ""))
