"""What entries for tuners leave alone, and what of a tuner they rewrite."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.launches import ObservedLaunch, ObservedTensor, ObservedTuning, TunedConfig
from agent.syntax import Source
from tests.support.triton_compiler import compiled
from tests.support.triton_numbers import disagreement

PRUNE, KEY, BUCKETS = map(playbook.get, ("prune-configs", "tuning-key", "bucketed-key"))
LIST = """[
        triton.Config({"BLOCK": 512}, num_warps=2),
        triton.Config({"BLOCK": 1024}, num_warps=4),
        triton.Config({"BLOCK": 2048}, num_warps=8),
    ]"""
MADE = "[triton.Config({'BLOCK': 512 * w // 2}, num_warps=w) for w in (2, 4, 8)]"
FILE = """\
import torch
import triton
import triton.language as tl


def fresh(args):
    args["y_ptr"].zero_()


def made():
    return [triton.Config({{"BLOCK": 512 * w // 2}}, num_warps=w) for w in (2, 4, 8)]


LISTED = made()


@triton.autotune(configs={configs}, key={key}{more})
@triton.heuristics({{"EVEN": lambda args: args["n"] % args["BLOCK"] == 0}})
@triton.jit
def k(x_ptr, y_ptr, m, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    row = tl.program_id(1)
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < tl.where(row < m, n, 0)
    x = tl.load(x_ptr + row * n + cols, mask=mask)
    tl.store(y_ptr + row * n + cols, 2 * x, mask=mask)


def run(x):
    y = torch.empty_like(x)
    m, n = x.shape
    k[lambda meta: (triton.cdiv(n, meta["BLOCK"]), m)](x, y, m, n)
    return y
"""


def text(configs: str = LIST, key: str = '["n"]', more: str = "") -> str:
    return FILE.format(configs=configs, key=key, more=more)


def launch(*timings_ms: float | None, m: int = 8, n: int = 4096) -> ObservedLaunch:
    """A launch whose tuner took so long with 2, 4 and 8 warps."""
    timed = zip((2, 4, 8), timings_ms, strict=True)
    configs = tuple(
        TunedConfig({"BLOCK": 256 * w}, {"num_warps": w, "num_stages": 3, "num_ctas": 1}, ms)
        for w, ms in timed
    )
    tuning = ObservedTuning({"n": str(n)}, 3, 6.0, configs)
    tensor = ObservedTensor("float32", (m, n), (n, 1), aligned=True)
    return ObservedLaunch("k", "t", (4, m), {"m": m, "n": n}, {"x_ptr": tensor}, {}, tuning)


def asked(source: str, *launches: ObservedLaunch) -> Subject:
    return Subject(Source(source), KernelClass.MEMORY, Hardware(sm=90), launches)


def pruned(source: str, *launches: ObservedLaunch) -> str:
    subject = asked(source, *launches)
    (params,) = PRUNE.variants(subject)
    return PRUNE.apply(subject, params)


def warps_left(source: str) -> list[int]:
    return [w for w in (2, 4, 8) if f"num_warps={w})" in source]


def refusal(entry: str, source: str, *launches: ObservedLaunch) -> str:
    with pytest.raises(NotApplicable) as refused:
        playbook.get(entry).variants(asked(source, *launches))
    return str(refused.value)


# --- prune-configs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launches", "left"),
    [
        ([launch(3.0, 2.0, 1.0)], [2, 8]),
        ([launch(1.0, 2.0, 3.0)], [2]),
        ([launch(3.0, 1.04, 1.0)], [2, 4, 8]),
        ([launch(1.0, 2.0, 3.0), launch(2.0, 1.0, 3.0, n=100)], [2, 4]),
        ([launch(None, 2.0, 1.0)], [4, 8]),
        ([launch(1.0, 2.0, 3.0), launch(None, 2.0, 1.0, n=100)], [2, 4, 8]),
    ],
)
def test_winners_their_neighbours_and_the_smallest_are_left(
    launches: list[ObservedLaunch], left: list[int]
) -> None:
    if len(left) == 3:
        assert refusal("prune-configs", text(), *launches).startswith("each of the 3 configs of k")
    else:
        assert warps_left(pruned(text(), *launches)) == left


def test_a_list_keeps_its_layout_and_its_comments() -> None:
    before = """[
        triton.Config({"BLOCK": 512}, num_warps=2),  # short rows
        triton.Config({"BLOCK": 1024}, num_warps=4),  # others
        triton.Config({"BLOCK": 2048}, num_warps=8)  # long rows
    ]"""
    after = """[
        triton.Config({"BLOCK": 512}, num_warps=2)  # short rows
    ]"""
    assert pruned(text(before), launch(1.0, 2.0, 3.0)) == text(after)


@pytest.mark.parametrize("configs", ["made()", "LISTED", MADE, "made() if True else []"])
def test_what_is_made_is_filtered(configs: str, tmp_path: Path) -> None:
    before = text(configs, more=', restore_value=["y_ptr"]')
    after = pruned(before, launch(3.0, 2.0, 1.0))
    assert '({"BLOCK": 512}, 2, 3),\n' in after
    assert '({"BLOCK": 1024}, 4, 3),\n' not in after
    subject = asked(after, launch(3.0, 2.0, 1.0))
    with pytest.raises(NotApplicable, match="tries nothing else"):
        PRUNE.apply(subject, PRUNE.variants(asked(before, launch(3.0, 2.0, 1.0)))[0])
    again = PRUNE.apply(subject, {"kept": {"k": [{"constants": {"BLOCK": 512}, "num_warps": 2,
                                                  "num_stages": 3}]}})  # fmt: skip
    assert again.count("made.kwargs") == 1
    count = "\nassert [c.num_warps for c in k.configs] == {left}\n"
    for source, left in ((after, [2, 8]), (again, [2])):
        checked = source + count.format(left=left)
        assert disagreement("run", [[[3, 700]]], before, [checked], False, tmp_path) == ""


def test_where_nothing_is_left_of_what_is_made_all_of_it_is(tmp_path: Path) -> None:
    """On another GPU the file may make other configs."""
    after = pruned(text("made()"), launch(3.0, 2.0, 1.0)).replace("(2, 4, 8)", "(16, 32)")
    checked = after + "\nassert [c.num_warps for c in k.configs] == [16, 32]\n"
    assert disagreement("run", [[[3, 700]]], text(), [checked], False, tmp_path) == ""


def test_a_config_that_cannot_be_read_stays() -> None:
    source = text(LIST.replace("\n    ]", "\n        *made(),\n        OTHER,\n    ]"))
    after = pruned(source, launch(1.0, 2.0, 3.0))
    assert warps_left(after) == [2]
    assert "*made()," in after
    assert "OTHER," in after


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (', prune_configs_by={"early_config_prune": f}', "leaves out configs by the sizes"),
        (", **options", "hides arguments behind a `*`"),
        (', reset_to_zero=["y_ptr"]', "one config is left to k, which then gets no reset_to_zero"),
        (", pre_hook=fresh", "one config is left to k, which then gets no pre_hook"),
    ],
)
def test_tuners_that_do_more_than_choose(more: str, reason: str) -> None:
    assert reason in refusal("prune-configs", text(more=more), launch(1.0, 2.0, 3.0))


@pytest.mark.parametrize("more", [', reset_to_zero=["y_ptr"]', ', restore_value=["y_ptr"]'])
def test_two_configs_are_still_tuned(more: str) -> None:
    assert warps_left(pruned(text(more=more), launch(3.0, 2.0, 1.0))) == [2, 8]


def test_the_hook_of_a_config_stays_with_it() -> None:
    hooked = LIST.replace("),\n", ", pre_hook=fresh),\n")
    after = pruned(text(hooked), launch(3.0, 2.0, 1.0))
    assert after.count("pre_hook=fresh") == 2


def test_nothing_is_pruned_that_nobody_saw_tuned() -> None:
    assert refusal("prune-configs", text()) == "nobody saw what the tuner of k tried"
    unseen = ObservedLaunch("k", "t", (), {"n": 1}, {}, {})
    assert refusal("prune-configs", text(), unseen) == "nobody saw what the tuner of k tried"
    odd = ObservedLaunch("k", "t", (), {}, {}, {}, ObservedTuning({}, 3, 1.0))
    assert "gives it more than integers" in refusal("prune-configs", text(), odd)
    other = ObservedTuning({}, 1, 1.0, (TunedConfig({"WIDTH": 1}, {}, 1.0),))
    odd = ObservedLaunch("k", "t", (), {}, {}, {}, other)
    assert "gives it what is no parameter" in refusal("prune-configs", text(), odd)


# --- tuning-key, bucketed-key -------------------------------------------------------------------


def test_a_size_that_launches_with_one_key_differ_in_gets_into_the_key() -> None:
    seen = (launch(1.0, 2.0, 3.0, m=8), launch(1.0, 2.0, 3.0, m=900))
    after = KEY.apply(asked(text(), *seen), {})
    assert 'key=["n", "m_bucket"]' in after
    assert "EVEN: tl.constexpr, m_bucket):" in after
    assert "x, y, m, n, m_bucket=triton.next_power_of_2(m)" in after


@pytest.mark.parametrize(
    "others", [[], [launch(1.0, 2.0, 3.0, m=7)], [launch(1.0, 2.0, 3.0, m=900, n=77)]]
)
def test_sizes_that_share_no_key_need_none(others: list[ObservedLaunch]) -> None:
    seen = (launch(1.0, 2.0, 3.0), *others)
    assert "tells all sizes of those that the tests launch apart" in refusal(
        "tuning-key", text(), *seen
    )


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("", True),
        (', reset_to_zero=["x_ptr"]', True),
        (', restore_value=["y_ptr"]', True),
        (', restore_value=["y_ptr", "x_ptr"]', False),
    ],
)
def test_what_works_in_place_is_not_tuned_more_often(more: str, refused: bool) -> None:
    """A launch that tunes runs the kernel many times on the same memory."""
    source = text(more=more).replace("tl.store(y_ptr", "tl.store(x_ptr")
    seen = (launch(1.0, 2.0, 3.0, m=8), launch(1.0, 2.0, 3.0, m=900))
    if refused:
        assert "reads and writes x_ptr, which no tuner restores" in refusal(
            "tuning-key", source, *seen
        )
    else:
        assert "m_bucket" in KEY.apply(asked(source, *seen), {})


def test_another_type_has_a_choice_of_its_own() -> None:
    tensor = ObservedTensor("float16", (900, 4096), (4096, 1), aligned=True)
    other = ObservedLaunch("k", "t", (4, 900), {"m": 900, "n": 4096}, {"x_ptr": tensor}, {})
    assert "apart" in refusal("tuning-key", text(), launch(1.0, 2.0, 3.0), other)


ROWS = """\
import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({}, num_warps=1), triton.Config({}, num_warps=4)],
    key=[{key}],
)
@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + cols, mask=cols < n)
    tl.store(y_ptr + tl.program_id(0) * n + cols, 2 * x, mask=cols < n)


def run(x):
    y = torch.empty_like(x)
    n = x.shape[1]
    grid = {grid}
    k[grid](x, y, n, BLOCK=triton.next_power_of_2(n))
    return y
"""


def rows(key: str, grid: str) -> str:
    return ROWS.replace("{key}", key).replace("{grid}", grid)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("key", ['"n"', '"n", "BLOCK"', ""])
def test_the_number_of_programs_is_a_size(key: str, tmp_path: Path) -> None:
    seen = [ObservedLaunch("k", "t", (m,), {"n": 64, "BLOCK": 64}, {}, {}) for m in (4, 4096)]
    before = rows(key, "(x.shape[0],)")
    after = KEY.apply(asked(before, *seen), {})
    added = f'{key}, "programs_bucket"'.removeprefix(", ")
    assert f"key=[{added}]" in after
    assert "programs_bucket=triton.next_power_of_2(x.shape[0])" in after
    assert disagreement("run", [[[3, 70]], [[1, 1]]], before, [after], False, tmp_path) == ""
    path = tmp_path / "after.py"
    path.write_text(after)
    types = ["*fp32", "*fp32", "i32", 64, "i32"]
    assert compiled(path, "k", types, 90, {}).asm["cubin"]


@pytest.mark.parametrize(
    ("grid", "reason"),
    [
        ("(next(counter),)", "may not be computed twice"),
        ("lambda meta: (x.shape[0],)", "apart"),
        ("grid_of(x)", "apart"),
    ],
)
def test_programs_that_cannot_be_counted_again(grid: str, reason: str) -> None:
    seen = [ObservedLaunch("k", "t", (m,), {"n": 64, "BLOCK": 64}, {}, {}) for m in (4, 4096)]
    assert reason in refusal("tuning-key", rows('"n"', grid), *seen)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('key=["n"]', "key=KEYS", "is no list of names"),
        ("](x, y, m, n)", "](*arguments)", "does not show m"),
        ("](x, y, m, n)", "](x, y, n=n, **options)", "does not show m"),
        ("    return y\n", "    return use(k)\n", "uses k without a launch"),
    ],
)
def test_keys_and_launches_that_are_not_to_be_seen(old: str, new: str, reason: str) -> None:
    source = text().replace(old, new)
    assert source != text()
    seen = (launch(1.0, 2.0, 3.0, m=8), launch(1.0, 2.0, 3.0, m=900))
    assert reason in refusal("tuning-key", source, *seen)


def test_a_count_of_blocks_in_the_key_tells_the_size() -> None:
    """As flash-linear-attention's norms have it."""
    source = text(key='["n", "NB"]').replace("m, n, BLOCK", "m, n, NB, BLOCK")
    source = source.replace("(x, y, m, n)", "(x, y, m, n, triton.cdiv(m, 2048))")
    assert refusal("tuning-key", source) == "the key of k tells all sizes apart"


def test_programs_that_the_key_counts_need_no_count_of_their_own() -> None:
    """As FlagGems' reductions have it."""
    counted = rows('"n"', "(triton.cdiv(n, 8),)")
    assert refusal("tuning-key", counted) == "the key of k tells all sizes apart"
    assert "programs_bucket" in KEY.apply(asked(rows("'n'", "(x.shape[0],)")), {})


@pytest.mark.parametrize("grid", ["(x.shape[0],)", "(2 * x.shape[0] * heads,)"])
def test_a_key_that_has_a_bucket_gets_no_other_of_the_same(grid: str) -> None:
    after = KEY.apply(asked(rows('"n"', grid)), {})
    assert 'key=["n", "programs_bucket"]' in after
    assert refusal("tuning-key", after) == "the key of k tells all sizes apart"


def test_names_are_quoted_as_the_others_are() -> None:
    assert "key=['n', 'programs_bucket']" in KEY.apply(asked(rows("'n'", "(x.shape[0],)")), {})


def test_only_what_differs_is_put_into_buckets(tmp_path: Path) -> None:
    source = text(key='["m", "n"]')
    seen = (launch(1.0, 2.0, 3.0, m=700), launch(1.0, 2.0, 3.0, m=900))
    after = BUCKETS.apply(asked(source, *seen), {})
    assert 'key=["m_bucket", "n"]' in after
    assert disagreement("run", [[[3, 700]]], source, [after], False, tmp_path) == ""
    assert refusal("bucketed-key", source, seen[0]) == "no size in the key of k was seen to differ"
    assert "no size in the key of k" in refusal("bucketed-key", after, *seen)
    assert "nobody saw which sizes k" in refusal("bucketed-key", source)


@pytest.mark.parametrize("more", [', prune_configs_by={"early_config_prune": f}', ", **options"])
def test_what_is_left_out_by_a_size_keeps_the_size_in_its_key(more: str) -> None:
    """A choice that is used for another size may be one that is not allowed there."""
    source = text(key='["m", "n"]', more=more)
    seen = (launch(1.0, 2.0, 3.0, m=700), launch(1.0, 2.0, 3.0, m=900))
    assert refusal("bucketed-key", source, *seen).startswith("the tuner at line 17 ")
    longer = KEY.apply(asked(text(more=more), *seen[:1], launch(1.0, 2.0, 3.0, m=7000)), {})
    assert f'key=["n", "m_bucket"]{more}' in longer


def test_a_compile_time_constant_is_compiled_for_in_any_case() -> None:
    source = text(key='["m", "n"]').replace("y_ptr, m, n,", "y_ptr, m: tl.constexpr, n,")
    seen = (launch(1.0, 2.0, 3.0, m=700), launch(1.0, 2.0, 3.0, m=900))
    assert "no size in the key of k" in refusal("bucketed-key", source, *seen)


def test_nothing_is_tuned_in_the_interpreter() -> None:
    interpreted = Subject(Source(text()), KernelClass.MEMORY, Hardware(interpreted=True))
    for entry in (KEY, BUCKETS):
        with pytest.raises(NotApplicable, match="cannot time configs"):
            entry.variants(interpreted)
