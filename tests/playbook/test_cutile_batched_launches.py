"""batched-launches: loops that launch a kernel for each array, and what has to stay a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent import playbook
from agent.analysis.common.subject import NotApplicable
from agent.environment import probe
from agent.playbook.base import Advice

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from agent.harness.compiling.cutile import compile_file  # noqa: E402
from agent.syntax import Source  # noqa: E402
from tests.support.rewriting import refusal, subject  # noqa: E402
from tests.support.tile_cpu import module_of  # noqa: E402
from tests.support.warm_python import warm_interpreter  # noqa: E402
from tile_agent_pytest.tile_cpu import TileCpu, memory  # noqa: E402

ENTRY = "batched-launches"
SCALED = '''\
import cuda.tile as tile
import torch


@tile.kernel(occupancy=4)
def k(x, scale, y, factor, TILE: tile.Constant[int]):
    """Scaled by factors of its own, and by one of all."""
    i = tile.bid(0)
    own = tile.load(x, (i,), (TILE,), padding_mode=tile.PaddingMode.ZERO)
    by = tile.load(scale, (i,), (TILE,), padding_mode=tile.PaddingMode.ZERO)
    tile.store(y, (i,), (own * by * factor).astype(y.dtype))


def run(xs, scale, factor):
    ys = [torch.empty_like(x) for x in xs]
    stream = torch.cuda.current_stream()
    for x, y in zip(xs, ys, strict=True):
        tile.launch(stream, (tile.cdiv(x.shape[0], 64), 1, 1), k, (x, scale, y, factor, 64))
    return ys
'''
"""Arrays of different lengths, beside one that all launches share."""


def batched(text: str = SCALED) -> str:
    return playbook.get(ENTRY).apply(subject(text), {})


def given(*lengths: int, dtypes: tuple[Any, ...] = (torch.float32,)) -> list[Any]:
    return [torch.randn(n).to(dtypes[i % len(dtypes)]) for i, n in enumerate(lengths)]


@pytest.mark.parametrize(
    ("xs", "launches"),
    [
        (given(10, 300, 64, 1), 1),
        (given(300), 1),
        ([], 0),
        (given(10, 300, 64, dtypes=(torch.float32, torch.float16)), 3),
    ],
    ids=["lengths", "one", "none", "types"],
)
def test_one_launch_gives_what_many_give(xs: list[Any], launches: int, tmp_path: Path) -> None:
    scale = torch.randn(320)
    before, after = module_of(SCALED, tmp_path), module_of(batched(), tmp_path)
    with TileCpu(seed=1):
        expected = before.run(xs, scale, 1.5)
    with TileCpu(seed=2) as cpu:
        found = after.run(xs, scale, 1.5)
    assert len(cpu.launched) == launches
    assert [y.dtype for y in found] == [x.dtype for x in xs]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    for x, y in zip(xs, found, strict=True):
        right = x.float() * scale[: len(x)] * 1.5
        assert torch.allclose(y.float(), right, rtol=2e-3, atol=1e-3)


def test_no_tile_lies_outside_of_a_shorter_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such an access is undefined, and the loop launches no block that has one."""
    region, outside = memory._region, []

    def looked_at(view: Any, *arguments: Any) -> Any:
        found = region(view, *arguments)
        outside.extend(s for s in found[0] if s.start >= s.stop)
        return found

    monkeypatch.setattr(memory, "_region", looked_at)
    entry = playbook.get(ENTRY)
    for text, run, shapes in (
        (SCALED, "run", [(10,), (300,), (1,)]),
        (entry.before, "doubled", [(1, 900), (5, 10), (3, 300)]),
    ):
        xs = [torch.randn(shape) for shape in shapes]
        given = (xs, torch.randn(320), 1.5)[: 3 if run == "run" else 1]
        before, after = module_of(text, tmp_path), module_of(batched(text), tmp_path)
        with TileCpu(seed=1):
            expected = getattr(before, run)(*given)
        with TileCpu(seed=2):
            found = getattr(after, run)(*given)
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert outside == []


