"""Products and attention over a batch, whose tiles or arrays another shape is made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agent.environment import probe
from agent.harness.compiling.cutile import compile_file
from agent.syntax import Source
from tests.support.warm_python import warm_interpreter
from tests.tuning import sources
from tests.tuning.test_plan import plan
from tests.tuning.test_write import written

ZERO = "padding_mode=ct.PaddingMode.ZERO)"
BATCHED = (
    sources.MATMUL.replace("i, j = ct.bid(0)", "h, i, j = ct.bid(2), ct.bid(0)")
    .replace(f"(i, k), shape=(M, K), {ZERO}", f"(h, i, k), shape=(1, M, K), {ZERO}.reshape((M, K))")
    .replace(f"(k, j), shape=(K, N), {ZERO}", f"(h, k, j), shape=(1, K, N), {ZERO}.reshape((K, N))")
    .replace("axis=1, shape=(M, K)", "axis=2, shape=(1, M, K)")
    .replace("(i, j), tile=total.astype(c.dtype)",
             "(h, i, j), tile=total.astype(c.dtype).reshape((1, M, N))")
    .replace("m, n = a.shape[0], b.shape[1]", "m, n = a.shape[1], b.shape[2]")
    .replace("torch.empty((m, n)", "torch.empty((a.shape[0], m, n)")
    .replace("(rows, columns)", "(rows, columns, a.shape[0])")
)  # fmt: skip
HEADS = (
    re.sub(
        r"ct\.load\(([qkv]), index=\((\w), 0\), shape=\((\w+), D\), padding_mode=zero_pad\)",
        r"ct.load(\1, (h, \2, 0), (1, \3, D), padding_mode=zero_pad).reshape((\3, D))",
        sources.ATTENTION,
    )
    .replace("i = ct.bid(0)", "i, h = ct.bid(0), ct.bid(1)")
    .replace("k.shape[0]", "k.shape[1]")
    .replace("index=(i, 0), tile=(acc / total).astype(out.dtype)",
             "index=(h, i, 0), tile=(acc / total).astype(out.dtype).reshape((1, TILE_M, D))")
    .replace("length, dim = q.shape", "heads, length, dim = q.shape")
    .replace("(ct.cdiv(length, TILE_M),)", "(ct.cdiv(length, TILE_M), heads)")
)  # fmt: skip
PACKED = (
    re.sub(
        r"ct\.load\(([qkv]), index=\((\w), 0\)",
        r"ct.load(\1_rows, index=(\2, h)",
        sources.ATTENTION,
    )
    .replace("q, k, v, out, scale", "q, k, v, ends, out, scale")
    .replace(
        "    i = ct.bid(0)\n",
        """\
    i, h, b = ct.bid(0), ct.bid(1), ct.bid(2)
    begin, end = ct.load(ends, (b,), ()), ct.load(ends, (b + 1,), ())
    q_rows = q.slice(axis=0, start=begin, stop=end)
    k_rows = k.slice(axis=0, start=begin, stop=end)
    v_rows = v.slice(axis=0, start=begin, stop=end)
    out_rows = out.slice(axis=0, start=begin, stop=end)
""",
    )
    .replace("k.shape[0]", "(end - begin)")
    .replace("ct.store(out, index=(i, 0)", "ct.store(out_rows, index=(i, h)")
    .replace("def attention(q, k, v)", "def attention(q, k, v, ends, longest)")
    .replace(
        "length, dim = q.shape\n",
        """\
tokens, heads, dim = q.shape
    flat_q = q.reshape(tokens, heads * dim)
    flat_k = k.reshape(tokens, heads * dim)
    flat_v = v.reshape(tokens, heads * dim)
    flat_out = out.reshape(tokens, heads * dim)
