"""What the Triton entries must not fall for, and forms of kernels beyond their examples."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.rewriting.common.dead_names import without_dead_names
from agent.syntax import Source

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"


def subject(text: str, **hardware: int) -> Subject:
    return Subject(Source(text), KernelClass.MEMORY, Hardware(**hardware))


def apply(name: str, text: str, params: Params | None = None) -> str:
    entry = playbook.get(name)
    if params is None:
        params = entry.variants(subject(text))[0]
    return without_dead_names(text, entry.apply(subject(text), params))


def refusal(name: str, text: str, **hardware: int) -> str:
    with pytest.raises(NotApplicable) as refused:
        playbook.get(name).variants(subject(text, **hardware))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def agree(wrapper: str, calls: list[list[list[int]]], old: str, new: str, folder: Path) -> None:
    agree_all(wrapper, calls, old, [new], folder)


def agree_all(
    wrapper: str, calls: list[list[list[int]]], old: str, new: list[str], folder: Path
) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support.triton_numbers import disagreement

    assert disagreement(wrapper, calls, old, new, rounding=True, folder=folder) == ""


# --- block sizes that are more than that --------------------------------------------------------

QUANTIZE = (
    HEAD
    + """\
@triton.jit
def quantize_kernel(x_ptr, y_ptr, scale_ptr, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    scale = tl.max(tl.abs(x), axis=0) / 127.0
    tl.store(scale_ptr + block, scale)
    tl.store(y_ptr + offsets, x / scale, mask=offsets < n)


def quantize(x):
    n = x.numel()
    y = torch.empty_like(x)
    scale = torch.empty(triton.cdiv(n, 128))
    quantize_kernel[(triton.cdiv(n, 128),)](x, y, scale, n, BLOCK=128)
    return y
"""
)


def test_the_granularity_of_a_quantization_is_not_tuned() -> None:
    assert "reduces along it, block by block" in refusal("add-autotune", QUANTIZE)
    tuned = QUANTIZE.replace(
        "@triton.jit",
        '@triton.autotune(configs=[triton.Config({"BLOCK": 128})], key=["n"])\n@triton.jit',
    ).replace(", n, BLOCK=128)", ", n)")
    assert "is more than a block size" in refusal("widen-configs", tuned)
    assert "reduces along it, block by block" in refusal("block-size", QUANTIZE)


# --- in place -----------------------------------------------------------------------------------

IN_PLACE = (
    HEAD
    + """\
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + offsets, mask=offsets < n) + tl.load(y_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, total, mask=offsets < n)


def add(x, y):
    out = torch.empty_like(x)
    n, size = x.numel(), 1024
    add_kernel[(triton.cdiv(n, size),)](x, y, {out}, n, BLOCK=size)
    return x
"""
)
ATOMIC = "tl.atomic_add(out_ptr + offsets, total, mask=offsets < n)"


@pytest.mark.parametrize(
    ("out", "line", "restored"),
    [
        ("out", "", None),
        ("x", "", '    restore_value=["out_ptr"],\n'),
        ("out", ATOMIC, '    restore_value=["out_ptr"],\n'),
    ],
)
def test_what_tuning_overwrites_is_restored(out: str, line: str, restored: str | None) -> None:
    text = IN_PLACE.replace("{out}", out)
    if line:
        text = text.replace("tl.store(out_ptr + offsets, total, mask=offsets < n)", line)
    tuned = apply("add-autotune", text)
    assert (restored or '    key=["n"],\n)\n') in tuned
    assert ("restore_value" in tuned) == (restored is not None)


def test_a_kernel_that_waits_for_others_is_not_tuned() -> None:
    locked = IN_PLACE.replace("{out}", "out").replace(
        "    tl.store(", "    while tl.atomic_cas(y_ptr, 0, 1) == 1:\n        pass\n    tl.store("
    )
    assert "may wait for another program" in refusal("add-autotune", locked)
    assert "may wait for another program" in refusal("persistent-programs", locked)


def test_tma_is_not_asked_for_what_the_kernel_writes() -> None:
    entry = playbook.get("tile-descriptors")
    text = entry.before.replace("a, b, c, M, N, K, a.stride(0)", "a, b, a, M, N, K, a.stride(0)")
    assert "loads and stores" in refusal("tile-descriptors", text)


# --- where sizes come from ----------------------------------------------------------------------

SCALE = (
    HEAD
    + """\
{above}@triton.jit
def twice(x):
    return x + x


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, twice(x), mask=offsets < n)


def scale(x{parameter}):
    y = torch.empty_like(x)
    n = x.numel()
{body}    return y
"""
)
ABOVE = "SIZE = 512\n\n\n"
LAUNCH = "    scale_kernel[(triton.cdiv(n, {0}),)](x, y, n, BLOCK={0})\n"


def scale(block: str, above: str = ABOVE, parameter: str = "", launch: str = LAUNCH) -> str:
    return SCALE.format(above=above, parameter=parameter, body=launch.format(block))


def test_a_module_constant_is_tuned_and_stays() -> None:
    text = scale("SIZE")
    tuned = apply("add-autotune", text)
    assert tuned.count("@triton.autotune") == 1
    assert "SIZE = 512\n" in tuned
    assert 'lambda META: (triton.cdiv(n, META["BLOCK"]),)](x, y, n)' in tuned
    assert tuned.index("def twice") < tuned.index("@triton.autotune") < tuned.index("def scale_k")


def test_an_option_that_a_tuners_configs_give_goes_from_the_launch() -> None:
    """Triton's configs give `num_ctas`, too, and a launch that gives it once more fails."""
    launch = "    scale_kernel[(triton.cdiv(n, SIZE),)](x, y, n, SIZE, num_ctas={})\n"
    assert "num_ctas" not in apply("add-autotune", scale("SIZE", launch=launch.format(1)))
    assert "gives num_ctas=2" in refusal("add-autotune", scale("SIZE", launch=launch.format(2)))


def test_a_local_that_only_sized_the_launch_goes() -> None:
    launch = "    size = 512\n    blocks = triton.cdiv(n, size)\n" + (
        "    scale_kernel[(blocks,)](x, y, n, size, num_warps=8)\n"
    )
    tuned = apply("add-autotune", scale("", launch=launch))
    assert "size" not in tuned
    assert "blocks" not in tuned
    assert 'scale_kernel[lambda META: (triton.cdiv(n, META["BLOCK"]),)](x, y, n)' in tuned
    assert 'triton.Config({"BLOCK": 512}, num_warps=8),' in tuned


@pytest.mark.parametrize(
    "lines",
    [
        "grid = (triton.cdiv(n, SIZE),)\n    n = n // 2",
        "blocks = triton.cdiv(n, SIZE)\n    n = n // 2\n    grid = lambda META: (blocks,)",
        "grid = (triton.cdiv(sizes[0], SIZE),)\n    sizes[0] = 3",
    ],
)
def test_a_grid_that_would_be_computed_from_other_values_later(lines: str) -> None:
    launch = f"    sizes = [n]\n    {lines}\n    scale_kernel[grid](x, y, x.numel(), SIZE)\n"
    assert "changes between the grid and line" in refusal("add-autotune", scale("", launch=launch))
    before = lines.rpartition("n = n // 2")[0].rstrip() or lines.partition("\n")[0]
    if "lambda" not in lines and "sizes" not in lines:
        apply("add-autotune", scale("", launch=launch.replace(lines, before)))


def test_kernels_that_share_a_constant_are_tuned_together(tmp_path: Path) -> None:
    text = scale("SIZE", launch=LAUNCH + LAUNCH.replace("scale_kernel", "negate_kernel"))
    text = text.replace("    scale_kernel[", "    x = x.clone()\n    scale_kernel[").replace(
        "(x, y, n, BLOCK=SIZE)\n    return", "(y, x, n, BLOCK=SIZE)\n    return x\n    return"
    )
    second = text[text.index("@triton.jit\ndef scale_kernel") : text.index("def scale(")]
    second = second.replace("scale_kernel", "negate_kernel").replace("twice(x)", "-x")
    text = text.replace("def scale(", second + "def scale(")
    tuned = apply("add-autotune", text)
    assert tuned.count("@triton.autotune") == 2
    assert "autotuned already" in refusal("add-autotune", tuned)
    agree("scale", [[[5, 77]]], text, tuned, tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (scale('SIZES["scale"]', above='SIZES = {"scale": 512}\n\n\n'), "is computed"),
        (scale("size", parameter=", size=512"), "a caller chooses it"),
        (scale("0", launch="    scale_kernel[(1,)](*[x, y, n, 512])\n"), "behind a `*`"),
        (scale("SIZE", launch=LAUNCH + LAUNCH.replace("{0}", "n")), "is computed"),
        (scale("SIZE", launch=LAUNCH + "    print(scale_kernel)\n"), "without a launch"),
        (
            scale("SIZE", launch=LAUNCH + LAUNCH.replace("={0})", "={0}, num_warps=8)")),
            "different warps",
        ),
    ],
)
def test_sizes_that_are_not_ours_to_choose(text: str, reason: str) -> None:
    assert reason in refusal("add-autotune", text)


