"""Forms of public kernels that become rounds of a loop: early returns, changed parameters, `**`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.playbook.trial import TritonTrial
from agent.syntax import Source
from tests.support.triton_compiler import GENERATIONS, compiled

pytest.importorskip("triton", reason="triton is not installed")

ENTRY = playbook.get("persistent-programs")
COLS = "    cols = tl.arange(0, BLOCK)\n"
MOVED = "    x_ptr += row * stride\n"
FORMS = {
    "a return": (COLS, "    if row % 3 == 1:\n        return\n" + COLS),
    "a return in a line": (COLS, "    if row % 3 == 1 or n_cols < 2: return\n" + COLS),
    "something before it returns": (
        COLS,
        "    if row == 1:\n        tl.store(y_ptr + row * stride, 7.0)\n        return\n" + COLS,
    ),
    "two returns": (COLS, "".join(f"    if row == {n}:\n        return\n" for n in (1, 3)) + COLS),
    "a return at the end": (
        "y, mask=cols < n_cols)\n",
        "y, mask=cols < n_cols)\n    if row == 1:\n        return\n",
    ),
    "a return of nothing at the end": (
        "y, mask=cols < n_cols)\n",
        "y, mask=cols < n_cols)\n    return\n",
    ),
    "how many programs there are": (
        "mask=cols < n_cols)\n\n",
        "mask=cols < n_cols)\n    last = tl.num_programs(0) - 1\n    if row == last:\n"
        "        tl.store(y_ptr + row * stride, 7.0 * tl.num_programs(axis=0))\n\n",
    ),
    "a number of 64 bits": ("tl.program_id(0)\n", "tl.program_id(0).to(tl.int64)\n"),
    "a number of 64 bits at its use": (MOVED, "    x_ptr += row.to(tl.int64) * stride\n"),
    "how many programs there are, asked for nothing": (
        "mask=cols < n_cols)\n\n",
        "mask=cols < n_cols)\n    tl.num_programs(0)\n\n",
    ),
    "x = x + ...": (MOVED, "    x_ptr = x_ptr + row * stride\n"),
    "a parameter of another type": (
        MOVED,
        f"    if BLOCK > 64:\n        n_cols = n_cols.to(tl.int64)\n{MOVED}",
    ),
    "a parameter that is moved twice": (MOVED, MOVED + "    x_ptr += 0\n"),
    "a parameter that is used and moved": (
        MOVED,
        "    first = tl.load(x_ptr)\n    tl.device_assert(first == first)\n" + MOVED,
    ),
    "a barrier": ("    tl.store(", "    tl.debug_barrier()\n    tl.store("),
    "a barrier behind a return": (
        COLS,
        "    if row % 3 == 1:\n        return\n    tl.debug_barrier()\n" + COLS,
    ),
    "a grid by a name of its function": (
        "    center_kernel[(n_rows,)](",
        "    def grid(meta):\n        programs = (n_rows,)\n        return programs\n\n"
        "    center_kernel[grid](",
    ),
    "a default": ("BLOCK: tl.constexpr):", "BLOCK: tl.constexpr = 64):"),
    "hidden arguments": ("BLOCK=block)", "**{'BLOCK': block})"),
}  # fmt: skip


def subject(text: str) -> Subject:
    return Subject(Source(text), KernelClass.MEMORY, Hardware(sm=90))


def formed(name: str) -> str:
    text = ENTRY.before.replace(*FORMS[name])
    assert text != ENTRY.before
    return text


@pytest.mark.parametrize("name", FORMS)
def test_the_numbers_are_kept(name: str, tmp_path: Path) -> None:
    from tests.support.triton_numbers import disagreement

    assert isinstance(ENTRY.trial, TritonTrial)
    # What a program leaves out is left as it was.
    text = formed(name).replace("empty_like", "zeros_like")
    texts = [ENTRY.apply(subject(text), params) for params in ENTRY.variants(subject(text))]
    assert all("tl.num_programs(0)" in changed for changed in texts)
    trial = ENTRY.trial
    assert disagreement(trial.function, trial.calls, text, texts, False, tmp_path) == ""


@GENERATIONS
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.usefixtures("compiler")
def test_it_compiles(name: str, sm: int, tmp_path: Path) -> None:
    assert isinstance(ENTRY.trial, TritonTrial)
    text = formed(name)
    path = tmp_path / "kernel.py"
    path.write_text(ENTRY.apply(subject(text), ENTRY.variants(subject(text))[0]))
    types = list(ENTRY.trial.types_after)
    assert compiled(path, ENTRY.trial.kernel, types, sm, {}).asm["cubin"]


def test_loads_behind_a_branch_are_not_made_ahead() -> None:
    assert all("num_stages" not in params for params in ENTRY.variants(subject(formed("a return"))))


OPTIONAL = """\
import torch
import triton
import triton.language as tl


