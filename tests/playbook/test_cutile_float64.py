"""exp2 and fast-math beside operands that a caller may make float64, where neither exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.environment import probe

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from agent.harness.compiling.cutile import compile_file  # noqa: E402
from agent.syntax import Source  # noqa: E402
from tests.support.playbook import kernel  # noqa: E402
from tests.support.rewriting import ROWS, file, subject  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402
from tests.support.warm_python import warm_interpreter  # noqa: E402

GATED = file(
    "def k(x, w, y):\n    i = ct.bid(0)\n"
    "    t = ct.load(x, (i, 0), (1, TILE), padding_mode=ct.PaddingMode.ZERO)\n"
    "    f = ct.load(w, (0, 0), (1, TILE), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)\n"
    "    ct.store(y, (i, 0), (ct.exp(t * f) / (f + t)).astype(y.dtype))\n",
    ROWS.replace("(x)", "(x, w)"),
    grid="(m,)",
    arguments="x, w, y",
)
REWRITTEN = [
    ("exp2", {}),
    ("fast-math", {"rounding": "FULL"}),
    ("fast-math", {"rounding": "APPROX"}),
]


@pytest.mark.parametrize(("name", "params"), REWRITTEN)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_numbers_of_each_type_are_kept(
    name: str, params: dict[str, str], dtype: torch.dtype, tmp_path: Path
) -> None:
    arguments = (torch.rand(5, 60).to(dtype) + 0.1, torch.rand(1, 60) + 0.1)
    new = playbook.get(name).apply(subject(GATED), params)
    found, expected = (result_of(text, "run", arguments, tmp_path) for text in (new, GATED))
    assert found.dtype == dtype
    tolerance = 1e-12 if dtype == torch.float64 else 2e-3
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize(("name", "params"), REWRITTEN)
def test_it_compiles_for_float64(name: str, params: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    made = "    x = torch.ones(5, 60, dtype=torch.float64, device='cuda')\n"
    made += "    w = torch.ones(1, 60, device='cuda')\n"
    doubled = GATED.replace("def run(x, w):\n", f"def run():\n{made}")
    doubled = doubled.replace("dtype=x.dtype)", "dtype=x.dtype, device='cuda')")
    path.write_text(playbook.get(name).apply(subject(doubled), params))
    source = Source(path.read_text())
    found = compile_file(source, path, python=warm_interpreter(), targets=("sm_90",), timeout_s=120)
    assert found.ok, list(found.lines())
    assert "x: 2-dimensional float64" in "\n".join(found.assumptions)


@pytest.mark.parametrize(
    ("body", "flushes"),
    [
        ("ct.exp(a * ct.astype(x, ct.float16))", "True"),
        ("ct.exp(a * 2.5)", "True"),
        ("ct.exp(a * TILE)", "True"),
        ("ct.exp(a * ct.bid(0))", "True"),
        ("b = ct.mma(ct.load(x, 0, 8), ct.load(x, 1, 8), a)\nct.exp(b)", "True"),
        ("b = ct.load(x, 0, 8)\nct.exp(a * b)", "b.dtype != ct.float64"),
        ("b = ct.load(x, 0, 8)\nb = ct.sum(b * a)\nct.exp(b)", "b.dtype != ct.float64"),
        ("b, c = ct.load(x, 0, 8), 1\nct.exp(a * c)", "True"),
        ("b, c = ct.load(x, 0, 8), 1\nct.exp(a * b)", "b.dtype != ct.float64"),
        ("b = a.astype(x.dtype)\nct.exp(a * b)", "b.dtype != ct.float64"),
        ("b = ct.full((8,), 0, x.dtype)\nct.exp(a + ct.reshape(b, (8,)))", "b.dtype != ct.float64"),
        ("b = ct.load(x, 0, 8)\nc = ct.gather(x, a)\nct.exp(a * (b - c))",
         "b.dtype != ct.float64 and c.dtype != ct.float64"),
    ],
)  # fmt: skip
def test_only_what_may_be_float64_is_asked_for_its_type(body: str, flushes: str) -> None:
    text = kernel(f"a = ct.zeros((8,), ct.float32)\n{body}")
    assert f"flush_to_zero={flushes})" in playbook.get("exp2").apply(subject(text), {})