def test_arguments_behind_a_star_stop_whoever_asks_for_them(tmp_path: Path) -> None:
    text = scale("0", launch="    scale_kernel[(triton.cdiv(n, 512),)](*[x, y], n, BLOCK=512)\n")
    for name in ("add-autotune", "even-blocks"):
        reason = refusal(name, text)
        assert "hides arguments" in reason or "does not show" in reason, name
    text = text.replace("y = torch.empty_like(x)", "y = torch.zeros_like(x)")
    changed = apply("persistent-programs", text)  # gives one argument more, by its name
    agree("scale", [[[5, 77]], [[3000]]], text, changed, tmp_path)


def test_options_behind_two_stars_are_given_once(tmp_path: Path) -> None:
    """What the launch gives by name, nothing behind them can give; what it does not, they may."""
    launch = "    scale_kernel[(triton.cdiv(n, SIZE),)](x, y, n, BLOCK=SIZE, **OPTIONS)\n"
    options = 'OPTIONS = {"num_warps": 8, "num_stages": 2}\n'
    text = scale("0", above=options + ABOVE, launch=launch)
    text = text.replace("y = torch.empty_like(x)", "y = torch.zeros_like(x)")
    asked, changed = subject(text, sm=90), {}
    for entry in playbook.for_backend("triton"):
        with contextlib.suppress(NotApplicable):
            changed[entry.name] = [entry.apply(asked, given) for given in entry.variants(asked)]
    assert {"block-size", "even-blocks", "blocks-and-warps", "warps-and-stages"} <= changed.keys()
    assert "may give options behind a `**`" in refusal("add-autotune", text)
    every = [text for variants in changed.values() for text in variants]
    assert not [text for text in every if "num_warps=" in text]
    agree_all("scale", [[[5, 77]], [[3000]]], text, every, tmp_path)
    hidden = text.replace("BLOCK=SIZE, **OPTIONS", '**OPTIONS | {"BLOCK": SIZE}')
    assert "does not show" in refusal("block-size", hidden)
    default = hidden.replace('**OPTIONS | {"BLOCK": SIZE}', "**OPTIONS")
    default = default.replace("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr = 512)")
    assert "leave BLOCK to its default" in refusal("warps-by-row", default, sm=90)


RUNNING = (
    HEAD
    + """\
@triton.jit
def running_kernel(x_ptr, y_ptr, rows, cols, stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, COLS)
    before = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, cols, COLS):
        mask = (row < rows)[:, None] & (start + col < cols)[None, :]
        places = row[:, None] * stride + (start + col)[None, :]
        x = tl.load(x_ptr + places, mask=mask, other=0.0)
        sums = tl.cumsum(x, 1)
        tl.store(y_ptr + places, before[:, None] + sums, mask=mask)
        before += tl.sum(x, 1)


def running(x):
    y = torch.empty_like(x)
    rows, cols = x.shape
    ROWS = 8
    running_kernel[(triton.cdiv(rows, ROWS),)](x, y, rows, cols, x.stride(0), ROWS, 16)
    return y
"""
)


def test_rows_that_a_loop_carries_in_one_dimension_are_free(tmp_path: Path) -> None:
    entry, asked = playbook.get("block-size"), subject(RUNNING, sm=90)
    variants = entry.variants(asked)
    assert {params["ROWS"] for params in variants} > {8}
    every = [entry.apply(asked, params) for params in variants]
    agree_all("running", [[[5, 77]], [[19, 40]]], RUNNING, every, tmp_path)
    along = RUNNING.replace("+= tl.sum(x, 1)", "+= tl.sum(before)")
    assert "reduces along it" in refusal("block-size", along.replace("cols, COLS)", "cols, 16)"))


def test_every_config_of_a_tuned_kernel_is_right(tmp_path: Path) -> None:
    text = scale("SIZE")
    agree("scale", [[[5, 77]], [[3000]]], text, apply("add-autotune", text), tmp_path)


# --- helpers, and the numbers of programs ---------------------------------------------------------

HELPED = (
    HEAD
    + """\
@triton.jit
def total(x):
    return tl.sum(x, axis=0)


@triton.jit
def mine():
    return tl.program_id(0)


@triton.jit
def scale_of(scales, group):
    at = scales + group
    return tl.load(at)


@triton.jit
def deeper(scales, group):
    return scale_of(scales, group=group)


@triton.jit
def own(scales):
    return tl.load(scales + tl.program_id(axis=0))


@triton.jit
def put(out, places, y, by, n):
    scaled = y * by
    tl.store(out + places, scaled, mask=places < n)


@triton.jit
def helped_kernel(x_ptr, s_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    row = tl.program_id(1)
    places = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + places, mask=places < n, other=0.0)
    y = x * tl.load(s_ptr + row)
    tl.store(y_ptr + row * n + places, y, mask=places < n)


def helped(x):
    y = torch.empty_like(x)
    rows, n = x.shape
    scales = torch.arange(4 * x.numel() + 1, dtype=x.dtype)
    block = 512
    helped_kernel[(triton.cdiv(n, block), rows)](x, scales, y, n, BLOCK=block)
    return y
"""
)
SIZED = ("block-size", "blocks-and-warps", "add-autotune")


def test_the_number_of_a_row_is_none_of_a_block(tmp_path: Path) -> None:
    numbered = HELPED.replace("y = x * ", "y = x * (row + 1) * ")
    asked = subject(numbered, sm=90)
    every = [
        entry.apply(asked, params)
        for entry in map(playbook.get, SIZED)
        for params in entry.variants(asked)
    ]
    assert len(every) > 8
    agree_all("helped", [[[5, 77]], [[2, 3000]]], numbered, every, tmp_path)


@pytest.mark.parametrize(
    ("line", "instead", "reason"),
    [
        ("y = x * ", "y = x / total(x) * ", "reduces along it"),
        ("y = x * ", "y = x / x.sum(axis=0) * ", "reduces along it"),
        ("s_ptr + row)", "s_ptr + pid)", "counts its blocks"),
        ("s_ptr + row)", "s_ptr + tl.program_id(0))", "counts its blocks"),
        ("s_ptr + row)", "s_ptr + pid.to(tl.int64) * 2)", "counts its blocks"),
        ("tl.load(s_ptr + row)", "scale_of(s_ptr, pid)", "counts its blocks"),
        ("tl.load(s_ptr + row)", "deeper(s_ptr, pid + 1)", "counts its blocks"),
        ("tl.load(s_ptr + row)", "deeper(s_ptr + pid, row)", "counts its blocks"),
        ("tl.load(s_ptr + row)", "own(s_ptr)", "counts its blocks"),
        ("    y = x", "    s_ptr += pid\n    y = x", "counts its blocks"),
        ("s_ptr + row)", "s_ptr + places // (BLOCK * 2))", "drops a remainder"),
        ("y = x * ", "y = x * (pid + 1) * ", "counts its blocks"),
        (
            "y, mask=places < n)\n\n\ndef helped(",
            "y + pid, mask=places < n)\n\n\ndef helped(",
            "counts its",
        ),
        (
            "    tl.store(y_ptr + row * n + places, y,",
            "    put(y_ptr, places, y, pid * BLOCK, n)\n    tl.store(y_ptr + row * n + places, y,",
            "it is part of what line",
        ),
    ],
)
@pytest.mark.parametrize(
    "start",
    [
        "pid = tl.program_id(0)",
        "pid = tl.program_id(axis=0).to(tl.int64)",
        "pid = mine()",
        "first = tl.program_id(0)\n    pid = first + 0",
    ],
)
def test_what_ties_a_size_to_the_programs_and_helpers(
    start: str, line: str, instead: str, reason: str
) -> None:
    assert line in HELPED
    text = HELPED.replace(line, instead)
    at = text.index("def helped_kernel")
    text = text[:at] + text[at:].replace("pid = tl.program_id(0)", start, 1)
    for name in SIZED:
        assert reason in refusal(name, text, sm=90), name


