"""What a written search carries out later than the author wrote it, or under other names."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from agent.analysis.common.subject import NotApplicable  # noqa: E402
from tests.tuning.sources import HEAD  # noqa: E402
from tests.tuning.test_runs import Search, load, no_gpu, random, tuned  # noqa: E402, F401

PRODUCT = (
    HEAD
    + """\
@ct.kernel
def matmul_kernel(A, B, C, tm: Const, tn: Const, tk: Const):
    bidx = ct.bid(0)
    bidy = ct.bid(1)
    sums = ct.full((tm, tn), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(tm, tk))):
        a = ct.load(A, index=(bidx, k), shape=(tm, tk), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, index=(k, bidy), shape=(tk, tn), padding_mode=ct.PaddingMode.ZERO)
        sums = ct.mma(a, b, sums)
    ct.store(C, index=(bidx, bidy), tile=ct.astype(sums, C.dtype))


def run(A, B):
    tm, tn, tk = 64, 32, 32
    m, k = A.shape
    _, n = B.shape
    C = torch.empty((m, n), device=A.device, dtype=A.dtype)
    grid = (ct.cdiv(m, tm), ct.cdiv(n, tn))
    ct.launch(torch.cuda.current_stream(), grid, matmul_kernel, (A, B, C, tm, tn, tk))
    return C
"""
)
GRID = "    grid = (ct.cdiv(m, tm), ct.cdiv(n, tn))\n"
LAUNCH = "    ct.launch(torch.cuda.current_stream(), grid, matmul_kernel, (A, B, C, tm, tn, tk))\n"
NAMED = LAUNCH.replace("(A, B, C, tm, tn, tk)", "args")
BOTH = pytest.mark.parametrize("params", [{}, {"persistent": True}], ids=["plain", "persistent"])


def changed(old: str, new: str) -> str:
    assert old in PRODUCT
    return PRODUCT.replace(old, new)


def agrees(module: ModuleType) -> None:
    """What it gives is the product, after a search and without one."""
    Search(module)
    a, b = random(150, 70), random(70, 45)
    for _ in range(2):
        torch.testing.assert_close(
            module.run(a, b).float(), a.float() @ b.float(), rtol=1e-2, atol=1e-2
        )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LAUNCH, f"    args = (A, B.clone(), C, tm, tn, tk)\n    B.zero_()\n{NAMED}"),
        (
            LAUNCH,
            "    args = (A, B.clone(), C, tm, tn, tk)\n    for _ in range(2):\n    "
            f"{NAMED}        B.zero_()\n",
        ),
        (GRID, "    s = [m, n]\n    grid = (ct.cdiv(s[0], tm), ct.cdiv(s[1], tn))\n    s[0] = 1\n"),
        (
            GRID,
            "    s = list(A.shape)\n    grid = (ct.cdiv(s[0], tm), ct.cdiv(n, tn))\n    s.pop()\n",
        ),
    ],
    ids=["copy", "loop", "element", "list"],
)
@BOTH
def test_what_may_have_changed_by_the_launch_is_not_put_off(
    old: str, new: str, params: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(NotApplicable, match="may give something else at the launch"):
        tuned(changed(old, new), tmp_path, params)


def test_the_state_of_an_object_is_not_read_later(tmp_path: Path) -> None:
    text = (
        HEAD
        + """\
@ct.kernel
def add_kernel(x, y, seed, TILE: Const):
    row = ct.bid(0)
    t = ct.load(x, index=(row, 0), shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, index=(row, 0), tile=t + seed)


class Add:
    def __init__(self):
        self.seed = 0

    def __call__(self, x):
        y = torch.empty_like(x)
        args = (x, y, self.seed, 1 << (x.shape[1] - 1).bit_length())
        self.seed += 1
        ct.launch(torch.cuda.current_stream(), (x.shape[0],), add_kernel, args)
        return y
