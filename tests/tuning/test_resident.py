"""The grids of kernels whose blocks stay: they follow the hints that a search tries."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.cutile.strides import takes_any_grid
from agent.environment import probe
from agent.harness.compiling.cutile import compile_file
from agent.syntax import Source
from tests.support.warm_python import warm_interpreter
from tests.tuning import sources
from tests.tuning.test_plan import plan
from tests.tuning.test_write import written

LINEAR = (
    sources.HEAD
    + """\
@ct.kernel
def linear_kernel(x, w, bias, y, ROWS: Const, COLUMNS: Const, DEPTH: Const):
    across = ct.cdiv(y.shape[1], COLUMNS)
    total = ct.cdiv(y.shape[0], ROWS) * across
    first = ct.bid(0)
    step = ct.num_blocks(0)
    for tile in range(first, total, step):
        i, j = tile // across, tile % across
        acc = ct.zeros((ROWS, COLUMNS), dtype=ct.float32)
        for k in range(ct.num_tiles(x, axis=1, shape=(ROWS, DEPTH))):
            left = ct.load(x, index=(i, k), shape=(ROWS, DEPTH), padding_mode=ct.PaddingMode.ZERO)
            right = ct.load(
                w, index=(k, j), shape=(DEPTH, COLUMNS), padding_mode=ct.PaddingMode.ZERO
            )
            acc = ct.mma(left, right, acc)
        added = ct.load(bias, index=(j,), shape=(COLUMNS,), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.maximum(acc + added[None, :].astype(ct.float32), 0.0)
        ct.store(y, index=(i, j), tile=acc.astype(y.dtype))


def linear(x, w, bias):
    y = torch.empty((x.shape[0], w.shape[1]), dtype=x.dtype, device=x.device)
    rows, columns, depth = 64, 64, 32
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    tiles = ct.cdiv(x.shape[0], rows) * ct.cdiv(w.shape[1], columns)
    grid = (min(sms, tiles), 1, 1)
    args = (x, w, bias, y, rows, columns, depth)
    ct.launch(torch.cuda.current_stream(), grid, linear_kernel, args)
    return y
"""
)

CENTRED = (
    sources.HEAD
    + """\
@ct.kernel
def centre_kernel(x, y, n_rows, N: Const):
    for row in range(ct.bid(0), n_rows, ct.num_blocks(0)):
        tile = ct.load(x, index=(row, 0), shape=(1, N), padding_mode=ct.PaddingMode.ZERO)
        tile = tile.astype(ct.float32)
        mean = ct.sum(tile, axis=1, keepdims=True) / x.shape[1]
        ct.store(y, index=(row, 0), tile=(tile - mean).astype(y.dtype))


def centre(x):
    y = torch.empty_like(x)
    n = 1 << (x.shape[1] - 1).bit_length()
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    blocks = min(sms, x.shape[0])
    ct.launch(torch.cuda.current_stream(), (blocks,), centre_kernel, (x, y, x.shape[0], n))
    return y
"""
)


def kernel_takes_any_grid(text: str) -> bool:
    source = Source(text)
    (kernel,) = CUTILE.kernels(source)
    return takes_any_grid(source, kernel)


def test_a_product_has_the_grid_of_its_recipe() -> None:
    changed = written(LINEAR)
    grid = "(min(sms // (config.num_ctas or 1), tiles) * (config.occupancy or 1), 1, 1)"
    assert f"        return {grid}\n" in changed


def test_rows_have_as_many_blocks_as_the_occupancy_holds() -> None:
    changed = written(CENTRED)
    assert "        blocks = min(sms * (config.occupancy or 1), x.shape[0])\n" in changed
    assert (
        "kernel = _CENTRE_CACHE[key]\n    ct.launch(stream, grid(config), kernel, args)" in changed
    )


def test_hints_that_the_author_gave_beside_another_grid_stay_out_of_it() -> None:
    """Else the fixed config would no longer be what was there before."""
    text = CENTRED.replace("@ct.kernel", "@ct.kernel(occupancy=4)")
    assert "blocks = min(sms, x.shape[0])\n" in written(text)
    one = CENTRED.replace("@ct.kernel", "@ct.kernel(occupancy=1)")
    assert "blocks = min(sms * config.occupancy, x.shape[0])\n" in written(one)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.empty_like(x)\n    n", "torch.empty_like(x)\n    n = 1\n    n"),
        ("(x, y, x.shape[0], n)", "(x, y, x.shape[0] + 0 * sms, n)"),
        ("    blocks = min", "    part = torch.empty(sms)\n    blocks = min"),
        ("    return y", "    print(blocks)\n    return y"),
        ("(blocks,)", "(blocks, 2)"),
        ("min(sms, x.shape[0])", "min(sms - 1, x.shape[0])"),
        ("min(sms, x.shape[0])", "min(132, x.shape[0])"),
    ],
)
def test_a_number_with_another_use_leaves_the_grid(old: str, new: str) -> None:
    text = CENTRED.replace(old, new)
    assert text != CENTRED
    changed = written(text)
    if "n = 1\n" in new:  # assigned twice, but the grid has nothing to do with it
        assert "sms * (config.occupancy or 1)" in changed
    else:
        assert "config.occupancy or 1" not in changed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mean = ct", "ct.store(y, index=(ct.bid(0), 0), tile=tile)\n        mean = ct"),
        ("mean = ct", "if ct.bid(0) == 0:\n            tile = tile + 1\n        mean = ct"),
        ("/ x.shape[1]", "/ ct.num_blocks(0)"),
        ("ct.num_blocks(0))", "ct.num_blocks(1))"),
        ("ct.num_blocks(0))", "2 * ct.num_blocks(0))"),
        ("range(ct.bid(0)", "range(ct.bid(1)"),
    ],
)
def test_a_kernel_that_counts_its_blocks_takes_no_other_grid(old: str, new: str) -> None:
    """Its result, or the buffer it writes to, depends on their number."""
    text = CENTRED.replace(old, new)
    assert text != CENTRED
    assert kernel_takes_any_grid(CENTRED)
    assert not kernel_takes_any_grid(text)
    assert "config.occupancy or 1" not in written(text)


def test_a_helper_that_asks_for_its_block_takes_no_other_grid() -> None:
    text = CENTRED.replace("/ x.shape[1]", "/ divisor(x)")
    text += "\n\ndef divisor(x):\n    return x.shape[1] + 0 * ct.bid(0)\n"
    assert not kernel_takes_any_grid(text)


def test_names_of_the_block_and_the_count_serve_as_well() -> None:
    assert kernel_takes_any_grid(LINEAR)
    assert not kernel_takes_any_grid(LINEAR.replace("+ added", "+ first + added"))


def test_high_occupancies_where_memory_is_the_limit_and_the_grid_follows() -> None:
    def tried(text: str) -> set[int | None]:
        return {config["occupancy"] for config in plan(text).configs_for(90)}

    assert tried(CENTRED) == {None, 1, 2, 4, 8, 16, 32}
    assert tried(CENTRED.replace("min(sms, x.shape[0])", "min(132, x.shape[0])")) == {
        None,
        1,
        2,
        4,
        8,
    }
    assert tried(sources.ROWS) == {None, 1, 2, 4, 8}
    assert max(n or 0 for n in tried(LINEAR)) <= 2
    followed = CENTRED.replace("@ct.kernel", "BUSY = 4\n\n\n@ct.kernel(occupancy=BUSY)")
    followed = followed.replace("min(sms, x", "min(sms * BUSY, x")
    assert tried(followed) == {4, 1, 2, 8, 16, 32}
    slow = CENTRED.replace("astype(y.dtype))", "astype(y.dtype), allow_tma=False)")
    assert tried(slow) == {None, 1, 2, 4, 8}


class TestNumbers:
    """On the CPU: every config of a search, and the one that is launched in the end."""

    @pytest.fixture(autouse=True)
    def _no_gpu(self) -> Any:
        pytest.importorskip("torch", reason="torch is not installed")
        pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")
        from tile_agent_pytest.tile_cpu import TileCpu

        with TileCpu(compute_capability=(9, 0)):
            yield

    def module(self, text: str, folder: Path) -> tuple[ModuleType, list[Any]]:
        from tests.tuning.test_runs import Search, tuned

        made = tuned(text, folder)
        return made, Search(made).tried

    def test_a_product(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch

        from tests.tuning.test_runs import random

        module, tried = self.module(LINEAR, tmp_path)
        x, w, bias = random(200, 70), random(70, 300), random(300)
        expected = torch.relu(x.float() @ w.float() + bias.float())
        torch.testing.assert_close(
            module.linear(x, w, bias).float(), expected, rtol=1e-2, atol=2e-2
        )
        assert {(c.occupancy or 1, c.num_ctas or 1) for c in tried[0]} >= {(2, 1), (1, 1)}
        for config in tried[0]:
            module._LINEAR_CACHE.clear()
            monkeypatch.setattr(module, "_best_linear_config", lambda *_, config=config: config)
            result = module.linear(x, w, bias).float()
            torch.testing.assert_close(result, expected, rtol=1e-2, atol=2e-2)

    def test_rows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch

        from tests.tuning.test_runs import random

        module, tried = self.module(CENTRED, tmp_path)
        x = random(700, 50, dtype=torch.float32)
        expected = x - x.mean(dim=1, keepdim=True)
        torch.testing.assert_close(module.centre(x), expected)
        for config in tried[0]:
            module._CENTRE_CACHE.clear()
            monkeypatch.setattr(module, "_best_centre_config", lambda *_, config=config: config)
            torch.testing.assert_close(module.centre(x), expected)


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize("text", [LINEAR, CENTRED], ids=["product", "rows"])
def test_the_tuned_file_compiles(text: str, tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(written(text))
    found = compile_file(
        Source(file.read_text()),
        file,
        python=warm_interpreter(),
        targets=("sm_80", "sm_90", "sm_100"),
        timeout_s=120,
    )
    assert found.ok, list(found.lines())