def test_a_loop_as_long_as_a_block_counts_none() -> None:
    text = HELPED.replace("s_ptr + row)", "s_ptr + pid)")
    text = text.replace("    y = x", "    for _ in range(BLOCK):\n        x = x * 1.0\n    y = x")
    assert "counts its blocks" in refusal("block-size", text, sm=90)


# --- masked loads without `other` ---------------------------------------------------------------


def test_lanes_that_are_masked_off_stay_nobodys(tmp_path: Path) -> None:
    """Their values are undefined; a kernel that uses them is told so by the guards."""
    old = scale("SIZE").replace(", other=0.0", "")
    asked = subject(old)
    changed = []
    for entry in playbook.for_backend("triton"):
        with contextlib.suppress(NotApplicable):
            changed += [entry.apply(asked, params) for params in entry.variants(asked)]
    assert len(changed) > 8
    assert not [text for text in changed if "other=" in text]
    agree_all("scale", [[[5, 77]], [[3000]]], old, changed, tmp_path)


# --- even blocks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "grid", ["(triton.cdiv(n, 512) + 1,)", "(n // 512,)", "(132,)", "(triton.cdiv(n, 256),)"]
)
def test_a_grid_that_does_not_fit_keeps_its_masks(grid: str) -> None:
    text = scale("512", launch=f"    scale_kernel[{grid}](x, y, n, BLOCK=512)\n")
    assert "is not seen to be cdiv(n, BLOCK)" in refusal("even-blocks", text)


@pytest.mark.parametrize(
    ("mask", "relaxed"),
    [
        ("(\n        offsets < n\n    )", "(offsets < n) | EVEN_N"),
        (
            "(offsets < n\n    ) & (factor > 0\n    )",
            "((offsets < n) | EVEN_N) & (factor > 0\n    )",
        ),
        (
            "(\n        offsets < n  # each\n    )",
            "(\n        offsets < n  # each\n    ) | EVEN_N",
        ),
    ],
)
def test_what_is_relaxed_stands_on_one_line(mask: str, relaxed: str) -> None:
    text = playbook.get("even-blocks").before.replace("mask = offsets < n", f"mask = {mask}")
    assert f"    mask = {relaxed}\n" in apply("even-blocks", text)


def test_a_row_is_even_where_it_fills_its_block(tmp_path: Path) -> None:
    old = playbook.get("warps-by-row").before
    new = apply("even-blocks", old)
    assert 'lambda args: args["n_cols"] >= args["BLOCK"]' in new
    agree("log_softmax", [[[3, 64]], [[3, 65]], [[2, 2]]], old, new, tmp_path)


def test_a_comparison_whose_method_is_called_is_relaxed_as_a_whole(tmp_path: Path) -> None:
    old = playbook.get("warps-by-row").before
    start = old.index("    tl.store(")
    line = "    y = y * (cols < n_cols).to(tl.float32)\n"
    old = old[:start] + line + old[start:]
    new = apply("even-blocks", old)
    assert "((cols < n_cols) | FULL_COLS).to(tl.float32)" in new
    agree("log_softmax", [[[3, 64]], [[3, 65]]], old, new, tmp_path)


@pytest.mark.parametrize(("block", "told"), [("", True), (', "COLS": 256', False)])
def test_a_block_that_only_its_default_gives_is_told_no_heuristic(block: str, told: bool) -> None:
    text = playbook.get("tuning-key").before.replace(
        "COLS: tl.constexpr", "COLS: tl.constexpr = 256"
    )
    text = text.replace(', "COLS": 1024', block).replace(', "COLS": 256', block)
    if told:
        given = "triton.cdiv(n_cols, 256)"
        text = text.replace('triton.cdiv(n_cols, META["COLS"])', given)
    new = apply("even-blocks", text)
    assert "EVEN_ROWS" in new
    assert ("EVEN_COLS" in new) != told


def test_rows_in_registers_can_be_even_too(tmp_path: Path) -> None:
    old = playbook.get("row-in-registers").before
    new = apply("even-blocks", apply("row-in-registers", old))
    assert 'args["ROW"] % args["BLOCK"] == 0 and args["n_cols"] >= args["ROW"]' in new
    agree("l2_normalize", [[[3, 128]], [[3, 200]], [[2, 1]]], old, new, tmp_path)


@pytest.mark.parametrize(
    "row",
    ["tl.program_id(0).to(tl.int64)", "tl.cast(tl.program_id(0), tl.int64)"],
)
def test_a_wide_program_number_is_one(row: str) -> None:
    """As FlagGems, fla and Unsloth write it, whose tensors have more than 2**31 elements."""
    text = playbook.get("even-blocks").before.replace("tl.program_id(0)", row)
    assert "| EVEN_N" in apply("even-blocks", text)


def test_a_length_that_the_kernel_changes_is_no_length() -> None:
    text = scale("512").replace("    offsets =", "    n = n - 1\n    offsets =")
    assert "compares no element numbers" in refusal("even-blocks", text)


# --- the order of programs ----------------------------------------------------------------------

LINEAR = (
    playbook.get("grouped-programs")
    .before.replace(
        "    pid_m = tl.program_id(0)\n    pid_n = tl.program_id(1)\n",
        "    pid = tl.program_id(0)\n    num_pid_n = tl.cdiv(N, BLOCK_N)\n"
        "    pid_m = pid // num_pid_n\n    pid_n = pid % num_pid_n\n",
    )
    .replace(
        "grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))",
        'grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)',
    )
)
PRODUCTS = [[[300, 40], [40, 200]], [[64, 32], [32, 700]], [[700, 5], [5, 64]]]


@pytest.mark.full
def test_one_number_for_all_tiles(tmp_path: Path) -> None:
    new = apply("grouped-programs", LINEAR, {"group": 4})
    assert (
        "    pid_m, pid_n = tl.swizzle2d("
        "pid // num_pid_n, pid % num_pid_n, tl.cdiv(M, BLOCK_M), num_pid_n, 4)\n"
    ) in new
    agree("matmul", PRODUCTS, LINEAR, new, tmp_path)


def test_numbers_of_64_bits_stay_so(tmp_path: Path) -> None:
    old = LINEAR.replace("tl.program_id(0)\n", "tl.program_id(0).to(tl.int64)\n")
    new = apply("grouped-programs", old, {"group": 4})
    assert "    pid = tl.program_id(0).to(tl.int64)\n" in new
    agree("matmul", PRODUCTS[:1], old, new, tmp_path)
    old = playbook.get("grouped-programs").before
    old = old.replace("tl.program_id(0)\n", "tl.program_id(0).to(tl.int64)\n")
    new = apply("grouped-programs", old, {"group": 4})
    number = "(tl.program_id(0) + tl.program_id(1) * tl.num_programs(0)).to(tl.int64)"
    assert f"    pid = {number}\n" in new
    agree("matmul", PRODUCTS[:1], old, new, tmp_path)
    old = old.replace("tl.program_id(1)\n", "tl.program_id(1).to(tl.int32)\n")
    assert "are of two types" in refusal("grouped-programs", old)


@pytest.mark.full
def test_columns_first(tmp_path: Path) -> None:
    old = (
        LINEAR.replace("num_pid_n = tl.cdiv(N, BLOCK_N)", "num_pid_m = tl.cdiv(M, BLOCK_M)")
        .replace("pid_m = pid // num_pid_n", "pid_m = pid % num_pid_m")
        .replace("pid_n = pid % num_pid_n", "pid_n = pid // num_pid_m")
    )
    new = apply("grouped-programs", old, {"group": 4})
    agree("matmul", PRODUCTS, old, new, tmp_path)


def test_a_grid_that_is_no_product_is_not_grouped() -> None:
    text = LINEAR.replace('triton.cdiv(M, META["BLOCK_M"]) * triton', "132 * triton")
    assert "is not seen to be cdiv(N, BLOCK_N) times another" in refusal("grouped-programs", text)


def test_tiles_in_groups_already() -> None:
    text = LINEAR.replace("pid_m = pid // num_pid_n", "pid_m = pid // num_pid_n % 8 + 1 * pid")
    assert "no program id" in refusal("grouped-programs", text)
    lines = (
        "    in_group = 8 * num_pid_n\n    first = pid // in_group * 8\n"
        "    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, 8)\n"
        "    pid_m = first + pid % in_group % height\n    pid_n = pid % in_group // height\n"
    )
    split = "    pid_m = pid // num_pid_n\n    pid_n = pid % num_pid_n\n"
    assert split in LINEAR
    told = refusal("grouped-programs", LINEAR.replace(split, lines))
    assert "matmul_kernel groups its programs already: line 15" in told