"""
    )
    with pytest.raises(NotApplicable, match="may give something else at the launch"):
        tuned(text, tmp_path)
    tuned(text.replace("        self.seed += 1\n", ""), tmp_path)
    of_module = text.replace("self.seed", "STATE.seed")
    with pytest.raises(NotApplicable, match="may give something else at the launch"):
        tuned(of_module, tmp_path)
    of_another = text.replace("x, y, self.seed,", "x, y, self.seed.size(0),")
    with pytest.raises(NotApplicable, match="may give something else at the launch"):
        tuned(of_another, tmp_path)
    stream = text.replace("self.seed,", "3,").replace("self.seed += 1", "s = torch.cuda.Stream()")
    tuned(stream, tmp_path)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LAUNCH, f"    args = (A, B.contiguous(), C, tm, tn, tk)\n{NAMED}"),  # right behind it
        (LAUNCH, f"    args = (A, B.contiguous(), C, tm, tn, tk)\n    rows = m // 2\n{NAMED}"),
        (GRID, "    s = [m, n]\n    grid = (ct.cdiv(s[0], tm), ct.cdiv(s[1], tn))\n"),
        (GRID, "    grid: tuple = (ct.cdiv(m, tm), ct.cdiv(n, tn))\n"),
        (GRID, "    grid = ((m + tm - 1) // tm, ct.cdiv(B.size(1), tn), 1)\n    B.shape\n"),
    ],
    ids=["behind", "plain between", "list", "annotated", "shapes"],
)
@BOTH
def test_what_lasts_is(old: str, new: str, params: dict[str, Any], tmp_path: Path) -> None:
    agrees(tuned(changed(old, new), tmp_path, params))


@pytest.mark.parametrize(
    "grid",
    [
        "blocks = lambda size: (size + tm - 1) // tm\n    grid = (blocks(m), ct.cdiv(n, tn))",
        "grid = tuple(ct.cdiv(s, t) for s, t in ((m, tm), (n, tn)))",
        "grid = ((gx := ct.cdiv(m, tm)), ct.cdiv(n, tn))",
    ],
)
@BOTH
def test_a_grid_with_names_of_its_own(grid: str, params: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match=r"with names of its own|is no tuple"):
        tuned(changed(GRID, f"    {grid}\n"), tmp_path, params)


@pytest.mark.usefixtures("no_gpu")
def test_a_star_in_the_grid_stays(tmp_path: Path) -> None:
    grid = "    tiles = (ct.cdiv(m, tm), ct.cdiv(n, tn))\n    grid = (*tiles, 1)\n"
    agrees(tuned(changed(GRID, grid), tmp_path))
    with pytest.raises(NotApplicable, match="is no tuple"):
        tuned(changed(GRID, grid), tmp_path, {"persistent": True})


@pytest.mark.parametrize("hint", ["num_ctas", "occupancy"])
def test_a_hint_that_depends_on_the_gpu_is_no_number_for_a_grid(hint: str, tmp_path: Path) -> None:
    text = changed("@ct.kernel\n", f"@ct.kernel({hint}=ct.ByTarget(sm_100=2, default=1))\n")
    tuned(text, tmp_path)
    with pytest.raises(NotApplicable, match=f"{hint} of matmul_kernel is no integer"):
        tuned(text, tmp_path, {"persistent": True})


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", ["kernel", "best", "search", "args", "stream", "config", "tried"])
@BOTH
def test_a_kernel_with_a_name_of_the_written_code(
    name: str, params: dict[str, Any], tmp_path: Path
) -> None:
    module = tuned(PRODUCT.replace("matmul_kernel", name), tmp_path, params)
    agrees(module)
    with pytest.raises(NotApplicable, match=rf"{name} is (tuned|launched)"):
        tuned(Path(module.__file__ or "").read_text(), tmp_path, params)


@pytest.mark.parametrize("name", ["os", "SimpleNamespace", "exhaustive_search"])
def test_a_kernel_with_a_name_that_is_imported(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match=f"has the name {name}"):
        tuned(PRODUCT.replace("matmul_kernel", name), tmp_path)