""",
    )
    .replace("(q, k, v, out,", "(flat_q, flat_k, flat_v, ends, flat_out,")
    .replace("(ct.cdiv(length, TILE_M),)", "(ct.cdiv(longest, TILE_M), heads, ends.shape[0] - 1)")
)
"""Sequences one behind the other, heads side by side, in arrays that the host code reshapes."""
TEXTS = pytest.mark.parametrize(
    "text", [BATCHED, HEADS, PACKED], ids=["product", "attention", "packed"]
)


def test_the_sizes_of_batches_are_searched() -> None:
    assert plan(BATCHED).dimensions == ("M", "N", "K", "occupancy", "num_ctas")
    assert plan(HEADS).dimensions == ("TILE_M", "TILE_N", "occupancy", "num_ctas")
    assert plan(HEADS).template.name == "T5"
    assert plan(PACKED).dimensions == plan(HEADS).dimensions
    assert plan(PACKED).template.name == "T8"


def test_a_long_launch_is_laid_out_as_its_place_asks() -> None:
    once = "{0}_launch_attention(\n{0}    torch.cuda.current_stream(),\n{0}    flat_q,\n"
    assert once.format("    ") in written(PACKED)
    launch = "    ct.launch(torch.cuda"
    nested = PACKED.replace(launch, f"    if tokens:\n    {launch}")
    assert once.format("        ") in written(nested)


def test_a_size_that_a_result_holds_stays_whatever_reshapes_it() -> None:
    scaled = BATCHED.replace("total.astype(c.dtype)", "(total * M).astype(c.dtype)")
    assert plan(scaled).dimensions == ("occupancy",)
    assert any("M must stay: it is part of what line" in line for line in plan(scaled).why)


def test_a_reduction_along_a_size_is_seen_through_a_reshape() -> None:
    """A shape that leaves the size open tells no axis, and one that holds it tells its own."""
    for reshaped in ("reshape((M, N)), axis=0", "reshape((-1, N)), axis=0"):
        text = BATCHED.replace(
            "total.astype(c", f"(total - ct.sum(total.{reshaped}, keepdims=True)).astype(c"
        )
        assert any("M must stay: line" in line for line in plan(text).why), reshaped


@TEXTS
def test_every_config_gives_the_same_numbers(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")
    from tests.tuning.test_runs import Search, random, tuned
    from tile_agent_pytest.tile_cpu import TileCpu

    with TileCpu(compute_capability=(9, 0)):
        module = tuned(text, tmp_path)
        tried: list[list[Any]] = Search(module).tried
        if text is BATCHED:
            name, given = "matmul", (random(3, 150, 70), random(3, 70, 130))
            expected = given[0].float() @ given[1].float()
        elif text is PACKED:
            ends = torch.tensor([0, 70, 71, 200], dtype=torch.int32)
            name, given = "attention", (*(random(200, 2, 32) for _ in range(3)), ends, 129)
            parts = [x.float().movedim(1, 0).split([70, 1, 129], dim=1) for x in given[:3]]
            attended = [torch.softmax(q @ k.mT * 32**-0.5, dim=-1) @ v
                        for q, k, v in zip(*parts, strict=True)]  # fmt: skip
            expected = torch.cat(attended, dim=1).movedim(0, 1)
        else:
            name, given = "attention", (random(3, 100, 32), random(3, 150, 32), random(3, 150, 32))
            q, k, v = (tensor.float() for tensor in given)
            expected = torch.softmax(q @ k.mT * 32**-0.5, dim=-1) @ v
        getattr(module, name)(*given)
        assert len({(*vars(config).values(),)[:2] for config in tried[0]}) > 2
        for config in tried[0]:
            getattr(module, f"_{name.upper()}_CACHE").clear()
            monkeypatch.setattr(module, f"_best_{name}_config", lambda *_, config=config: config)
            found = getattr(module, name)(*given).float()
            torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@TEXTS
def test_the_tuned_file_compiles(text: str, tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(written(text))
    source, targets = Source(file.read_text()), ("sm_80", "sm_90", "sm_100")
    found = compile_file(source, file, python=warm_interpreter(), targets=targets, timeout_s=120)
    assert found.ok, list(found.lines())