@pytest.mark.parametrize("grid", ["(triton.cdiv(M, 64), 1)", "(triton.cdiv(M, 64),)"])
def test_one_column_of_tiles_has_no_groups(grid: str) -> None:
    text = playbook.get("grouped-programs").before
    whole = "(triton.cdiv(M, 64), triton.cdiv(N, 64))"
    assert whole in text
    assert "has one program along axis 1: nothing to group" in refusal(
        "grouped-programs", text.replace(whole, grid)
    )


@pytest.mark.full
def test_grouped_tuned_even_and_persistent(tmp_path: Path) -> None:
    old = playbook.get("grouped-programs").before
    old = old.replace("    grid = (", "    m = 64\n    n = 64\n    grid = (")
    old = old.replace("(M, 64)", "(M, m)").replace("(N, 64)", "(N, n)")
    old = old.replace("BLOCK_M=64, BLOCK_N=64", "BLOCK_M=m, BLOCK_N=n")
    new = apply("grouped-programs", old, {"group": 4})
    for name in ("even-blocks", "add-autotune", "tile-descriptors", "persistent-programs"):
        new = apply(name, new)
    assert "num_m, num_n = grid_0, grid_1" in new
    assert "pid = program\n" in new
    agree("matmul", PRODUCTS, old, new, tmp_path)


# --- persistent programs ------------------------------------------------------------------------

MOVING = playbook.get("persistent-programs").before


@pytest.mark.parametrize(
    "change",
    [
        ("    x_ptr += row", "    if n_cols > 1:\n        x_ptr += row"),
        ("    cols = ", "    x_ptr += 0\n    cols = "),
        ("    cols = ", "    if row > 3:\n        return\n    cols = "),
        ("    cols = ", "    total = tl.num_programs(0)\n    cols = "),
    ],
)
def test_bodies_that_bear_a_second_round(change: tuple[str, str], tmp_path: Path) -> None:
    text = MOVING.replace(*change, 1).replace("empty_like", "zeros_like")
    agree("center", [[[7, 33]]], text, apply("persistent-programs", text), tmp_path)


def test_a_grid_of_three_axes(tmp_path: Path) -> None:
    old = HEAD + (
        "@triton.jit\ndef copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n"
        "    first = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)\n"
        "    cols = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + first * n + cols, mask=cols < n)\n"
        "    tl.store(y_ptr + first * n + cols, x + tl.program_id(0), mask=cols < n)\n\n\n"
        "def copy(x):\n    y = torch.empty_like(x)\n    a, b, n = x.shape\n"
        "    grid = (a, b, triton.cdiv(n, 16))\n"
        "    copy_kernel[grid](x, y, n, BLOCK=16)\n    return y\n"
    )
    new = apply("persistent-programs", old, {"programs_per_sm": 2})
    assert "n, BLOCK: tl.constexpr, grid_0, grid_1):" in new
    assert "    grid_2 = tl.cdiv(n, BLOCK)\n" in new
    agree("copy", [[[2, 3, 40]], [[5, 1, 16]]], old, new, tmp_path)


BATCHED = (
    HEAD
    + """\
@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    STEP
    y_ptr += tl.program_id(1) * n
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < n), mask=cols < n)


def copy(x):
    n = x.shape[1]
    y = torch.empty_like(x)
    grid = (triton.cdiv(n, 16), x.shape[0])
    copy_kernel[grid](x, y, n, BLOCK=16)
    return y
"""
)
"""The pointers move by the program's own number, as those of batched and of attention kernels."""


@pytest.mark.parametrize(
    "step",
    [
        "x_ptr += tl.program_id(1) * n",
        "x_ptr = x_ptr + tl.program_id(1) * n",
        "x_ptr += n * (tl.num_programs(1) - 1 - tl.program_id(1))",
        "x_ptr += tl.program_id(1) * n if n > 1 else tl.program_id(1)",
        "x_ptr += tl.program_id(1) * n | 0",
    ],
)
def test_pointers_that_move_by_the_program_move_in_each_round(step: str, tmp_path: Path) -> None:
    old = BATCHED.replace("STEP", step)
    new = apply("persistent-programs", old)
    agree("copy", [[[3, 40]], [[1, 7]]], old, new, tmp_path)


def test_an_extent_that_changes_before_the_launch_is_not_counted_there() -> None:
    text = BATCHED.replace("STEP", "x_ptr += tl.program_id(1) * n")
    launch = "    copy_kernel[grid]"
    changed = text.replace(launch, f"    x = x.view(1, -1)\n{launch}")
    assert "`x.shape[0]` changes between" in refusal("persistent-programs", changed)
    inside = text.replace("copy_kernel[grid]", "copy_kernel[(triton.cdiv(n, 16), x.shape[0])]")
    assert apply("persistent-programs", inside.replace(launch, f"    x = x.view(1, -1)\n{launch}"))


ONCE = (
    HEAD
    + """\
@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < n), mask=cols < n)


def copy(x):
    n = x.numel()
    y = torch.empty_like(x)

    GRID

    def once():
        copy_kernel[grid](x, y, n, BLOCK=16)

    once()
    return y
"""
)


@pytest.mark.parametrize(
    "grid",
    [
        'grid = lambda META: (triton.cdiv(n, META["BLOCK"]),)',
        'def grid(META):\n        return (triton.cdiv(n, META["BLOCK"]),)',
    ],
)
def test_a_grid_of_another_function_counts_the_multiprocessors_itself(
    grid: str, tmp_path: Path
) -> None:
    """As where a thread launches by the grid of the function that starts it."""
    old = ONCE.replace("GRID", grid)
    new = apply("persistent-programs", old)
    assert new.count("n_sms =") == 1
    agree("copy", [[[3, 40]], [[1, 7]]], old, new, tmp_path)


def test_equal_numbers_do_not_tie_a_grid_to_a_block() -> None:
    new = apply("persistent-programs", playbook.get("grouped-programs").before)
    assert "BLOCK_K: tl.constexpr, grid_0, grid_1" in " ".join(new.split())
    assert "grid_0=triton.cdiv(M, 64)" in new


# --- exponents ----------------------------------------------------------------------------------

ONLINE = (
    HEAD
    + """\
@triton.jit
def lse_kernel(x_ptr, y_ptr, scale, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = tl.full((1,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((1,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        x *= scale
        x = tl.where(cols < n_cols, x, -1.0e30)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        total = total * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    tl.store(y_ptr + row + tl.arange(0, 1), {stored})


def lse(x):
    y = torch.empty(x.shape[0])
    lse_kernel[(x.shape[0],)](x, y, 0.25, x.shape[1], BLOCK=16)
    return y
"""
)


@pytest.mark.parametrize("stored", ["m + tl.log(total)", "m * 2.0 - total", "total"])
def test_a_log_sum_exp_keeps_its_base(stored: str, tmp_path: Path) -> None:
    old = ONLINE.replace("{stored}", stored)
    new = apply("folded-exp2", old)
    assert "x *= scale * 1.4426950408889634\n" in new
    assert "tl.exp(" not in new
    assert ("(m * 0.6931471805599453)" in new) == stored.startswith("m")
    agree("lse", [[[3, 40]], [[5, 16]], [[2, 1]]], old, new, tmp_path)


@pytest.mark.parametrize(
    "scale", ["scale + 1.0", "scale - 0.5", "scale if n_cols > 1 else 1.0", "(scale + 1.0)"]
)
def test_a_scale_that_is_a_sum_is_folded_into_as_a_whole(scale: str, tmp_path: Path) -> None:
    old = ONLINE.replace("{stored}", "total").replace("x *= scale", f"x *= {scale}")
    new = apply("folded-exp2", old)
    assert f"x *= ({scale.strip('()')}) * 1.4426950408889634\n" in new
    agree("lse", [[[3, 40]], [[2, 1]]], old, new, tmp_path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("score, other = tl.max(score, axis=0), 1.0", "gives `score`"),
        ("score = tl.maximum(score, y=cap)", "`cap` of softmax_kernel is handed over as it is"),
        ("score: tl.tensor = tl.max(score, axis=0)", "gives `score`"),
    ],
)
def test_an_exponent_that_is_bound_in_another_way_is_left_alone(line: str, reason: str) -> None:
    assert reason in refusal("folded-exp2", SOFTCAP.replace("{line}", line))


