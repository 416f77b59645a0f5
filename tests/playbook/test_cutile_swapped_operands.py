"""swapped-operands: products of tiles with few rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent import playbook
from agent.environment import probe

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from agent.analysis.common.subject import NotApplicable  # noqa: E402
from agent.evidence.advice import suggestions  # noqa: E402
from agent.launches import ObservedLaunch  # noqa: E402
from agent.syntax import Source  # noqa: E402
from tests.playbook.test_cutile_compiles import compiled, load  # noqa: E402
from tests.support.evidence import evidence, only  # noqa: E402
from tests.support.rewriting import refusal, subject  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402

ENTRY = "swapped-operands"
GATED = """\
import cuda.tile as tile
import torch


def added(x, weight, total):
    return tile.mma(x, weight.transpose(), acc=total)


@tile.kernel
def k(x, up, gate, y, TM: tile.Constant[int], TN: tile.Constant[int], TK: tile.Constant[int]):
    row, column = tile.bid(0), tile.bid(1)
    one = tile.zeros((TM, TN), dtype=tile.float32)
    other = tile.zeros((TM, TN), dtype=tile.float32)
    for i in range(tile.num_tiles(x, axis=1, shape=(TM, TK))):
        left = tile.load(x, (row, i), (TM, TK), padding_mode=tile.PaddingMode.ZERO)
        right = tile.load(gate, (i, column), (TK, TN), padding_mode=tile.PaddingMode.ZERO)
        weight = tile.load(up, (column, i), (TN, TK), padding_mode=tile.PaddingMode.ZERO)
        one = added(left, weight, one)
        other = tile.mma(left, right, other)
    tile.store(y, (row, column), (one * tile.exp(-other)).astype(y.dtype))


def run(x, up, gate, rows=16, columns=64):
    m, n = x.shape[0], gate.shape[1]
    y = torch.empty((m, n), dtype=torch.float32, device=x.device)
    grid = (tile.cdiv(m, rows), tile.cdiv(n, columns))
    tile.launch(torch.cuda.current_stream(), grid, k, (x, up, gate, y, rows, columns, 32))
    return y
"""
"""Two products in one loop, one of them in a helper, of weights that lie either way."""


def swapped(text: str) -> str:
    return playbook.get(ENTRY).apply(subject(text), {})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("sizes", [(16, 64), (32, 128), (64, 64), (16, 32)])
def test_numbers_are_kept_at_all_sizes(
    sizes: tuple[int, int], dtype: torch.dtype, tmp_path: Path
) -> None:
    """Ragged extents, and sizes on either side of what the helper asks for."""
    new = swapped(GATED)
    assert new.count("= product(") == 1
    assert "return product(x, weight.transpose(), acc=total)" in new
    x, up, gate = torch.randn(40, 70), torch.randn(90, 70), torch.randn(70, 90)
    given = (*(t.mul(0.1).to(dtype) for t in (x, up, gate)), *sizes)
    expected = result_of(GATED, "run", given, tmp_path)
    found = result_of(new, "run", given, tmp_path)
    error = (found - expected).abs().max() / expected.abs().max()
    assert error < playbook.get(ENTRY).changes_rounding
    x, up, gate = (t.double() for t in given[:3])
    right = (x @ up.T) * torch.exp(-(x @ gate))
    assert torch.allclose(found.double(), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rows=16", "rows=64"),
        ("columns=64", "columns=32"),
        ("other)\n    tile", "other, use_fast_acc=True)\n    tile"),
    ],
)
def test_what_gains_nothing_stays(old: str, new: str) -> None:
    """The one product whose sizes the text tells."""
    text = PLAIN.replace(old, new)
    assert text != PLAIN
    assert "fewer than 64 rows" in refusal(ENTRY, text)


CONFIG = 'CONFIG = {"rows": 64, "columns": 128}\nIS_TUNED = False\n'


@pytest.mark.parametrize(
    ("config", "offered"),
    [
        (CONFIG, False),
        (CONFIG.replace("64", "1 << 6"), False),
        (CONFIG.replace("64", "16"), True),
        (CONFIG.replace("False", "bool(environ)"), True),
        (CONFIG + "CONFIG.update(read())\n", True),
    ],
)
def test_sizes_of_a_dictionary_are_known(config: str, offered: bool) -> None:
    """As in learn-cuTile: a fixed config, and a search that is switched off."""
    text = PLAIN.replace("def run():\n", f"{config}\ndef run():\n").replace(
        "    rows=16\n    columns=64\n",
        "    config = tuned() if IS_TUNED else CONFIG\n"
        '    rows, columns = config["rows"], config["columns"]\n',
    )
    if offered:
        assert playbook.get(ENTRY).variants(subject(text)) == [{}]
    else:
        assert "fewer than 64 rows" in refusal(ENTRY, text)


PLAIN = """\
import cuda.tile as tile
import torch


@tile.kernel
def k(x, gate, y, TM: tile.Constant[int], TN: tile.Constant[int]):
    other = tile.zeros((TM, TN), dtype=tile.float32)
    for i in range(tile.num_tiles(x, axis=1, shape=(TM, 32))):
        left = tile.load(x, (tile.bid(0), i), (TM, 32))
        right = tile.load(gate, (i, tile.bid(1)), (32, TN))
        other = tile.mma(left, right, other)
    tile.store(y, (tile.bid(0), tile.bid(1)), other)


def run():
    rows=16
    columns=64
    x, gate = torch.empty(32, 64, device="cuda"), torch.empty(64, 128, device="cuda")
    x, gate = x.bfloat16(), gate.bfloat16()
    y = torch.empty((32, 128), device="cuda")
    tile.launch(torch.cuda.current_stream(), (2, 2), k, (x, gate, y, rows, columns))
