"""Why fast-math leaves sums and products alone: the compiler's verdict on those that may flush."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.environment import probe

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from tests.support.evidence import evidence  # noqa: E402
from tests.support.rewriting import ROWS, file, refusal, subject  # noqa: E402
from tests.support.tiers import others_full  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402

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


SCALED = (
    "def k(x, y):\n"
    "    values = ct.load(x, (ct.bid(0), 0), (1, 32)).astype(ct.float32)\n"
    "    most = ct.max(ct.abs(values), 1, keepdims=True)\n"
    "    power = ct.where(most > 0.0, ct.ceil(ct.log2(most)), -127.0)\n"
    "    scale = {exp}\n"
    "    ct.store(y, (ct.bid(0), 0), {divided} + ct.sqrt(ct.abs(values)))\n"
)
EXPONENTIALS = [
    "ct.exp2(ct.broadcast_to(power, (1, 32)))",
    "ct.exp(ct.broadcast_to(power, (1, 32)) * 0.6931472)",
]


@pytest.mark.parametrize("exp", EXPONENTIALS)
@pytest.mark.parametrize(
    "divided",
    [
        "values / scale",
        "values / (2.0 * scale.reshape((1, 32)))",
        "ct.truediv(values, ct.mul(scale, 2.0))",
        "values * ct.rsqrt(scale)",
    ],
)
def test_a_power_of_two_that_divides_stays_one(exp: str, divided: str, tmp_path: Path) -> None:
    """As the scale of a block in MXFP8, 2^-127 where all are zero: 0 by 0 is no number."""
    kernel = SCALED.format(exp=exp, divided=divided)
    source = file(kernel, ROWS, grid="(m,)")
    x = torch.randn(3, 32)
    x[1] = 0.0
    expected = result_of(source, "run", (x,), tmp_path)
    assert bool(torch.isfinite(expected).all())
    entry = playbook.get("fast-math")
    for params in entry.variants(subject(source)):
        found = result_of(entry.apply(subject(source), params), "run", (x,), tmp_path)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    if "ct.exp(" in exp:
        assert "none of the 1 ct.exp" in refusal("exp2", source)