@pytest.mark.parametrize(
    "change",
    [
        ("-1.0e30", "0.0"),
        (
            "m_new = tl.maximum(m, tl.max(x, axis=0))",
            "most = tl.maximum(m, tl.max(x, axis=0))\n"
            '        m_new = tl.where(most == float("-inf"), 0.0, most)',
        ),
    ],
)
def test_a_zero_is_one_in_every_base(change: tuple[str, str], tmp_path: Path) -> None:
    """As where all is masked, and the maximum of nothing may not be minus infinity."""
    old = ONLINE.replace("{stored}", "m + tl.log(total)")
    assert change[0] in old
    old = old.replace(*change)
    agree("lse", [[[3, 40]], [[2, 1]]], old, apply("folded-exp2", old), tmp_path)


def test_a_number_that_exponents_are_compared_with_stays(tmp_path: Path) -> None:
    """-1e12, scaled and scaled back, is its neighbour in float32."""
    old = ONLINE.replace("{stored}", "total").replace("-1.0e30", "NUMBER")
    old = old.replace(
        "m_new = tl.maximum(m, tl.max(x, axis=0))",
        "most = tl.maximum(m, tl.max(x, axis=0))\n"
        "        m_new = tl.where(most == NUMBER, 0.0, most)",
    )
    assert "asks whether one is `-1.0e12`" in refusal(
        "folded-exp2", old.replace("NUMBER", "-1.0e12")
    )
    new = apply("folded-exp2", old.replace("NUMBER", 'float("-inf")'))
    agree("lse", [[[3, 40]]], old.replace("NUMBER", 'float("-inf")'), new, tmp_path)


SCALED = "looks for exponents with a scale, as in tl.exp(x * scale - m), and line "


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("        x *= scale\n", ""), SCALED),
        (("tl.exp(", "tl.log("), "looks for tl.exp, and lse_kernel calls none"),
        (("        x *= scale\n", "        x = tl.load(x_ptr)\n"), SCALED),
        (("x *= scale", "x = x * scale + x"), SCALED),
        (("-1.0e30", "1.0"), SCALED),
        (("tl.max(x, axis=0)", "tl.sum(x, axis=0)"), SCALED),
    ],
)
def test_exponents_without_one_scale(change: tuple[str, str], reason: str) -> None:
    assert reason in refusal("folded-exp2", ONLINE.replace("{stored}", "total").replace(*change))


SOFTCAP = (
    HEAD
    + """\
@triton.jit
def softmax_kernel(x_ptr, y_ptr, scale, cap, n_cols, BLOCK: tl.constexpr, CAPS: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    score = x * scale
    if CAPS:
        {line}
    score = tl.where(cols < n_cols, score, float("-inf"))
    numerator = tl.exp(score - tl.max(score, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * n_cols + cols, y, mask=cols < n_cols)


def softmax(x):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, 0.25, 1.5, x.shape[1], BLOCK=16, CAPS=x.shape[0] > 2)
    return y
"""
)


@pytest.mark.parametrize(
    "line",
    [
        "score = cap * tl.sigmoid(score / cap)",
        "score = cap * tl.abs(score)",
        "score = score * cap",
        "score = x * cap",
    ],
)
def test_a_score_that_is_scaled_again_in_a_branch_is_not_folded_twice(
    line: str, tmp_path: Path
) -> None:
    """As of attentions whose scores may be capped: it has its scale taken back first."""
    old = SOFTCAP.replace("{line}", line)
    new = apply("folded-exp2", old)
    assert new.count("1.442695") == 2
    assert new.count("0.6931471805599453") == ("score" in line.partition("=")[2])
    agree("softmax", [[[3, 16]], [[2, 9]]], old, new, tmp_path)


@pytest.mark.parametrize(
    "line",
    ["score *= cap", "score = x * tl.max(score, axis=0)", "score = score.to(tl.float16)"],
)
def test_an_exponent_that_is_scaled_in_place_or_a_scale_itself_is_left_alone(line: str) -> None:
    said = refusal("folded-exp2", SOFTCAP.replace("{line}", line))
    given = line.removeprefix("score = ")
    assert f"line 13 of softmax_kernel gives `{given}`: an exponent is computed of it" in said


@pytest.mark.parametrize(
    ("loaded", "reason"),
    [
        ("x", "scales `x`, which may have 16 bits"),
        ("x.to(tl.float16)", "scales `x.to(tl.float16)`, which may have 16 bits"),
        ("tl.where(cols > 3, x, 0.0)", "which may have 16 bits"),
        ("x.to(tl.float32)", ""),
        ("(x * x.to(tl.float32))", ""),
    ],
)
def test_a_product_of_16_bits_gets_no_larger(loaded: str, reason: str) -> None:
    text = playbook.get("folded-exp2").before.replace("x * scale", f"{loaded} * scale")
    assert apply("folded-exp2", text)  # `tl.exp` takes 32 bits, which these have then
    text = text.replace("tl.exp(score - largest)", "tl.exp((score - largest).to(tl.float32))")
    if reason:
        assert reason in refusal("folded-exp2", text)
    else:
        assert "tl.exp2(" in apply("folded-exp2", text)


def test_a_name_that_may_be_an_exponent_or_not_is_none(tmp_path: Path) -> None:
    """What is stored has its scale taken back, or has none: in two branches nobody can tell."""
    stored = "tl.store(y_ptr + row * n_cols + cols, score, mask=cols < n_cols)"
    old = SOFTCAP.replace("{line}", "pass").replace(
        "    y = numerator", f"    if CAPS:\n        score = x\n    {stored}\n    y = numerator"
    )
    assert "`score` in line 18 of softmax_kernel may be one or not" in refusal("folded-exp2", old)
    new = apply("folded-exp2", old.replace("        score = x\n", "        pass\n"))
    assert "score * 0.693" in new


# --- descriptors --------------------------------------------------------------------------------

PRODUCT = playbook.get("tile-descriptors").before


def test_a_tile_that_lies_the_other_way(tmp_path: Path) -> None:
    old = (
        PRODUCT.replace("offs_k[:, None] * stride_bk + offs_n[None, :]",
                        "offs_k[:, None] + offs_n[None, :] * stride_bk")
        .replace("b_ptrs += BLOCK_K * stride_bk", "b_ptrs += BLOCK_K")
        .replace("def matmul(a, b):\n", "def matmul(a, b):\n    b = b.T.contiguous().T\n")
        .replace("b.stride(0), c", "b.stride(1), c")
    )  # fmt: skip
    new = apply("tile-descriptors", old, {"tiles": "loads and stores"})
    assert "(b_ptr, [N, K], [stride_bk, 1], [BLOCK_N, BLOCK_K])" in new
    assert "b = b_desc.load([pid_n * BLOCK_N, k]).T" in new
    assert "c_desc.store([pid_m * BLOCK_M, pid_n * BLOCK_N], acc)" in new
    agree("matmul", [[[70, 36], [36, 132]], [[70, 33], [33, 130]]], old, new, tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("other=0.0)", "other=1.0)"), "fills with 1.0"),
        (("offs_k[None, :] < K - k)", "offs_k[None, :] < K)"), "masked along its dimension 1"),
        (("(offs_m[:, None] < M) & (offs_k", "(offs_m[:, None] < M - 1) & (offs_k"), "masked"),
        (("a_ptr + offs_m[:, None]", "a_ptr + (offs_m % M)[:, None]"), "adds `(offs_m % M)"),
        (("        a_ptrs += BLOCK_K\n", "        a_ptrs += 2 * BLOCK_K\n"), "somewhere else"),
        (("mask=a_mask, ", ""), "has no mask along"),
    ],
)
def test_tiles_that_a_descriptor_does_not_describe(change: tuple[str, str], reason: str) -> None:
    text = PRODUCT.replace(*change).replace("b_mask, other=0.0", "b_mask, other=2.0")
    assert reason in refusal("tile-descriptors", text)


def test_descriptors_are_for_hopper_and_later() -> None:
    for name in ("tile-descriptors", "block-descriptors"):
        text = playbook.get(name).before
        assert refusal(name, text, sm=80) == "sm_80 has no tensor memory accelerator"
        assert playbook.get(name).variants(subject(text, sm=90))


# --- small ones ---------------------------------------------------------------------------------


