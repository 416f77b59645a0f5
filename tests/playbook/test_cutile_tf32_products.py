"""tf32-guard: products that are written `a @ b` or `ct.matmul(a, b)`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.subject import NotApplicable
from agent.environment import probe
from agent.launches import ObservedLaunch, ObservedTensor

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from tests.playbook.test_cutile_compiles import compiled, load  # noqa: E402
from tests.support.evidence import evidence, only  # noqa: E402
from tests.support.rewriting import file, refusal, subject  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402

ENTRY = "tf32-guard"
KERNEL = (
    "def k(a, b, y):\n    row, column = ct.bid(0), ct.bid(1)\n"
    "    total = ct.zeros((32, TILE), dtype=ct.float32)\n"
    "    for i in range(ct.num_tiles(a, axis=1, shape=(32, 16))):\n"
    "        left = ct.load(a, (row, i), (32, 16), padding_mode=ct.PaddingMode.ZERO)\n"
    "        right = ct.load(b, (i, column), (16, TILE), padding_mode=ct.PaddingMode.ZERO)\n"
    "        total = {product}\n"
    "    ct.store(y, (row, column), total.astype(y.dtype))\n"
)
HOST = "def run(a, b):\n    m, n = a.shape[0], b.shape[1]\n    y = torch.empty((m, n))\n"
PRODUCTS = [
    "total + left @ right",
    "total + ct.matmul(left, right)",
    "total + (left * 2 @ right) * 0.5",
    "ct.mma(left, right, total) + left @ right",
]


def product(text: str) -> str:
    grid = "(ct.cdiv(m, 32), ct.cdiv(n, TILE))"
    return file(KERNEL.format(product=text), HOST, grid=grid, arguments="a, b, y")


@pytest.mark.parametrize("written", PRODUCTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_numbers_are_those_of_tf32(written: str, dtype: torch.dtype, tmp_path: Path) -> None:
    if dtype != torch.float32 and "ct.mma" in written:
        pytest.skip("this accumulator is for float32")
    text = product(written)
    new = playbook.get(ENTRY).apply(subject(text), {})
    assert " @ " not in new
    assert "not cast yet" in refusal(ENTRY, new)
    a, b = torch.randn(70, 50, dtype=dtype), torch.randn(50, 130, dtype=dtype)
    expected = result_of(text, "run", (a, b), tmp_path)
    found = result_of(new, "run", (a, b), tmp_path)
    if dtype == torch.float32:
        assert not torch.equal(found, expected)
        error = (found - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        assert error < playbook.get(ENTRY).changes_rounding
    else:
        assert torch.equal(found, expected)


BATCHES = """\
import cuda.tile as ct
import torch


@ct.kernel
def k(a, b, y, B: ct.Constant[int]):
    left = ct.load(a, (0, 0, 0), (B, 16, 32))
    right = ct.reshape(ct.load(b, (0, 0, 0), (1, 32, 16)), (1, 32, 16))
    ct.store(y, (0, 0, 0), ct.matmul(left, right))


def run(a, b):
    y = torch.empty((4, 16, 16), device=a.device)
    ct.launch(torch.cuda.current_stream(), (1,), k, (a, b, y, 4))
    return y
"""
SHAPES = {"a": (4, 16, 32), "b": (1, 32, 16)}


def test_batches_are_multiplied_as_one(tmp_path: Path) -> None:
    new = playbook.get(ENTRY).apply(subject(BATCHES), {})
    a, b = (torch.randn(shape) for shape in SHAPES.values())
    expected = result_of(BATCHES, "run", (a, b), tmp_path)
    found = result_of(new, "run", (a, b), tmp_path)
    assert not torch.equal(found, expected)
    error = (found - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert error < playbook.get(ENTRY).changes_rounding


def test_the_helper_holds_what_its_products_need() -> None:
    new = playbook.get(ENTRY).apply(subject(product(PRODUCTS[0])), {})
    assert "x.ndim == 3" not in new
    vector = BATCHES.replace("(B, 16, 32))", "(B, 16, 32)).reshape((64, 32))")
    assert "not cast yet" in refusal(ENTRY, vector)


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize("sm", [90, *(pytest.param(s, marks=pytest.mark.full) for s in (80, 100))])
def test_batches_go_to_the_tensor_cores(sm: int, tmp_path: Path) -> None:
    found = []
    for name, text in (("old", BATCHES), ("new", playbook.get(ENTRY).apply(subject(BATCHES), {}))):
        made = "".join(f"    {n} = torch.ones({s}, device='cuda')\n" for n, s in SHAPES.items())
        (tmp_path / name).mkdir()
        own = text.replace("def run(a, b):\n", f"def run():\n{made}")
        found.append(only(evidence(tmp_path / name, own, sm)).instructions.tensor_core)
    assert not found[0] and found[1]


@pytest.mark.parametrize(
    "written",
    [
        "total + left.astype(ct.bfloat16) @ right.astype(ct.bfloat16)",
        "total + ct.matmul(ct.astype(left, ct.tfloat32), ct.astype(right, ct.tfloat32))",
    ],
)
def test_what_is_cast_stays(written: str) -> None:
    assert "not cast yet" in refusal(ENTRY, product(written))


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "sm", ["sm_90", *(pytest.param(s, marks=pytest.mark.full) for s in ("sm_80", "sm_100"))]
)
def test_it_compiles(sm: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", "0")
    new = playbook.get(ENTRY).apply(subject(product(PRODUCTS[0])), {})
    module = load(tmp_path / "product.py", new)
    arguments = ((dtype, 2), (dtype, 2), ("float32", 2))
    assert compiled(module, "k", arguments, sm).startswith(b"\x7fELF")


@pytest.mark.parametrize(("dtype", "tried"), [("float32", True), ("bfloat16", False)])
def test_it_is_tried_where_float32_was_launched(dtype: str, tried: bool) -> None:
    tensor = ObservedTensor(dtype, (64, 64), (64, 1), aligned=True)
    launch = ObservedLaunch("k", "test_perf", (1,), {}, {"a": tensor, "b": tensor}, {})
    asked = replace(subject(product(PRODUCTS[0])), launches=(launch,))
    if tried:
        assert playbook.get(ENTRY).variants(asked) == [{}]
    else:
        with pytest.raises(NotApplicable, match="what was launched is given bfloat16"):
            playbook.get(ENTRY).variants(asked)
