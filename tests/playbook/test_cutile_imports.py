"""What entries write at a file's level, where imports come late, in a `try` or in a function."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from agent import playbook

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from agent.analysis.common.subject import NotApplicable  # noqa: E402
from tests.support.rewriting import subject  # noqa: E402
from tests.support.tile_cpu import module_of  # noqa: E402
from tile_agent_pytest.tile_cpu import TileCpu  # noqa: E402

KERNEL = """\
@ct.kernel
def scaled_product(a, b, c, TILE: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    acc = ct.zeros((16, TILE), dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(16, 32))):
        left = ct.load(a, (row, k), (16, 32), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, (k, column), (32, TILE), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(left, right, acc)
    ct.store(c, (row, column), (acc / (1 + ct.exp(-acc))).astype(c.dtype))
"""
HOST = """\
def run(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(a.shape[0], 16), ct.cdiv(b.shape[1], 64))
    ct.launch(torch.cuda.current_stream(), grid, scaled_product, (a, b, c, 64))
    return c
"""
TILE, TORCH = "import cuda.tile as ct\n", "import torch\n"
RAISING = 'except ImportError as error:\n    raise RuntimeError("install it") from error\n'
BOTH = f"{KERNEL}\n\n{HOST}"
FACTORY = "def made():\n{imports}" + textwrap.indent(BOTH, "    ") + "    return run\n"
FILES = {
    "plain": f"{TILE}{TORCH}\n\n{BOTH}",
    "late": f"{TILE}\n\n{KERNEL}\n\n{TORCH}\n\n{HOST}",
    "all late": f"{TILE}\n\n{BOTH}\n\n{TORCH}from typing import Annotated\n"
    "from types import SimpleNamespace\nimport os\n",
    "try": f"{TORCH}\ntry:\n    {TILE}{RAISING}\n\n{BOTH}",
    "only a try": f'"""A product."""\ntry:\n    {TILE}    {TORCH}{RAISING}\n\n{BOTH}',
    "other spelling": f"from cuda import tile\n{TORCH}\n\n{BOTH.replace('ct.', 'tile.')}",
    "checkers": f"from typing import TYPE_CHECKING\n\n{TILE}\nif TYPE_CHECKING:\n    {TORCH}\n\n"
    f"{KERNEL}\n\n" + HOST.replace("    c =", "    import torch\n\n    c =", 1),
    "factory": FACTORY.format(imports=f"    {TILE}    {TORCH}\n") + "\n\nrun = made()\n",
    "factory, ct above": TILE + FACTORY.format(imports=f"    {TORCH}\n") + "\n\nrun = made()\n",
}
ENTRIES = (
    *("autotune", "batched-launches", "check-bounds", "exp2", "fast-math", "persistent-blocks"),
    *("static-shapes", "swapped-operands", "tf32-guard"),
)
ALWAYS = {"exp2", "fast-math"}
"""What the factory's kernel takes wherever its language is imported."""


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("form", FILES)
def test_what_is_written_finds_its_names(form: str, name: str, tmp_path: Path) -> None:
    text = FILES[form]
    a, b = torch.randn(40, 50), torch.randn(50, 70)
    with TileCpu(seed=1):
        expected = module_of(text, tmp_path).run(a, b)
    asked = subject(text)
    entry = playbook.get(name)
    try:
        tried = [entry.apply(asked, params) for params in entry.variants(asked)]
    except NotApplicable:
        assert "factory" in form or not _is_plain(name)
        assert name not in ALWAYS
        return
    for new in tried:
        with TileCpu(seed=1):
            module = module_of(new, tmp_path)
            if name == "autotune":
                module.exhaustive_search = _first
            torch.testing.assert_close(module.run(a, b), expected, rtol=2e-3, atol=2e-2)


def _is_plain(name: str) -> bool:
    """Whether an entry takes the kernel where all imports stand at the top."""
    try:
        return bool(playbook.get(name).variants(subject(FILES["plain"])))
    except NotApplicable:
        return False


def _first(configs: Any, *_: Any, **__: Any) -> Any:
    class Found:
        config = configs[0]

    class Result:
        best = Found

    return Result


OWN_ARRAYS = """\
import cuda.tile as ct


@ct.kernel
def k(x, y, N: ct.Constant[int]):
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, N), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, index=(row, 0), tile=tile * 2)


def f(stream, x, y, rows, n):
    ct.launch(stream, (rows, 1, 1), k, (x, y, 1024))
"""


@pytest.mark.parametrize("name", ["autotune", "check-bounds"])
def test_arrays_that_may_be_none_of_torchs_are_asked_nothing(name: str) -> None:
    """cuTile takes whatever has `__cuda_array_interface__`, which need not have a shape."""
    asked = subject(OWN_ARRAYS, sm=90)
    with pytest.raises(NotApplicable, match="the file does not import torch"):
        playbook.get(name).variants(asked)