def test_a_kernel_computes_no_warps_by_another_min() -> None:
    text = playbook.get("warps-by-row").before
    elsewhere = text.replace(
        "    BLOCK = triton.next_power_of_2(n_cols)\n", "    BLOCK = block(n_cols)\n"
    )
    assert 'lambda args: min(max(args["BLOCK"]' in apply("warps-by-row", elsewhere)
    for own in ("from torch import min", "def max(x):\n    return x"):
        changed = elsewhere.replace("import triton\n", f"{own}\nimport triton\n", 1)
        assert "is a name of the file's own" in refusal("warps-by-row", changed)


def test_rows_are_held_where_the_number_of_blocks_has_a_name(tmp_path: Path) -> None:
    """As in a public divergence of two rows."""
    old = playbook.get("row-in-registers").before.replace(
        "for start in range(0, n_cols, BLOCK):\n        cols = start +",
        "for part in range(0, parts):\n        cols = part * BLOCK +",
    )
    old = old.replace("program_id(0)\n", "program_id(0)\n    parts = tl.cdiv(n_cols, BLOCK)\n", 1)
    new = apply("row-in-registers", old)
    assert new.count("range(0, ROW // BLOCK)") == 2
    agree("l2_normalize", SHARED, old, new, tmp_path)


def test_rows_hold_what_passes_share() -> None:
    text = playbook.get("row-in-registers").before
    once = text.replace("x_ptr + row * stride + cols, mask=cols < n_cols, other=0.0)\n"
                        "        tl.store", "y_ptr + cols, mask=cols < n_cols, other=0.0)\n"
                        "        tl.store")  # fmt: skip
    assert "load from the same addresses" in refusal("row-in-registers", once)
    held = playbook.get("folded-exp2").before
    assert refusal("row-in-registers", held) == (
        "looks for two or more loops that pass over one row, and scaled_softmax_kernel has no loop"
    )
    grid = text.replace("[(n_rows,)]", "[(n_rows, 1024 // 1024)]").replace("BLOCK=1024", "BLOCK=B")
    grid = grid.replace("    y = torch", "    B = 1024\n    y = torch").replace("1024 //", "B //")
    assert "depends on BLOCK" in refusal("row-in-registers", grid)
    elsewhere = text.partition("\n\n\ndef l2_normalize(")[0]
    assert refusal("row-in-registers", elsewhere) == (
        "BLOCK of l2_normalize_kernel: this file does not launch l2_normalize_kernel"
    )


STRIDED = (
    playbook.get("row-in-registers")
    .before.replace("stride, n_cols,", "stride, stride_n, n_cols,")
    .replace("x, y, x.stride(0), n_cols", "x, y, *x.stride(), n_cols")
)
"""A launch as public code has it: a `*` gives the strides."""
SHARED = [[[3, 128]], [[3, 200]], [[2, 1]], [[5, 1000]]]


@pytest.mark.parametrize(
    ("old", "computed"),
    [
        (STRIDED, ""),
        (STRIDED.replace("range(0, n_cols", "range(first, n_cols")
         .replace("    row = tl", "    first = 0\n    row = tl"), ""),
        (STRIDED.replace("BLOCK=1024", "BLOCK=block"),
         "    block = min(512, triton.next_power_of_2(n_cols))\n"),
        (STRIDED.replace("BLOCK=1024", "BLOCK=block, num_warps=warps"),
         "    block, warps = 256, 4\n    block = block * 2\n"),
        (STRIDED.replace("BLOCK=1024", "BLOCK=block, num_warps=warps"),
         "    block = 128\n    warps = min(max(block // 256, 1), 8)\n"),
        (STRIDED.replace("BLOCK=1024", "BLOCK=block, num_warps=warps")
         .replace("    return y", "    x.block = block\n    return y"),
         "    block = max(16, n_cols // 4)\n    block = triton.next_power_of_2(block)\n"
         "    warps = min(max(block // 256, 1), 8)\n"),
        (STRIDED.replace("BLOCK=1024", "BLOCK=block"),
         "    for block in (64, 128):\n        print(n_cols)\n"),
        (STRIDED.replace("BLOCK=1024", "BLOCK=BLOCK")
         .replace("@triton.jit", "BLOCK = 256\n\n\n@triton.jit"),
         "    parts = triton.cdiv(n_cols, BLOCK)\n    part = torch.empty(n_rows, min(parts, 4))\n"),
    ],
)  # fmt: skip
def test_rows_of_public_kernels_are_held(old: str, computed: str, tmp_path: Path) -> None:
    old = old.replace("    l2_normalize_kernel[", f"{computed}    l2_normalize_kernel[")
    new = apply("row-in-registers", old)
    assert new.count("range(0, ROW, BLOCK)") + new.count("range(first, ROW, BLOCK)") == 2
    agree("l2_normalize", SHARED, old, new, tmp_path)


@pytest.mark.parametrize(
    ("computed", "reason"),
    [
        ("    block = settings(n_cols)\n    y = torch.empty(n_rows, block)\n",
         "uses `block` for more than tiles and grid"),
        ("    block = settings(n_cols)\n    x = x[:, :block]\n",
         "uses `block` for more than tiles and grid"),
    ],
)  # fmt: skip
def test_rows_whose_block_is_more_than_a_tile_size(computed: str, reason: str) -> None:
    text = STRIDED.replace("BLOCK=1024", "BLOCK=block").replace(
        "    l2_normalize_kernel[", f"{computed}    l2_normalize_kernel["
    )
    assert reason in refusal("row-in-registers", text)


@pytest.mark.parametrize(
    ("given", "grid", "reason"),
    [
        ("(block := 64)", "(n_rows,)", "gives is more than an expression"),
        ("SIZES.pop()", "(n_rows,)", "gives is more than an expression"),
        ('SIZES["b"]', '(n_rows, triton.cdiv(n_cols, SIZES["b"]))', "depends on BLOCK"),
    ],
)
def test_rows_whose_launch_makes_more_of_its_block(given: str, grid: str, reason: str) -> None:
    text = STRIDED.replace("BLOCK=1024", f"BLOCK={given}").replace("(n_rows,)]", f"{grid}]")
    assert grid in text and given in text
    assert reason in refusal("row-in-registers", text)


@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        ("range(n)", "are no constants"),
        ("range(0, tl.cdiv(BLOCK, TERMS))", "are computed: `tl.cdiv(BLOCK, TERMS)`"),
        ("range(BLOCK // TERMS)", "has 256 rounds, over 16"),
        ("range(0, 64)", "has 64 rounds, over 16"),
        ("tl.range(4, num_stages=2)", "options of its own"),
        ("tl.static_range(4)", "no plain range"),
    ],
)
def test_loops_that_stay_loops(loop: str, reason: str) -> None:
    text = playbook.get("static-ranges").before.replace("range(TERMS)", loop)
    assert reason in refusal("static-ranges", text)


def test_a_loop_whose_bound_is_computed_of_constants_is_written_out() -> None:
    text = playbook.get("static-ranges").before.replace(
        "range(TERMS)", "range(TERMS // 2, 2 * TERMS)"
    )
    assert "in tl.static_range(TERMS // 2, 2 * TERMS)" in apply("static-ranges", text)


def test_a_loop_of_a_helper_is_said_to_be_one() -> None:
    text = playbook.get("static-ranges").before
    loop = "    for _ in range(TERMS):\n        total = total * x + 1.0\n"
    helper = f"@triton.jit\ndef powers_of(x, total, TERMS: tl.constexpr):\n{loop}    return total\n"
    text = text.replace(loop, "    total = powers_of(x, total, TERMS)\n")
    text = text.replace("@triton.jit\n", f"{helper}\n\n@triton.jit\n", 1)
    assert refusal("static-ranges", text) == (
        "powers_kernel has no loop of its own; that of powers_of, which it calls, at line 8 stays"
    )