@triton.heuristics({"HAS_Z": lambda args: args["z_ptr"] is not None})
@triton.jit
def gated_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr, HAS_Z: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    y = tl.load(x_ptr + row * n + cols, mask=cols < n)
    if HAS_Z:
        y *= tl.load(z_ptr + row * n + cols, mask=cols < n)
    tl.store(y_ptr + row * n + cols, y, mask=cols < n)


def gated(x, z):
    y = torch.empty_like(x)
    z = z if len(z) > 1 else None
    gated_kernel[(x.shape[0],)](x, y, z, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""


@pytest.mark.parametrize("spelled", ["HAS_Z", "z_ptr is not None"])
def test_a_pointer_may_be_none_where_it_is_loaded_on_a_condition(
    spelled: str, tmp_path: Path
) -> None:
    """What is loaded ahead is counted before the condition is asked for."""
    from tests.support.triton_numbers import disagreement

    text = OPTIONAL.replace("if HAS_Z", f"if {spelled}")
    variants = [params for params in ENTRY.variants(subject(text)) if "num_stages" in params]
    texts = [ENTRY.apply(subject(text), params) for params in variants]
    assert texts and all("0 if z_ptr is None else" in changed for changed in texts)
    calls = [[[3, 100], [3, 100]], [[3, 100], [1, 1]]]
    assert disagreement("gated", calls, text, texts, False, tmp_path) == ""


@GENERATIONS
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("z", ["*fp32", None])
def test_a_pointer_that_may_be_none_compiles(sm: int, z: str | None, tmp_path: Path) -> None:
    (path := tmp_path / "kernel.py").write_text(
        ENTRY.apply(subject(OPTIONAL), {"programs_per_sm": 1, "num_stages": 3})
    )
    types = ["*fp32", "*fp32", z, "i32", 128, z is not None, "i32"]
    assert compiled(path, "gated_kernel", types, sm, {}).asm["cubin"]


@pytest.mark.parametrize("name", ["a barrier", "a barrier behind a return"])
def test_nothing_is_loaded_ahead_of_a_barrier(name: str) -> None:
    variants = ENTRY.variants(subject(formed(name)))
    assert variants == [{"programs_per_sm": count} for count in (1, 2, 4, 8)]
    ahead = ENTRY.apply(subject(formed(name)), {"programs_per_sm": 1, "num_stages": 3})
    assert "num_stages" not in ahead


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("    for _ in range(3):\n        if row == 1:\n            return\n", "returns"),
        ("    if row == 1:\n        return\n    else:\n        row += 0\n", "returns"),
        (
            "    if row == 1:\n        return\n    cols = cols[None, :]\n",
            "sets cols before it may return, and again behind",
        ),
    ],
)  # fmt: skip
def test_returns_that_stay(more: str, reason: str) -> None:
    text = ENTRY.before.replace(COLS, COLS + more)
    assert text != ENTRY.before
    with pytest.raises(NotApplicable, match=reason):
        ENTRY.variants(subject(text))


TWICE = """
@triton.jit
def twice_kernel(y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + row * stride + cols, mask=cols < n_cols)
    tl.store(y_ptr + row * stride + cols, 2 * y, mask=cols < n_cols)


def center(x)"""
LAUNCH = "    center_kernel[(n_rows,)](x, y, x.stride(0), n_cols, BLOCK=block)\n"


@pytest.mark.parametrize(
    ("extent", "whose"), [("n_rows", 2), ("max(n_rows, 1)", 2), ("len(x)", 0)], ids=str
)
def test_a_grid_of_two_launches_is_written_out(extent: str, whose: int, tmp_path: Path) -> None:
    from tests.support.triton_numbers import disagreement

    both = f"    grid = ({extent},)\n{LAUNCH.replace('(n_rows,)', 'grid')}" + (
        "    twice_kernel[grid](y, y.stride(0), n_cols, BLOCK=block)\n"
    )
    text = ENTRY.before.replace("\ndef center(x)", TWICE).replace(LAUNCH, both)
    assert text.count("[grid]") == 2
    if not whose:
        with pytest.raises(NotApplicable, match="by calls"):
            ENTRY.variants(subject(text))
        return
    changed = ENTRY.apply(subject(text), ENTRY.variants(subject(text))[0])
    assert changed.count("tl.num_programs(0)") == changed.count(f"[(min({extent}, ") == whose
    assert f"    grid = ({extent},)\n" in changed
    assert isinstance(ENTRY.trial, TritonTrial)
    calls = ENTRY.trial.calls
    assert disagreement("center", calls, text, [changed], False, tmp_path) == ""