"""


HANDED = """\
    tuner(
        torch.cuda.current_stream(),
        kernel=k,
        args_fn=lambda cfg: (x, gate, y, cfg.ROWS, cfg.COLUMNS),
    )


def configs(large):
    if large:
        return [Config(ROWS=128, COLUMNS=64), Config(ROWS=256, COLUMNS=64)]
    return [Config(ROWS=64, COLUMNS=64)]
"""
REPORTED = (
    "@triton.testing.perf_report([triton.testing.Benchmark(x_names=['m'], x_vals=[1], "
    "line_arg='size', line_vals=[128, 256])])\ndef run(m, size):\n    rows, columns = size, 64\n"
)
TUNED, CASES = (
    "those at line 11 have 64 or 128 or 256 rows",
    "those at line 12 have 128 or 256 rows",
)


def handed(old: str = "", new: str = "") -> str:
    return (PLAIN[: PLAIN.index("    tile.launch")] + HANDED).replace(old or "\0", new)


def reported(old: str = "", new: str = "") -> str:
    text = PLAIN.replace("def run():\n    rows=16\n    columns=64\n", REPORTED)
    return f"import triton\n{text}".replace(old or "\0", new)


@pytest.mark.parametrize(
    ("text", "reason"), [(handed(), TUNED), (reported(), CASES)], ids=["configs", "cases"]
)
def test_sizes_that_are_listed_are_known(text: str, reason: str) -> None:
    assert refusal(ENTRY, text).endswith(f"columns or more: {reason}")


@pytest.mark.parametrize(
    "text",
    [
        handed("ROWS=64", "ROWS=32"),
        handed("ROWS=64", "ROWS=least"),
        handed("def configs", "OTHER = Config(ROWS=128)\n\n\ndef configs"),
        handed("cfg.ROWS, cfg", "cfg.ROWS, *cfg"),
        handed("cfg.ROWS,", "rows_of(cfg),"),
        handed("def configs", "TABLE = [k]\n\n\ndef configs"),
        reported("[128", "[32"),
        reported("[128", "[least"),
        reported("size, 64", "size // 2, 64"),
        reported("'size'", "'other'"),
    ],
)
def test_a_size_that_is_small_or_open_may_gain(text: str) -> None:
    assert playbook.get(ENTRY).variants(subject(text)) == [{}]


def test_batches_and_what_is_exchanged_stay() -> None:
    assert "fewer than 64 rows" in refusal(ENTRY, swapped(PLAIN))
    batched = PLAIN.replace("(TM, 32))\n        right", "(1, TM, 32))\n        right")
    assert "fewer than 64 rows" in refusal(ENTRY, batched)
    assert refusal(ENTRY, PLAIN, sm=80) == "sm_80 multiplies tiles of few rows as any other"
    assert refusal(ENTRY, PLAIN, sm=120).startswith("sm_120 ")


needs_compiler = pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")


@needs_compiler
@pytest.mark.parametrize(
    ("sm", "instruction"),
    [(90, "HGMMA"), pytest.param(100, "UTCHMMA", marks=pytest.mark.full)],
)
def test_the_tensor_cores_of_the_generation_are_used(
    sm: int, instruction: str, tmp_path: Path
) -> None:
    found = []
    for name, text in (("before", PLAIN), ("after", swapped(PLAIN))):
        (tmp_path / name).mkdir()
        found.append(only(evidence(tmp_path / name, text, sm)))
    before, after = found
    assert set(before.instructions.tensor_core) == {"HMMA"}
    assert set(after.instructions.tensor_core) == {instruction}
    told = [[h for h in suggestions(a, multiplies=True) if ENTRY in h] for a in found]
    assert [len(hints) for hints in told] == [1, 0]
    assert told[0][0].startswith("the products at line 11 use the tensor cores as sm_80 has them: ")


@needs_compiler
@pytest.mark.parametrize(
    "sm", ["sm_90", *(pytest.param(s, marks=pytest.mark.full) for s in ("sm_80", "sm_100"))]
)
def test_both_products_compile(sm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", "0")
    module = load(tmp_path / "gated.py", swapped(GATED))
    arrays = (("bfloat16", 2), ("bfloat16", 2), ("bfloat16", 2), ("float32", 2))
    assert compiled(module, "k", (*arrays, 16, 64, 32), sm).startswith(b"\x7fELF")


@pytest.mark.parametrize(("rows", "columns", "tried"), [(16, 64, 1), (128, 64, 0), (16, 32, 0)])
def test_what_a_tuner_chose_for_what_is_timed_says_whether_it_may_gain(
    rows: int, columns: int, tried: int
) -> None:
    sizes = {"TM": rows, "TN": columns, "TK": 32}
    launch = ObservedLaunch("k", "test_perf", (1,), sizes, {}, {})
    asked = replace(subject(GATED.replace("rows, columns, 32)", "*tuned(x))")), launches=(launch,))
    entry = playbook.get(ENTRY)
    if tried:
        assert entry.variants(asked) == [{}]
    else:
        with pytest.raises(NotApplicable, match="multiplies tiles of 64 rows and more"):
            entry.variants(replace(asked, source=without_helper(asked.source)))


def without_helper(source: Source) -> Source:
    """The product of the helper, whose tiles no launch names, is written out."""
    return source.with_text(
        source.text.replace(
            "one = added(left, weight, one)", "one = tile.mma(left, right, one)"
        ).replace("return tile.mma(x, weight.transpose(), acc=total)", "return x + weight + total")
    )