@pytest.mark.parametrize(
    ("lines", "division"),
    [
        ("total += (i - 1) // 2", "(i - 1) // 2"),
        ("total += (TERMS - 2 * i) % 3", "(TERMS - 2 * i) % 3"),
        ("j = i - 2\n        j %= 3\n        total += j", "j %= 3"),
        ("j = 1 - i\n        total += tl.cdiv(j, 2)", "tl.cdiv(j, 2)"),
        ("total += 7 // (i - 8)", "7 // (i - 8)"),
        ("at -= 1\n        total += at // 2", "at // 2"),
        ("total += (i + 1) // 2 + (TERMS + i * 3) % 4", ""),
        ("total += ((offsets - i) // 2) % 7", ""),
        ("total += (tl.program_id(0) - i) % 3", ""),
        ("total += (n - i) // 2", ""),
        ("at += 1\n        total += at // 2", ""),
        ("total += (TERMS - 5) // 2", ""),
        ("x -= i\n        total += x // 2", ""),
    ],
)
def test_a_division_of_what_may_be_a_negative_constant_stays(lines: str, division: str) -> None:
    text = playbook.get("static-ranges").before.replace("for _ in", "at = 0\n    for i in")
    text = text.replace("total = total * x + 1.0", lines)
    if division:
        assert f"`{division}` at line" in refusal("static-ranges", text)
    else:
        assert "tl.static_range(TERMS)" in apply("static-ranges", text)


def test_tf32_is_asked_for_where_it_was_refused() -> None:
    text = playbook.get("tf32-dots").before
    old = text.replace('input_precision="ieee"', "allow_tf32=False")
    assert apply("tf32-dots", old, {"input_precision": "tf32"}).count('"tf32"') == 1
    unasked = text.replace(', input_precision="ieee"', "")
    assert "no tl.dot asks for fp32 products" in refusal("tf32-dots", unasked)
    assert "sm_75 has no TF32" in refusal("tf32-dots", text, sm=75)


def test_an_epilogue_in_halves_leaves_nothing_unused() -> None:
    store = "    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc, mask=c_mask)\n"
    text = playbook.get("epilogue-halves").before.replace(
        f"    c_mask = (rows[:, None] < M) & (cols[None, :] < N)\n{store}",
        """\
    unread = rows + 1
    out = rows[:, None] * N
    kept = rows[:, None] < M

    # The result.
    at = out + cols[None, :]
    c_mask = kept & (cols[None, :] < N)
    c_ptrs = c_ptr + at
    # All of it.
    tl.store(c_ptrs, acc, mask=c_mask)
    tl.device_assert(kept)
""",
    )
    before, _, after = apply("epilogue-halves", text).partition(
        "    # The result.\n    # All of it.\n"
    )
    assert before.endswith("    unread = rows + 1\n    kept = rows[:, None] < M\n\n")
    assert after.startswith("    halves = tl.permute(")
    assert "c_mask" not in after
    assert "tl.device_assert(kept)" in after


def test_what_a_remainder_decides_already_is_not_asked_again() -> None:
    """As by a heuristic of the author's, under a name of its own."""
    text = (
        playbook.get("even-blocks")
        .before.replace(
            "@triton.jit\n",
            '@triton.heuristics({"NO_MASK": lambda args: args["n"] % args["BLOCK"] == 0})\n'
            "@triton.jit\n",
        )
        .replace("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, NO_MASK: tl.constexpr)")
        .replace(
            "    mask = offsets < n\n",
            "    if NO_MASK:\n        mask = offsets >= 0\n    else:\n        mask = offsets < n\n",
        )
    )
    assert "asks NO_MASK, a remainder" in refusal("even-blocks", text)
    handed = re.sub(r"@triton.heuristics.*\n", "", text).replace(
        "BLOCK=1024)", "BLOCK=1024, NO_MASK=whole)"
    )
    handed = handed.replace("    n = x.numel()\n", "    n = x.numel()\n    whole = n % 1024 == 0\n")
    assert "asks NO_MASK, a remainder" in refusal("even-blocks", handed)


def test_an_epilogue_of_64_bits_stays_whole() -> None:
    text = playbook.get("epilogue-halves").before.replace(
        "tl.program_id(0) *", "tl.program_id(0).to(tl.int64) *"
    )
    assert "computes with 64 bits" in refusal("epilogue-halves", text)


def test_configs_that_a_function_makes_stay_the_authors() -> None:
    text = playbook.get("widen-configs").before
    start, end = text.index("["), text.index("],\n    key")
    made = text[:start] + "[c for c in configs()]" + text[end + 1 :]
    assert "a comprehension makes the configs" in refusal("widen-configs", made)
    hooked = text.replace("num_warps=4)", "num_warps=4, pre_hook=reset)")
    assert "different hooks" in refusal("widen-configs", hooked)


def test_every_config_is_tried_with_the_options_that_were_added() -> None:
    text = playbook.get("config-options").before
    for params in ({"num_warps": 8}, {"num_warps": 2}, {"num_warps": 4}, {"num_stages": 5}):
        subject = Subject(Source(text), KernelClass.MEMORY, Hardware())
        text = playbook.get("config-options").apply(subject, params)
    assert text.count("for made in") == 2  # what is there is added to
    values: dict[str, Any] = {}
    configs = text[text.index("configs=[") + 8 : text.index(',\n    key=["n"]')]
    exec(
        "import triton\n" + text[text.index("def configs") : text.index("@triton.autotune")], values
    )
    made = eval(configs, values)
    assert {(c.kwargs["BLOCK"], c.num_warps, c.num_stages) for c in made} == {
        (block, warps, stages) for block in (512, 1024) for warps in (2, 4, 8) for stages in (3, 5)
    }
    assert len(made) == 12


def test_configs_over_several_lines_stay_so() -> None:
    text = playbook.get("config-options").before.replace(
        "configs=configs()",
        """\
configs=[
    # The first two.
    triton.Config({"BLOCK": 512}),

    triton.Config(
        {"BLOCK": 1024},
    ),
]""",
    )
    changed = playbook.get("config-options").apply(subject(text), {"num_warps": 8})
    made = """\
        for made in [
            # The first two.
            triton.Config({"BLOCK": 512}),

            triton.Config(
                {"BLOCK": 1024},
            ),
        ]
        for warps in sorted({made.num_warps, 8})
    ], key=["n"])
"""
    assert made in changed


def test_configs_that_are_chosen_between_stay_one_expression() -> None:
    text = playbook.get("config-options").before
    text = text.replace("configs=configs()", "configs=configs() if torch.version.hip else MADE")
    assert "MADE" in text
    changed = playbook.get("config-options").apply(subject(text), {"num_warps": 8})
    assert "for made in (configs() if torch.version.hip else MADE)" in changed


@pytest.mark.parametrize("entry", ["widen-configs", "config-options"])
def test_a_config_is_named_as_the_file_names_it(entry: str) -> None:
    text = playbook.get(entry).before.replace("triton.Config(", "Config(")
    text = text.replace("import triton\n", "import triton\nfrom triton import Config\n")
    given = playbook.get(entry).variants(subject(text))[0]
    changed = playbook.get(entry).apply(subject(text), given)
    assert "Config.Config" not in changed and changed.count("Config(") > text.count("Config(")
    alone = text.replace("import triton\nfrom", "from").replace("triton.autotune", "autotune")
    alone = alone.replace("triton.jit", "jit").replace(
        "import Config", "import Config, autotune, jit"
    )
    changed = playbook.get(entry).apply(subject(alone), given)
    assert "triton.Config" not in changed and changed.count("Config(") > alone.count("Config(")


def test_options_of_configs_that_the_file_cannot_make_are_refused() -> None:
    text = playbook.get("config-options").before
    text = text.replace("import triton\n", "from triton import autotune, jit\n")
    text = text.replace("@triton.", "@").replace("triton.Config(", "make(")
    assert "does not import triton" in refusal("config-options", text)


SQUARE = """\
import triton
import triton.language as tl


@triton.jit
def add_kernel(a_ptr, b_ptr, c_ptr, M, N, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    at = rows[:, None] * N + cols[None, :]
    tl.store(c_ptr + at, tl.load(a_ptr + at, mask=mask) + tl.load(b_ptr + at, mask=mask), mask=mask)


def add(a, b, c):
    M, N = a.shape
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK"]), triton.cdiv(N, meta["BLOCK"]))
    add_kernel[grid](a, b, c, M, N, BLOCK=32)
"""


def test_a_square_of_one_constant_is_no_row() -> None:
    changed = apply("add-autotune", SQUARE)
    tuned = {int(size) for size in re.findall(r'"BLOCK": (\d+)', changed)}
    assert tuned == {16, 32, 64}
    sizes = [
        params["BLOCK"] for params in playbook.get("blocks-and-warps").variants(subject(SQUARE))
    ]
    assert set(sizes) == {16, 32, 64}