def test_what_else_stands_there_stays() -> None:
    text = batched()
    assert "@tile.kernel(occupancy=4)\ndef k(x_list, scale, y_list, factor, TILE: tile." in text
    assert 'of all."""\n    x = x_list[tile.bid(2)]\n    y = y_list[tile.bid(2)]\n' in text
    assert "    if tile.bid(0) < tile.cdiv(y.shape[0], TILE):\n        i = tile.bid(0)\n" in text
    assert "    batch = list(zip(xs, ys, strict=True))\n" in text
    assert "(max(tile.cdiv(x.shape[0], 64) for x, y in batch), 1, len(batch))," in text
    assert refusal(ENTRY, text) == "k is not launched in one place alone"
    advice = playbook.find("batched-copies")
    assert isinstance(advice, Advice)
    assert advice.fits(subject(SCALED)) == "run launches k in the loop at line 17"
    with pytest.raises(NotApplicable):
        advice.fits(subject(text))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("ys = [torch.empty_like(x) for x in xs]", "ys = xs", "`ys` may hold what another launch"),
        ("ys = [torch.empty_like(x) for x in xs]", "ys = [x.mT for x in xs]", "`ys` may hold"),
        ("    stream =", "    ys.append(ys[0])\n    stream =", "line 16 uses `ys` before"),
        ("zip(xs, ys, strict=True)", "zip(xs[1:], ys)", "the loop at line 17 goes through no"),
        ("(x, scale, y, factor, 64)", "(x, ys[0], y, factor, 64)", "line 18 hands on more of"),
        ("(x, scale, y, factor, 64)", "(x, scale, y, x.shape[0], 64)", "line 18 hands on more"),
        ("    return ys", "    return ys, y", "line 19 may use `y` of the loop"),
        ("factor, 64))\n", "factor, 64))\n        y += 1\n", "the loop at line 17 does more than"),
        ("factor, 64))\n", "factor, 64))  # each\n", "the loop at line 17 has comments"),
        ("x.shape[0], 64), 1, 1)", "x.shape[0], 64), 1, 2)", "the grid of k has no axis left"),
        ("x.shape[0], 64), 1", "x.shape[0], 32), 1", "line 11 of k is not seen to store within"),
        ("x.shape[0], 64), 1", "len(x), 64), 1", "`tile.cdiv(len(x), 64)` does not say how many"),
        ("y, (i,), (own", "y, (0,), (own", "line 11 of k is not seen to store within"),
        ("(own * by *", "(own * by * tile.num_blocks(0) *", "line 11 of k rests on its grid"),
        ("    own =", "    TILE = 32\n    own =", "line 19 does not show what k is given"),
        ("    own =", "    if i > 3:\n        return\n    own =", "line 10 of k returns"),
        ("    own =", "    i = tile.minimum(i, 3)\n    own =", "line 12 of k is not seen to"),
        ("tile.store(y, (i,), (", "tile.scatter(y, i, (", "line 11 is no plain load or store"),
        ("    own =", "    for _ in range(i):\n        pass\n    own =", "line 9 of k loops"),
        ("    return ys", "    tile.launch(stream, (1,), k, (xs[0], scale, xs[0], 1.0, 64))\n",
         "k is not launched in one place alone"),
    ],
)  # fmt: skip
def test_what_an_item_may_see_of_another_stays_a_loop(old: str, new: str, why: str) -> None:
    text = SCALED.replace(old, new)
    assert text != SCALED
    assert refusal(ENTRY, text).startswith(why)


def test_a_result_of_another_shape_stays_a_loop() -> None:
    """A block beyond a short item could be within its result."""
    text = SCALED.replace("torch.empty_like(x) for x in xs", "torch.empty_like(z) for z in scale")
    assert refusal(ENTRY, text).startswith("line 11 of k is not seen to store within")


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
def test_it_compiles_for_each_generation(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(batched())
    targets = ("sm_80", "sm_90", "sm_100")
    source = Source(file.read_text())
    found = compile_file(source, file, python=warm_interpreter(), targets=targets, timeout_s=120)
    assert found.ok, list(found.lines())
    assert "k: x_list, y_list: a list of 1-dimensional float16" in "\n".join(found.assumptions)
