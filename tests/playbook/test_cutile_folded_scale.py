"""folded-scale: what it writes, that results agree, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

from agent import playbook  # noqa: E402
from agent.analysis.common.subject import NotApplicable  # noqa: E402
from agent.environment import probe  # noqa: E402
from agent.proposers.playbook import edited  # noqa: E402
from tests.support.evidence import evidence  # noqa: E402
from tests.support.rewriting import refusal, subject  # noqa: E402
from tests.support.tiers import others_full  # noqa: E402
from tests.support.tile_cpu import result_of  # noqa: E402

BENCHMARK = Path(__file__).parents[2] / "benchmarks/cutile/attention/attention.py"
NAME = "folded-scale"
Change = tuple[str, str]
CLOSE = {"rtol": 2e-5, "atol": 2e-5, "equal_nan": True}

ATTENTION = """\
import math

import cuda.tile as ct
import torch

LOG2_E = 1.4426950408889634
TILE, WIDTH = 16, 32


@ct.kernel
def k(q, k, v, y, lse, scale):
    i = ct.bid(0)
    q_tile = ct.load(q, (i, 0), (TILE, WIDTH), padding_mode=ct.PaddingMode.ZERO)
    rows = i * TILE + ct.arange(TILE, dtype=ct.int32)[:, None]
    largest = ct.full((TILE, 1), -math.inf, dtype=ct.float32)
    total = ct.zeros((TILE, 1), dtype=ct.float32)
    acc = ct.zeros((TILE, WIDTH), dtype=ct.float32)
    for j in range(ct.num_tiles(k, axis=0, shape=(TILE, WIDTH))):
        k_tile = ct.load(k, (j, 0), (TILE, WIDTH), padding_mode=ct.PaddingMode.ZERO)
        columns = j * TILE + ct.arange(TILE, dtype=ct.int32)[None, :]
        scores = ct.mma(q_tile, ct.transpose(k_tile), ct.zeros((TILE, TILE), dtype=ct.float32))
        scores = scores * scale
        scores = ct.where(columns <= rows, scores, -math.inf)
        new_largest = ct.maximum(largest, ct.max(scores, axis=1, keepdims=True))
        correction = ct.exp(largest - new_largest)
        weights = ct.exp(scores - new_largest)
        total = total * correction + ct.sum(weights, axis=1, keepdims=True)
        v_tile = ct.load(v, (j, 0), (TILE, WIDTH), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(weights.astype(v.dtype), v_tile, acc * correction)
        largest = new_largest
    ct.store(y, (i, 0), (acc / total).astype(y.dtype))
    ct.store(lse, (i, 0), total)


def run(q, k, v):
    y = torch.empty_like(q)
    lse = torch.empty((q.shape[0], 1), dtype=torch.float32)
    grid = (ct.cdiv(q.shape[0], TILE), 1, 1)
    head_dim = q.shape[1]
    arguments = (q, k, v, y, lse, 1 / math.sqrt(head_dim))
    ct.launch(torch.cuda.current_stream(), grid, k_, arguments)
    return torch.cat([y.float(), lse], dim=1)
""".replace("def k(q", "def k_(q")
SCALED = "        scores = scores * scale\n"
MASKED = "        scores = ct.where(columns <= rows, scores, -math.inf)\n"
LARGEST = "        new_largest = ct.maximum(largest, ct.max(scores, axis=1, keepdims=True))\n"
CORRECTION = "        correction = ct.exp(largest - new_largest)\n"
WEIGHTS = "        weights = ct.exp(scores - new_largest)\n"
GIVEN = "1 / math.sqrt(head_dim)"
FOLDED = "ct.exp2(scores * scale_log2 - new_largest, flush_to_zero=True)"


def with_(*changes: Change, text: str = ATTENTION) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def applied(text: str) -> str:
    entry = playbook.get(NAME)
    (params,) = entry.variants(subject(text))
    new = edited(entry, subject(text), params)
    assert refusal(NAME, new)
    return new


def inputs(*sizes: int, width: int = 32, dtype: Any = torch.float32) -> tuple[Any, ...]:
    random = torch.Generator().manual_seed(sum(sizes))
    return tuple((torch.randn((n, width), generator=random) * 2).to(dtype) for n in (sizes * 3)[:3])


def on_one_line(text: str) -> str:
    """What a formatter would write if lines had no end."""
    return " ".join(text.split()).replace("( ", "(").replace(" )", ")").replace(",)", ")")


def agrees(text: str, folder: Path, *sizes: tuple[int, ...]) -> str:
    """The text that the entry makes, after both computed the same."""
    new = applied(text)
    for size in sizes or ((40,), (7, 33, 33)):
        given = inputs(*size)
        expected = result_of(text, "run", given, folder)
        torch.testing.assert_close(result_of(new, "run", given, folder), expected, **CLOSE)
        assert expected.isfinite().any()
    return new


# --- what it writes -----------------------------------------------------------------------------


def test_the_attention_of_the_benchmarks() -> None:
    text = BENCHMARK.read_text()
    new = applied(text)
    assert new == with_(
        ("import torch\n", "import torch\n\nLOG2_E = 1.4426950408889634\n"),
        ("    for j in", "    scale_log2 = scale * LOG2_E\n    for j in"),
        ("scores) * scale\n", "scores)\n"),
        ("keepdims=True))\n", "keepdims=True) * scale_log2)\n"),
        ("ct.exp(largest - new_largest)", "ct.exp2(largest - new_largest, flush_to_zero=True)"),
        ("ct.exp(scores - new_largest)", FOLDED),
        text=text,
    )  # fmt: skip
    assert "no launched kernel calls ct.exp" in refusal("exp2", new)


@pytest.mark.parametrize("before", [("exp2",), ("fast-math",), ("exp2", "fast-math")], ids="+".join)
def test_the_order_of_the_arithmetic_entries_makes_no_difference(before: tuple[str, ...]) -> None:
    def after(text: str, *names: str) -> str:
        for name in names:
            entry = playbook.get(name)
            text = edited(entry, subject(text), entry.variants(subject(text))[-1])
        return text

    text = BENCHMARK.read_text()
    found = after(text, *before, NAME)
    others = [name for name in before if name != "exp2"]
    assert found == after(text, NAME, *others)


@pytest.mark.parametrize("first", ["tile-sizes", "persistent-blocks", "autotune"])
def test_what_other_entries_wrote_is_followed(first: str, tmp_path: Path) -> None:
    text = BENCHMARK.read_text()
    entry = playbook.get(first)
    text = edited(entry, subject(text), entry.variants(subject(text))[0])
    new = applied(text)
    assert new.index("scale_log2 = scale * LOG2_E") < new.index("    for ")
    assert FOLDED in new
    q, k, v = (x[None, None].half() for x in inputs(70, 70, 70, width=64))
    expected = result_of(text, "attention", (q, k, v), tmp_path)
    found = result_of(new, "attention", (q, k, v), tmp_path)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("positions", others_full([100, 1, 64, 257]))
@pytest.mark.parametrize("factor", [1.0, 4.0], ids=["", "large"])
def test_the_attention_of_the_benchmarks_agrees(
    positions: int, factor: float, tmp_path: Path
) -> None:
    text = BENCHMARK.read_text()
    q, k, v = (x[None, None].half() for x in inputs(positions, width=64))
    given = factor * q, factor * k, v
    expected = result_of(text, "attention", given, tmp_path)
    found = result_of(applied(text), "attention", given, tmp_path)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)
    scores = (given[0].double() @ given[1].double().mT) / 8
    scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    exact = scores.softmax(-1) @ v.double()
    torch.testing.assert_close(found.double(), exact, rtol=4e-3, atol=4e-3)


@pytest.mark.skipif(probe().tileiras is None, reason="tileiras is not installed")
@pytest.mark.parametrize("sm", others_full([90, 80, 100]))
def test_it_compiles_to_fewer_instructions(sm: int, tmp_path: Path) -> None:
    call = (
        "\n\ndef run():\n"
        "    q = torch.ones((1, 2, 256, 64), device='cuda', dtype=torch.float16)\n"
        "    attention(q, q, q)\n"
    )
    entry = playbook.get("exp2")
    text = edited(entry, subject(BENCHMARK.read_text()), {})
    counts = []
    for name, each in (("before", text), ("after", applied(text))):
        (tmp_path / name).mkdir()
        (artifact,) = evidence(tmp_path / name, each + call, sm).artifacts
        counts.append(artifact.instructions.float_ops)
    assert counts[1] < counts[0]


# --- forms that it takes ------------------------------------------------------------------------


def put(what: str, *lines: str) -> Change:
    """Lines of the loop in place of one."""
    return what, "".join(f"        {line}\n" for line in lines)


IN_BASE_TWO = (
    (CORRECTION, CORRECTION.replace("exp(", "exp2(")),
    (WEIGHTS, WEIGHTS.replace("exp(", "exp2(")),
    (SCALED, SCALED.replace("scale", "qk_scale")),
    ("    for j in", "    qk_scale = scale * LOG2_E\n    for j in"),
)
ONE_AXIS = (
    ("largest = ct.full((TILE, 1)", "largest = ct.full((TILE,)"),
    (", ct.max(scores, axis=1, keepdims=True)", ", ct.max(scores, axis=1)"),
    ("ct.exp(largest - new_largest)", "ct.exp(largest - new_largest)[:, None]"),
)
POWER = "(scores - new_largest)"
EXPANDED = "ct.expand_dims(new_largest, axis=1)"
STORED = "lse, (i, 0), total"
INLINE = (
    (SCALED, ""), put(MASKED), (POWER, "(scores * scale - new_largest)"),
    ("max(scores,", "max(scores * scale,"), ("columns <= rows", "columns < 0"),
)  # fmt: skip
APART = (
    put(SCALED, "scaled = scores * scale"), put(MASKED), ("max(scores,", "max(scaled,"),
    put(WEIGHTS, "scores = scaled - new_largest", "weights = ct.exp(scores)"),
)  # fmt: skip
SAFE = (
    put(CORRECTION, "safe = ct.where(new_largest == -math.inf, 0.0, new_largest)",
        "correction = ct.exp(largest - safe)"),
    (WEIGHTS, WEIGHTS.replace("new_largest", "safe")),
)  # fmt: skip
BEFORE = (
    (LARGEST, "        before = largest\n" + LARGEST.replace("new_", "")),
    (CORRECTION, CORRECTION.replace("largest - new_largest", "before - largest")),
    (WEIGHTS, WEIGHTS.replace("new_", "")), ("        largest = new_largest\n", ""),
    (STORED, "lse, (i, 0), largest + ct.log(total)"),
)  # fmt: skip
IN_STEPS = "scores = scores * scale_log2 - new_largest\n        weights = ct.exp2(scores, flush"


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ([], FOLDED),
        ([put(SCALED, "scores *= scale")], FOLDED),
        ([put(SCALED, "scores = scale * scores")], FOLDED),
        (INLINE[:4], FOLDED),
        ([put(MASKED, "scores = ct.where(columns > rows, -math.inf, scores)")], FOLDED),
        ([put(MASKED, "scores += ct.where(columns <= rows, 0.0, float('-inf'))")], FOLDED),
        ([put(MASKED, "mask = ct.where(columns <= rows, 0, -math.inf)", "scores = scores + mask")],
         FOLDED),
        ([(MASKED, "        if j >= i:\n    " + MASKED)], FOLDED),
        ([(SCALED, ""), (MASKED, MASKED + SCALED)], FOLDED),
        ([(SCALED, ""), (MASKED, MASKED.replace("-math.inf", "-1e6") + SCALED)], FOLDED),
        ([("ct.maximum(", "max(")], FOLDED),
        ([*ONE_AXIS, (POWER, "(scores - new_largest[:, None])")],
         "ct.exp2(scores * scale_log2 - new_largest[:, None], flush"),
        ([*ONE_AXIS, (POWER, f"(scores - {EXPANDED})")],
         f"ct.exp2(scores * scale_log2 - {EXPANDED}, flush"),
        ([put(WEIGHTS, "scores = scores - new_largest", "weights = ct.exp(scores)")], IN_STEPS),
        ([put(WEIGHTS, "scores -= new_largest", "weights = ct.exp(scores)")], IN_STEPS),
        ([put(WEIGHTS, f"weights = ct.exp2(LOG2_E * {POWER})")],
         "weights = ct.exp2(scores * scale_log2 - new_largest)\n"),
        ([put(WEIGHTS, f"power = {POWER} * LOG2_E", "weights = ct.exp2(power)")],
         "power = (scores * scale_log2 - new_largest)\n        weights = ct.exp2(power)\n"),
        ([put(WEIGHTS, "weights = ct.exp(scores - new_largest, rounding_mode=APPROX)"),
          ("\nTILE, ", "\nAPPROX = ct.RoundingMode.APPROX\nTILE, ")], FOLDED),
        ([*IN_BASE_TWO, ("= 1.4426950408889634", "= 1.0 / math.log(2)")],
         "weights = ct.exp2(scores * qk_scale - new_largest)\n"),
        ([*IN_BASE_TWO, (STORED, "lse, (i, 0), largest")], "ct.store(lse, (i, 0), largest)\n"),
        ([(STORED, "lse, (i, 0), largest + ct.log(total)")], "largest * LN_2 + ct.log(total)"),
        ([(STORED, "lse, (i, 0), largest.astype(ct.float32)")], "(largest * LN_2).astype("),
        (BEFORE, "ct.exp2(before - largest, flush_to_zero=True)"),
        (SAFE, "ct.exp2(scores * scale_log2 - safe, flush"),
        (APART, "scores = scaled * scale_log2 - new_largest\n"),
        ([(SCALED, SCALED.replace("scale", "0.25"))], "scale_log2 = 0.25 * LOG2_E\n"),
        ([(SCALED, SCALED.replace("scale", "(scale / 2)"))], "scale_log2 = (scale / 2) * LOG2_E\n"),
        ([(SCALED, SCALED.replace("scale", "HALF")), ("\nTILE, ", "\nHALF = 0.5\nTILE, ")],
         "HALF_log2 = HALF * LOG2_E\n"),
        ([("    ct.store(y, (i", "    acc = acc + ct.exp(total - largest)\n    ct.store(y, (i")],
         "ct.exp(total - largest * LN_2)"),
    ],
)  # fmt: skip
def test_forms(changes: list[Change], written: str, tmp_path: Path) -> None:
    new = agrees(with_(*changes), tmp_path)
    assert on_one_line(written) in on_one_line(new)
    assert "keepdims=True) * " in on_one_line(new) or "axis=1) * " in on_one_line(new)


def test_a_row_that_is_masked_altogether_is_what_it_was(tmp_path: Path) -> None:
    text = with_((MASKED, MASKED.replace("<=", "<")))
    given = inputs(20)
    expected, found = (result_of(t, "run", given, tmp_path) for t in (text, applied(text)))
    assert expected[0].isnan().any() and not expected[1:].isnan().any()
    torch.testing.assert_close(found, expected, **CLOSE)


def test_one_tile_without_a_loop(tmp_path: Path) -> None:
    text = with_(
        ("    for j in range(ct.num_tiles(k, axis=0, shape=(TILE, WIDTH))):\n        k_tile",
         "    for j in range(1):\n        k_tile"),
        (LARGEST, ""), (CORRECTION, "        correction = 1.0\n"),
        (WEIGHTS, "        weights = ct.exp(scores - ct.max(scores, axis=1, keepdims=True))\n"),
        ("        largest = new_largest\n", ""),
    )  # fmt: skip
    new = agrees(text, tmp_path, (16,))
    power = "scores * scale_log2 - ct.max(scores, axis=1, keepdims=True) * scale_log2"
    assert f"ct.exp2({power}, flush_to_zero=True)" in on_one_line(new)


def test_a_helper_is_followed_where_no_other_file_calls_it(tmp_path: Path) -> None:
    body = ATTENTION[ATTENTION.index("    i = ct.bid(0)\n") : ATTENTION.index("\n\ndef run")]
    kernel = "    {0}(q, k, v, y, lse, scale)\n"
    helper = "def {0}(q, k, v, y, lse, factor):\n" + body.replace("* scale", "* factor")
    text = with_((body, kernel), ("@ct.kernel\n", helper + "\n\n@ct.kernel\n"))
    new = agrees(text.replace("{0}", "_attend"), tmp_path)
    assert "factor_log2 = factor * LOG2_E\n" in new
    assert "may be zero or less" in refusal(NAME, text.replace("{0}", "attend"))


# --- the scale's sign ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        "0.125", "2", "1.0 / math.sqrt(q.size(-1))", "1.0 / (math.sqrt(q.size(-1) + k.size(-1)))",
        "head_dim ** -0.5", "q.shape[-1] ** (-0.5)", "1.0 / head_dim ** 0.5", "1 / float(head_dim)",
        "0.5 * math.pow(head_dim, -0.5)", "math.sqrt(2) / math.sqrt(int(head_dim))", "SCALE",
        "math.sqrt(1 / head_dim)", "1 / (8 * math.sqrt(head_dim))", "1 / math.log(2)",
        "0.5 if head_dim > 64 else 1 / math.sqrt(head_dim)", "_scale(head_dim)[0]",
        "float(head_dim ** -0.5)",
    ],
)  # fmt: skip
def test_a_scale_above_zero(given: str, tmp_path: Path) -> None:
    text = with_((GIVEN, given), ("\nTILE, WIDTH", "\nSCALE = 64 ** -0.5\nTILE, WIDTH"))
    if given.startswith("_scale"):  # what a function gives is not followed
        assert "may be zero or less" in refusal(NAME, text)
    else:
        agrees(text, tmp_path)


@pytest.mark.parametrize(
    "given",
    [
        "0.0", "-0.125", "-1 / math.sqrt(head_dim)", "scale", "1 / temperature", "1e-40", "1e40",
        "math.sqrt(head_dim) - 8", "head_dim", "head_dim ** -1.5 * (-1)", "(-head_dim) ** -1",
        "math.log(head_dim)", "head_dim // 64", "0.5 if head_dim > 64 else scale",
        "math.sqrt(head_dim)", "1 / (head_dim - 64)", "abs(scale)", "-(head_dim ** -0.5)",
    ],
)  # fmt: skip
def test_a_scale_that_may_not_be_above_zero(given: str) -> None:
    text = with_(
        (GIVEN, given), ("def run(q, k, v)", "def run(q, k, v, scale=0.125, temperature=1.0)")
    )
    said = refusal(NAME, text)
    assert "`scale` in line 22 of k_ may be zero or less: launches would have to give it" in said


def test_every_launch_counts() -> None:
    launch = "    ct.launch(torch.cuda.current_stream(), grid, k_, arguments)\n"
    other = launch.replace("arguments", "(q, k, v, y, lse, {})")
    assert applied(with_((launch, launch + other.format("0.5"))))
    assert "zero or less" in refusal(NAME, with_((launch, launch + other.format("-0.5"))))
    assert "zero or less" in refusal(NAME, with_((launch, launch + other.format("*q"))))
    hidden = "    chosen = hinted(q)\n" + other.replace("k_", "chosen")
    assert applied(with_((launch, launch + hidden.format("0.5"))))
    assert "zero or less" in refusal(NAME, with_((launch, launch + hidden.format("q.mean()"))))
    for away in ("elsewhere(k_, arguments)", "tuner.autotune_launch(grid, k_, lambda c: c.all)"):
        assert "zero or less" in refusal(NAME, with_((launch, f"{launch}    {away}\n")))


@pytest.mark.parametrize(
    ("caller", "is_known"),
    [
        ("_launch(q, k, v, y, lse, head_dim ** -0.5)", True),
        ("_launch(q, k, v, y, lse)", True),
        ("_launch(q, k, v, y, lse, scale=0.5)", True),
        ("_launch(q, k, v, y, lse, q.max())", False),
        ("_launch(*q)", False),
        ("map(_launch, q)", False),
        ("launch(q, k, v, y, lse, head_dim ** -0.5)", False),
    ],
)
def test_a_scale_through_functions_of_the_host(caller: str, is_known: bool) -> None:
    host = ATTENTION[ATTENTION.index("    arguments =") :]
    name = caller.partition("(")[0] if "launch(" in caller else "_launch"
    text = with_((host, f"    {caller}\n    return torch.cat([y.float(), lse], dim=1)\n"))
    text += (
        f"\n\ndef {name}(q, k, v, y, lse, scale=0.25):\n"
        "    grid = (ct.cdiv(q.shape[0], TILE), 1, 1)\n    if not grid[0]:\n        scale = 1.0\n"
        "    arguments = (q, k, v, y, lse, scale)\n"
        "    ct.launch(torch.cuda.current_stream(), grid, k_, arguments)\n"
    )
    if is_known:
        assert applied(text)
        registered = with_((f"def {name}", f"@register\ndef {name}"), text=text)
        assert "zero or less" in refusal(NAME, registered)
    else:
        assert "zero or less" in refusal(NAME, text)


def test_a_scale_that_the_caller_may_leave_open_is_refused() -> None:
    text = with_(
        (GIVEN, "scale"), ("def run(q, k, v):\n", "def run(q, k, v, scale=None):\n"),
        ("    arguments =", "    if scale is None:\n        scale = 0.5\n    arguments ="),
    )  # fmt: skip
    assert "zero or less" in refusal(NAME, text)


# --- what it leaves alone -----------------------------------------------------------------------


PRODUCT = "ct.mma(q_tile, ct.transpose(k_tile), ct.zeros((TILE, TILE), dtype=ct.float32))"
IN_BRANCHES = "        if j > 0:\n    " + SCALED


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ([put(SCALED, "scores = scores * scale", "scores = scores + bias"),
          ("    i = ct", "    bias = ct.load(q, (0, 0), (TILE, TILE))\n    i = ct")],
         "gives `scores + bias`"),
        ([put(SCALED, "scores = ct.tanh(scores * scale / 30.0) * 30.0")], "no product of tiles"),
        ([(SCALED, SCALED + "        other = ct.sum(scores)\n")], "uses `scores` for more"),
        ([(SCALED, SCALED + "        ct.store(y, (i, 0), scores)\n")], "uses `scores` for more"),
        ([(MASKED, MASKED.replace("-math.inf", "-1e9"))], "gives `-1e9`"),
        ([(MASKED, MASKED.replace("-math.inf", "-10000.0"))], "gives `-10000.0`"),
        ([put(MASKED, "scores += ct.where(columns <= rows, 0.0, -1e9)")], "gives `scores += "),
        ([put(MASKED, "scores += ct.where(columns <= rows, 1.0, -math.inf)")], "gives `scores +="),
        ([(SCALED, ""), (MASKED, MASKED.replace("-math.inf", "-1e30") + SCALED)],
         "no product of tiles"),
        ([("((TILE, 1), -math.inf", "((TILE, 1), -1e30")], "gives `ct.full((TILE, 1), -1e30"),
        ([put(SCALED, "scores = scores * rows")], "`rows` in line 22 of k_ may be zero"),
        ([put(SCALED, "scores = scores.astype(ct.float16) * scale")], "may not be float32"),
        ([(PRODUCT, PRODUCT.replace("32", "16"))], "may not be float32"),
        ([(PRODUCT, PRODUCT.replace("32", "64"))], "may not be float32"),
        ([(PRODUCT, PRODUCT.replace("float32", "int32"))], "may not be float32"),
        ([(PRODUCT, "ct.load(q, (i, j), (TILE, TILE)).astype(ct.float32)")], "no product of tiles"),
        ([(SCALED, IN_BRANCHES)], "gives `ct.mma("),
        ([(SCALED, f"{IN_BRANCHES}        else:\n            scores = scores * 0.5\n")],
         "has several: "),
        ([(SCALED, SCALED + SCALED)], "no product of tiles"),
        ([(SCALED, "")], "those of k_ have none"),
        ([(WEIGHTS, WEIGHTS.replace("new_largest", "largest - new_largest"))],
         "those of k_ have none"),
        ([(WEIGHTS, WEIGHTS.replace(POWER, f"({POWER} * 0.5)"))], "takes another power"),
        ([(WEIGHTS, WEIGHTS.replace(POWER, f"({POWER} * 0.7)").replace("exp(", "exp2(")),
          (STORED, "lse, (i, 0), largest")], "uses a maximum of another base"),
        ([(CORRECTION, CORRECTION + "        other = ct.exp2(scores - largest)\n")],
         "takes another power"),
        ([(WEIGHTS, WEIGHTS.replace("new_largest", "total"))], "gives `total * correction"),
        ([(LARGEST, LARGEST + "        new_largest = ct.maximum(new_largest, acc)\n")],
         "gives `ct.mma(weights"),
        ([put(WEIGHTS, f"power = {POWER}", "weights = ct.exp(power) * power")],
         "uses `power` for more"),
        ([(SCALED, SCALED + "        scale = scale * 0.5\n")], "zero or less"),
        ([put(WEIGHTS, "weights = ct.exp(scores - new_largest, rounding_mode=MODE)")],
         "takes another power"),
        ([("        largest = new_largest\n", "        largest += new_largest\n")],
         "gives `largest += "),
        ([put(WEIGHTS, "weights = (lambda s: ct.exp(s - new_largest))(scores)")], "looks for"),
        ([put(SCALED, "scores, other = scores * scale, 0")], "those of k_ have none"),
        ([put(SCALED, "scores = scores * scale if j else scores")], "those of k_ have none"),
        ([(LARGEST, LARGEST + "        largest += 1.0\n")], "uses `largest` for more"),
        ([("    ct.store(y, (i", "    largest += ct.log(total)\n    ct.store(y, (i")],
         "uses `largest` for more"),
    ],
)  # fmt: skip
def test_traps(changes: list[Change], reason: str) -> None:
    assert reason in refusal(NAME, with_(*changes))


def test_a_scale_that_changes_between_its_uses_is_refused() -> None:
    text = with_(
        (SCALED, "        factor = 0.5\n        scores = scores * factor\n        factor = 0.25\n")
    )
    assert "has another value of the scale" in refusal(NAME, text)


def test_a_constant_of_the_file_is_read_unless_the_kernel_has_another_of_its_name() -> None:
    assert "scale_log2 = scale * LOG2_E\n" in applied(ATTENTION)
    named = applied(with_(("LOG2_E = 1.4426950408889634", "INV_LN2 = 1.0 / math.log(2)")))
    assert "scale_log2 = scale * INV_LN2\n" in named
    text = with_(("    i = ct.bid(0)\n", "    LOG2_E = i = ct.bid(0)\n"))
    assert "scale_log2 = scale * LOG2_E_2\n" in applied(text)


def test_kernels_without_exponentials_are_refused() -> None:
    text = with_(
        (CORRECTION, "        correction = 1.0\n"), (WEIGHTS, "        weights = scores\n")
    )
    assert refusal(NAME, text) == "looks for ct.exp and ct.exp2, and k_ calls neither"


def test_a_kernel_that_other_files_launch_may_be_given_any_scale() -> None:
    entry = playbook.get(NAME)
    assert entry.variants(subject(entry.before))
    asked = replace(subject(entry.before), elsewhere=frozenset({"attend_kernel"}))
    with pytest.raises(NotApplicable, match="other files launch attend_kernel"):
        entry.variants(asked)