@pytest.mark.parametrize(
    ("grid", "reason"),
    [
        ("def grid(meta):\n        tiles = n_rows\n        return (tiles,)", "from the config"),
        ("def grid(meta, tiles=2):\n        return (tiles,)", "from the config"),
        ("grid = lambda meta, n_cols=n_rows: (n_cols,)", "from the config"),
        ("def grid(meta):\n        return (n_rows,)", ""),
    ],
    ids=["of its own names", "of its parameters", "of a default", "of the launch's"],
)
def test_an_extent_that_only_the_grid_s_function_knows_is_not_handed_in(
    grid: str, reason: str
) -> None:
    launch = LAUNCH.replace("(n_rows,)", "grid")
    text = ENTRY.before.replace(LAUNCH, f"    {grid}\n\n{launch}")
    if reason:
        with pytest.raises(NotApplicable, match=reason):
            ENTRY.variants(subject(text))
    else:
        assert "n_programs=n_rows" in ENTRY.apply(subject(text), ENTRY.variants(subject(text))[0])


@pytest.mark.parametrize(
    "loop",
    [
        "range(tl.program_id(0), n_rows, tl.num_programs(0))",
        "range(first, n_rows, N_PROGRAMS)",
        "tl.range(first, n_rows, N_PROGRAMS, num_stages=2)",
        "range(tl.program_id(axis=0), n_rows, n_programs)",
    ],
)
def test_a_kernel_that_loops_over_its_programs_is_left_as_it_is(loop: str, tmp_path: Path) -> None:
    """However it says how many there are: a loop around that one would gain nothing."""
    text = f"""\
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, n_rows, n_cols, n_programs, N_PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    for row in {loop}:
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        tl.store(x_ptr + row * n_cols + cols, 2 * x, mask=cols < n_cols)


def scale(x):
    n_rows, n_cols = x.shape
    n = min(132, n_rows)
    scale_kernel[(n,)](x, n_rows, n_cols, n, N_PROGRAMS=132, BLOCK=triton.next_power_of_2(n_cols))
"""
    subject = Subject(Source(text), KernelClass.MEMORY, Hardware((9, 0)))
    with pytest.raises(NotApplicable, match="scale_kernel is persistent already: its loop at line"):
        ENTRY.variants(subject)
    rows = text.replace("first, n_rows, N_PROGRAMS", "first, first + 1, 1")
    rows = rows.replace(loop, "range(first, first + 1)")
    assert ENTRY.variants(Subject(Source(rows), KernelClass.MEMORY, Hardware((9, 0))))


def test_a_loop_over_tiles_right_of_the_diagonal_is_none_over_programs(tmp_path: Path) -> None:
    from tests.support.triton_numbers import disagreement

    old = """\
import torch
import triton
import triton.language as tl


@triton.jit
def upper_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(row, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + cols, mask=cols < n)
        tl.store(y_ptr + row * n + cols, x, mask=cols < n)


def upper(x):
    y = torch.zeros_like(x)
    n = x.shape[0]
    upper_kernel[(n,)](x, y, n, BLOCK=16)
    return y
"""
    new = ENTRY.apply(subject(old), {"programs_per_sm": 1})
    assert "in tl.range(tl.program_id(0), n, tl.num_programs(0)" in new
    assert disagreement("upper", [[[50, 50]]], old, [new], False, tmp_path) == ""


@GENERATIONS
@pytest.mark.usefixtures("compiler")
def test_launches_of_other_files_hold(sm: int, tmp_path: Path) -> None:
    """One with a program for each row and without the new parameter computes what it did."""
    from tests.support.triton_numbers import disagreement

    assert isinstance(ENTRY.trial, TritonTrial)
    asked = replace(subject(ENTRY.before), elsewhere=frozenset({ENTRY.trial.kernel}))
    text = ENTRY.apply(asked, {"programs_per_sm": 4})
    assert "n_programs=None):" in text
    path = tmp_path / "kernel.py"
    path.write_text(text)
    types = list(ENTRY.trial.types)
    assert compiled(path, ENTRY.trial.kernel, [*types, None], sm, {}).asm["cubin"]
    launch = "center_kernel[(n_rows,)](x, y, x.stride(0), n_cols, BLOCK=block)"
    start = text.index("    n_sms =")
    end = text.index("    return y")
    theirs = f"{text[:start]}    {launch}\n{text[end:]}"
    calls = ENTRY.trial.calls
    assert disagreement(ENTRY.trial.function, calls, ENTRY.before, [theirs], False, tmp_path) == ""