def test_a_size_that_stays_is_not_tuned_for_its_warps() -> None:
    text = f"""{HEAD}
@triton.jit
def wrap_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = ((tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) % n)[:, None]
    tl.atomic_max(y_ptr + at, tl.load(x_ptr + at, mask=at < n))


def wrap(x, y, n):
    wrap_kernel[(triton.cdiv(n, 1),)](x, y, n, BLOCK=1)
"""
    text = text.replace("(triton.cdiv(n, 1),)", "lambda meta: (triton.cdiv(n, meta['BLOCK']),)")
    assert "no other block size of wrap_kernel is safe" in refusal("add-autotune", text)
    assert "triton.autotune" in apply("add-autotune", text.replace("BLOCK=1)", "BLOCK=2)"))


def test_a_pointer_is_no_size() -> None:
    text = playbook.get("tuning-key").before
    loaded = "):\n    n_rows = tl.load(n_rows)\n    rows ="
    changed = text.replace("):\n    rows =", loaded)
    assert changed != text
    assert "tells all sizes apart" in refusal("tuning-key", changed)
    bound = text.replace("):\n    rows =", "):\n    most = tl.load(n_rows + 1)\n    rows =")
    bound = bound.replace("rows < n_rows", "rows < most")
    assert "tells all sizes apart" in refusal("tuning-key", bound)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("total = total + i * 0x61C88647", "`i * 0x61C88647` at line 12 may leave 32 bits"),
        ("total = total + (i + 5) * 1000 * 1000 * 1000", "may leave 32 bits"),
        ("total = total + (1 << (i + 30))", "may leave 32 bits"),
        ("total = total + (i * BLOCK * SIZE * SIZE >> 30)", "may leave 32 bits"),
        ("total = total * 0x61C88647 + i", ""),
        ("total = total + i * 1000", ""),
    ],
)
def test_a_constant_has_more_bits_than_a_counter(line: str, told: str) -> None:
    text = playbook.get("static-ranges").before.replace("for _ in", "for i in")
    text = text.replace("total = total * x + 1.0", line)
    if told:
        assert told in refusal("static-ranges", text)
    else:
        assert "tl.static_range(TERMS)" in apply("static-ranges", text)


@pytest.mark.parametrize(("given", "is_constant"), [("i", True), ("i + 1", True), ("x * i", False)])
def test_a_helper_is_given_no_constant_for_a_counter(given: str, *, is_constant: bool) -> None:
    """It may ask for `i.to(tl.float32)`, which constants do not have."""
    helper = "@triton.jit\ndef weight(i):\n    return tl.exp(-i.to(tl.float32))\n\n\n"
    text = playbook.get("static-ranges").before.replace("for _ in", "for i in")
    text = text.replace("@triton.jit", helper + "@triton.jit")
    text = text.replace("total * x + 1.0", f"total * weight({given})")
    if is_constant:
        assert refusal("static-ranges", text) == (
            "weight is given at line 17 what would be a constant then"
        )
    else:
        assert "tl.static_range(TERMS)" in apply("static-ranges", text)


@pytest.mark.parametrize("masked", ["-1e9", "float('-inf')"])
@pytest.mark.parametrize("is_stored", [True, False])
def test_what_stands_for_minus_infinity_counts_where_a_maximum_is_stored(
    masked: str, *, is_stored: bool
) -> None:
    """As that of a row which is masked altogether."""
    text = playbook.get("folded-exp2").before.replace(
        "score = x * scale\n",
        f"score = x * scale\n    score = tl.where(cols < n_cols - 1, score, {masked})\n",
    )
    if not is_stored:
        text = text.replace("    tl.store(lse_ptr + row, largest + tl.log(total))\n", "")
    scaled = f"tl.where(cols < n_cols - 1, score, {masked} * 1.4426950408889634)"
    assert (scaled in apply("folded-exp2", text)) is (is_stored and masked == "-1e9")


@pytest.mark.parametrize(
    ("masked", "head", "told"),
    [
        ("-3.4e38", "", "leaves float32 when scaled"),
        ("LOW", "LOW = tl.constexpr(-1e9)\n\n\n", "`LOW` of the module is a number of its own"),
        ("LOW", "LOW = tl.constexpr(float('-inf'))\n\n\n", ""),
    ],
)
def test_a_number_that_cannot_be_scaled_is_told(masked: str, head: str, told: str) -> None:
    text = playbook.get("folded-exp2").before.replace(
        "score = x * scale\n",
        f"score = x * scale\n    score = tl.where(cols < n_cols - 1, score, {masked})\n",
    )
    text = text.replace("@triton.jit", head + "@triton.jit")
    if told:
        assert told in refusal("folded-exp2", text)
    else:
        assert "tl.exp2(" in apply("folded-exp2", text)


def test_all_of_a_hook_goes_with_the_new_configs() -> None:
    text = playbook.get("widen-configs").before.replace("num_warps=2)", "num_warps=2, pre_hook=f)")
    text = text.replace("num_warps=4)", "num_warps=4, pre_hook=f)")
    new = apply("widen-configs", text)
    assert new.count("triton.Config(") == new.count("pre_hook=f)") > 2


def test_a_reason_says_what_is_not_followed() -> None:
    """Not that what stands there does not."""
    even = """
import triton
import triton.language as tl


@triton.jit
def twice_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EACH: tl.constexpr):
    places = tl.program_id(0) * EACH * BLOCK + tl.arange(0, BLOCK * EACH)
    mask = places < n
    tl.store(y_ptr + places, 2 * tl.load(x_ptr + places, mask=mask), mask=mask)


def twice(x, y):
    twice_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), 256, 1)
"""
    told = refusal("even-blocks", even)
    assert "line 9 of twice_kernel compares `places < n`" in told and "not followed" in told


STUBS = """\
try:
    import triton
    import triton.language as tl
except ImportError:
    import types

    triton = types.ModuleType("triton")
    triton.jit = lambda f: f
    triton.Config = dict
"""


def test_what_a_stand_in_for_triton_lacks_is_not_asked_of_it() -> None:
    """Some files are imported where Triton is not installed, by a module of a few names."""
    plain = "import triton\nimport triton.language as tl\n"
    text = playbook.get("even-blocks").before.replace(plain, STUBS)
    assert "line 9 stands in for Triton" in refusal("even-blocks", text)
    whole = text.replace("    triton.Config", "    triton.heuristics = triton.Config")
    assert "EVEN_N" in apply("even-blocks", whole)
    tuned = playbook.get("config-options").before.replace(plain, STUBS)
    assert "stands in for `triton.Config`" in refusal("config-options", tuned)


def test_a_precision_that_a_kernel_is_given_is_no_tf32() -> None:
    before = playbook.get("tf32-dots").before
    text = re.sub(r'input_precision="\w+"', "input_precision=PRECISION", before)
    assert text != before
    assert "is handed in: `PRECISION`" in refusal("tf32-dots", text)


KEPT_FOR_BACKWARD = """\
import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + tl.program_id(0) * n + cols, mask=cols < n, other=0.0)
        tl.store(y_ptr + tl.program_id(0) * n + cols, x * x, mask=cols < n)


@triton.jit
def backward_kernel(x_ptr, dy_ptr, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + cols, mask=cols < n, other=0.0)
    dy = tl.load(dy_ptr + tl.program_id(0) * n + cols, mask=cols < n, other=0.0)
    tl.store(dy_ptr + tl.program_id(0) * n + cols, 2 * x * dy, mask=cols < n)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        BLOCK = triton.next_power_of_2(x.shape[1])
        warps = 4
        forward_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=BLOCK, num_warps=warps)
        KEPT
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        backward_kernel[(x.shape[0],)](x, dy, x.shape[1], BLOCK=ctx.BLOCK, num_warps=ctx.warps)
        return dy
"""


@pytest.mark.parametrize(
    "kept", ["ctx.BLOCK, ctx.warps = BLOCK, warps", "ctx.BLOCK = BLOCK\n        ctx.warps = warps"]
)
def test_a_block_that_a_backward_pass_takes_over_stays(kept: str) -> None:
    """There it holds the whole row."""
    told = refusal("scaled-blocks", KEPT_FOR_BACKWARD.replace("KEPT", kept))
    assert "uses `BLOCK` for more than tiles and grid" in told


def test_warps_that_a_backward_pass_takes_over_change_no_result() -> None:
    text = KEPT_FOR_BACKWARD.replace("KEPT", "ctx.warps = warps").replace("ctx.BLOCK", "256")
    text = text.replace("warps = 4\n", "warps = 4 if BLOCK < 2048 else 8\n")
    assert "BLOCK = min(2 * BLOCK, 65536)\n        forward_kernel[" in apply("scaled-blocks", text)
