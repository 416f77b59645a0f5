"""Descriptors from the host: what is added to addresses, what does not fit, and who tunes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.syntax import Source
from tests.support.playbook import apply

pytest.importorskip("triton", reason="triton is not installed")

ENTRY = playbook.get("host-descriptors")
ALL: Params = {"tiles": "loads and stores"}
BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks" / "triton"
HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"


def subject(text: str, sm: int = 90) -> Subject:
    return Subject(Source(text), KernelClass.COMPUTE, Hardware(sm=sm))


def described(text: str, params: Params = ALL) -> str:
    return ENTRY.apply(subject(text), params)


def refusal(text: str, sm: int = 90) -> str:
    with pytest.raises(NotApplicable) as found:
        ENTRY.apply(subject(text, sm), ALL)
    return str(found.value)


def agree(wrapper: str, calls: list[list[list[int]]], old: str, new: str, folder: Path) -> None:
    from tests.support.triton_numbers import disagreement

    assert disagreement(wrapper, calls, old, [new], rounding=True, folder=folder) == ""


@pytest.mark.full
def test_a_batch_becomes_a_dimension(tmp_path: Path) -> None:
    old = (BENCHMARKS / "bmm" / "bmm.py").read_text()
    new = described(old)
    assert '[strides_in(args["a_ptr"], args["M"] * args["K"]), args["M"], args["K"]]' in new
    assert "a_desc.load([batch.to(tl.int32), pid_m * BLOCK_M, k])" in new
    calls = [[[3, 70, 64], [3, 64, 72]], [[2, 70, 33], [2, 33, 130]], [[1, 1, 7], [1, 7, 3]]]
    agree("bmm", calls, old, new, tmp_path)
    flat = {"programs_per_sm": 1, "flatten": True}
    persistent = playbook.get("persistent-programs").apply(subject(new), flat)
    agree("bmm", calls, old, persistent, tmp_path)


def test_heads_become_a_dimension(tmp_path: Path) -> None:
    old = (BENCHMARKS / "attention" / "attention.py").read_text()
    new = described(old)
    assert "k_desc.load([tl.program_id(1), start, 0]), (BLOCK_N, HEAD_DIM)).T" in new
    agree("attention", [[[1, 2, n, 16]] * 3 for n in (64, 77, 1)], old, new, tmp_path)


ROWS = (
    HEAD
    + """\
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, m, stride, stride_y, heads, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.arange(0, BLOCK)
    part = tl.program_id(1)
    x_ptrs = x_ptr + part // heads * stride + part % heads * stride_y + rows[:, None] * m + cols
    mask = (rows[:, None] < n) & (cols[None, :] < m)
    y_ptrs = y_ptr + part * stride_y + rows[:, None] * m + cols[None, :]
    tl.store(y_ptrs, 2 * tl.load(x_ptrs, mask=mask, other=0.0), mask=mask)


def scale(x):
    y = torch.empty_like(x)
    batch, heads, n, m = x.shape
    grid = (triton.cdiv(n, 16), batch * heads)
    scale_kernel[grid](x, y, n, m, x.stride(0), x.stride(1), heads, BLOCK=16)
    return y
"""
).replace("rows[:, None] * m + cols\n", "rows[:, None] * m + cols[None, :]\n")


def test_two_dimensions_before_those_of_the_tile(tmp_path: Path) -> None:
    new = described(ROWS)
    assert "[part // heads, part % heads, tl.program_id(0) * BLOCK, 0]" in new
    agree("scale", [[[2, 3, 20, 16]], [[2, 3, 5, 12]], [[2, 3, 5, 7]]], ROWS, new, tmp_path)


def test_what_no_program_number_multiplies_is_left_alone() -> None:
    for offset in ("heads * stride", "tl.load(y_ptr) * stride", "part * part * stride"):
        text = ROWS.replace("part // heads * stride + part % heads * stride_y", offset)
        text = text.replace("part * stride_y + rows", "heads * stride_y + rows")
        assert "no program's number times a stride" in refusal(text) or "follow" in refusal(text)


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        ("(part - 1) * stride", "does not follow from the program's number"),
        ("(part + heads) * stride", "does not follow from the program's number"),
        ("part * stride" + " + part * stride" * 3, "adds 4 offsets"),
    ],
)
def test_what_may_lie_before_the_array_or_in_a_sixth_dimension(offset: str, reason: str) -> None:
    text = ROWS.replace("part // heads * stride + part % heads * stride_y", offset)
    with pytest.raises(NotApplicable, match=reason):
        ENTRY.apply(subject(text), {"tiles": "loads"})


def test_an_empty_sum_goes_through_pointers(tmp_path: Path) -> None:
    """The driver takes no array without elements; the product is zero."""
    new = described(ENTRY.before)
    assert 'and args["K"] > 0\n' in new
    check = "    assert not torch.any(matmul(torch.ones(4, 0), torch.ones(0, 4)))\n    return c\n"
    wrapped = new.replace("def matmul(", "def product(").replace(
        "    return c\n", "    return c\n\n\n"
    )
    wrapped = (
        wrapped.rstrip("\n")
        + "\n\n\n"
        + (
            "def matmul(a, b):\n    c = product(a, b)\n"
            + check.replace("matmul(torch", "product(torch")
        )
    )
    agree("matmul", [[[16, 16], [16, 16]]], ENTRY.before, wrapped, tmp_path)


def test_one_that_tunes_itself_is_told_the_config(tmp_path: Path) -> None:
    configs = "[triton.Config({'BLOCK_M': m, 'BLOCK_N': 32, 'BLOCK_K': 32}) for m in (16, 64)]"
    old = ENTRY.before.replace(
        "@triton.jit", f"@triton.autotune({configs}, key=['K'])\n@triton.jit"
    )
    old = old.replace(", BLOCK_M=64, BLOCK_N=64, BLOCK_K=32", "")
    old = old.replace(
        "(triton.cdiv(M, 64), triton.cdiv(N, 64))",
        "lambda meta: (triton.cdiv(M, meta['BLOCK_M']), triton.cdiv(N, meta['BLOCK_N']))",
    )
    new = described(old)
    assert new.index("@triton.autotune") < new.index("@triton.heuristics")
    agree("matmul", [[[64, 64], [64, 64]], [[70, 36], [36, 132]]], old, new, tmp_path)


def test_descriptors_are_made_once() -> None:
    new = described(ENTRY.before)
    assert "the host makes tensor descriptors for matmul_kernel already" in refusal(new)
    with pytest.raises(NotApplicable, match="the host makes"):
        playbook.get("tile-descriptors").variants(subject(new))
    own = playbook.get("tile-descriptors").apply(subject(ENTRY.before), ALL)
    assert "makes tensor descriptors already" in refusal(own)


IMPORTED = "TensorDescriptor"
OTHER = """

@triton.jit
def copy_kernel(x_desc, y_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK)[:, None] * BLOCK, x_desc.load([0, 0]))


def copy(x, y):
    x_desc = TensorDescriptor(x, [64, 64], [64, 1], [64, 64])
    copy_kernel[(1,)](x_desc, y, BLOCK=64)
"""


def test_descriptors_of_another_kernel_are_no_obstacle() -> None:
    """As in a file of many kernels, of which an attention alone is given descriptors."""
    line = f"from triton.tools.tensor_descriptor import {IMPORTED}\n"
    old = ENTRY.before.replace("import triton\n", f"import triton\n{line}", 1) + OTHER
    new = described(old)
    assert "a_desc.load(" in new
    assert new.count(line) == 1 == new.count("import TensorDescriptor")
    again = refusal(new)
    assert "makes tensor descriptors for matmul_kernel already" in again
    assert "makes tensor descriptors for copy_kernel already" in again


def test_a_launch_beside_descriptors_and_one_out_of_sight() -> None:
    line = f"from triton.tools.tensor_descriptor import {IMPORTED}\n"
    old = ENTRY.before.replace("import triton\n", f"import triton\n{line}", 1)
    beside = old.replace(
        "    grid = (", "    other = TensorDescriptor(a, [M], [1], [8])\n    grid = ("
    )
    assert "already, where matmul_kernel is launched" in refusal(beside)
    hidden = old.replace("matmul_kernel[grid](", "launched(matmul_kernel, grid)(") + OTHER
    assert "already, where others may be launched" in refusal(hidden)


def test_tiles_that_a_helper_loads() -> None:
    text = """
import triton
import triton.language as tl


@triton.jit
def column(x_ptr, y_ptr, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + rows[:, None] * BLOCK + rows[None, :])
    tl.store(y_ptr + rows[:, None] * BLOCK + rows[None, :], tl.dot(x, x))


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for i in range(n):
        column(x_ptr, y_ptr, BLOCK)


def run(x, y):
    kernel[(1,)](x, y, 4, BLOCK=64)
"""
    said = "kernel leaves its tiles to column, as line 9: what helpers load is not followed"
    assert said in refusal(text)
    with pytest.raises(
        NotApplicable, match=r"kernel has no tl\.arange of its own, and so no block"
    ):
        playbook.get("rows-per-program").variants(subject(text))


def test_machines_without_tma_are_left_alone() -> None:
    assert "sm_80 has no tensor memory accelerator" in refusal(ENTRY.before, sm=80)


def test_two_kernels_have_functions_of_their_own(tmp_path: Path) -> None:
    second = ENTRY.before.partition("@triton.jit")[2].replace("matmul", "again")
    old = f"{ENTRY.before}\n\n@triton.jit{second}"
    new = described(old)
    assert "def matmul_kernel_a_descriptor(args):" in new
    assert "def again_kernel_a_descriptor(args):" in new
    agree("again", [[[64, 64], [64, 64]], [[70, 33], [33, 130]]], old, new, tmp_path)


# --- what an attack on it found -----------------------------------------------------------------


def test_a_square_is_told_by_one_length(tmp_path: Path) -> None:
    old = ROWS.replace(" * m ", " * n ").replace("< m)", "< n)")
    old = old.replace("batch, heads, n, m =", "batch, heads, n, _ =").replace(
        "n, m, x.st", "n, n, x.st"
    )
    agree("scale", [[[2, 3, 16, 16]], [[1, 2, 12, 12]]], old, described(old), tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("part * stride_y + rows", "part * stride_y + (rows - 1)"), "adds `(rows - 1)"),
        (
            ("rows = tl.program_id(0) * BLOCK + ", "rows = tl.program_id(0) * BLOCK - 1 + "),
            "may be neg",
        ),
        (
            ("rows = tl.program_id(0) * BLOCK + ", "rows = tl.program_id(0) * BLOCK + heads + "),
            "may be",
        ),
        (("cols = tl.arange", "cols = stride_y * 0 + m + tl.arange"), "may be negative"),
        (("2 * tl.load(x_ptrs, mask=mask, other=0.0)", "0.0"), "stores a number"),
        (
            ("mask=mask)\n\n", "mask=mask)\n    tl.store(y_ptr + part, 1.0)\n\n"),
            "not the only",
        ),
    ],
)
def test_stores_that_are_left_to_pointers(change: tuple[str, str], reason: str) -> None:
    text = ROWS.replace(*change)
    assert text != ROWS
    text = text.replace(
        "2 * tl.load(x_ptrs, mask=mask, other=0.0)", "rows[:, None] + cols[None, :]"
    )
    assert reason in refusal(text)


def test_a_mask_from_where_the_tile_does_not_begin() -> None:
    """`N - pad` is no bound of what begins at `pad`, nor is a mask made before `start` moved."""
    text = ENTRY.before.replace("offs_n = pid_n * BLOCK_N + ", "offs_n = BLOCK_N + ")
    halo = text.replace("(offs_n[None, :] < N)", "(offs_n[None, :] < N - BLOCK_N)")
    assert halo != text
    assert "b_desc.load" in described(text)
    assert "b_desc.load" not in described(halo)
    stale = ROWS.replace(
        "    y_ptrs = y_ptr + part * stride_y + rows[:, None]",
        "    first = part * BLOCK\n    mask = (first + tl.arange(0, BLOCK))[:, None] < n\n"
        "    first = first + BLOCK\n"
        "    y_ptrs = y_ptr + part * stride_y + (first + tl.arange(0, BLOCK))[:, None]",
    ).replace("2 * tl.load(x_ptrs, mask=mask, other=0.0)", "rows[:, None] + cols[None, :]")
    assert "which has changed" in refusal(stale)


def test_an_array_that_need_not_be_there(tmp_path: Path) -> None:
    old = ROWS.replace("x_ptr, y_ptr, n", "x_ptr, y_ptr, more_ptr, n").replace(
        "(x, y, n", "(x, y, None, n"
    )
    old = old.replace(
        "    tl.store(y_ptrs, 2 * tl.load(x_ptrs, mask=mask, other=0.0), mask=mask)\n",
        "    x = 2 * tl.load(x_ptrs, mask=mask, other=0.0)\n"
        "    if more_ptr is not None:\n"
        "        x += tl.load(more_ptr + rows[:, None] * m + cols[None, :], mask=mask, other=0.0)\n"
        "    tl.store(y_ptrs, x, mask=mask)\n",
    )
    new = described(old)
    assert "more_desc" not in new
    assert "x_desc.load" in " ".join(new.split())
    agree("scale", [[[2, 3, 20, 16]]], old, new, tmp_path)


def test_a_start_of_64_bits_is_made_one_of_32(tmp_path: Path) -> None:
    old = ENTRY.before.replace("pid_m = tl.program_id(0)", "pid_m = tl.program_id(0).to(tl.int64)")
    new = described(old)
    assert "a_desc.load([(pid_m * BLOCK_M).to(tl.int32), k])" in new
    assert "b_desc.load([k, pid_n * BLOCK_N])" in new
    agree("matmul", [[[64, 64], [64, 64]]], old, new, tmp_path)


def test_comments_and_kernels_within_functions(tmp_path: Path) -> None:
    old = ENTRY.before.replace(
        "pid_m * BLOCK_M + tl", "(\n        pid_m  # of rows\n        * BLOCK_M) + tl"
    )
    assert old != ENTRY.before
    agree("matmul", [[[64, 64], [64, 64]]], old, described(old), tmp_path)
    kernel, host = ENTRY.before.partition("\n\ndef matmul(a")[0], "def matmul(a"
    inner = "\n".join(f"    {line}" if line else line for line in
                      kernel[kernel.index("@triton.jit"):].splitlines())  # fmt: skip
    rest = ENTRY.before[ENTRY.before.index(host) :].replace(
        "def matmul(a, b):", "def matmul(a, b):\n" + inner
    )
    both = (
        ENTRY.before[: ENTRY.before.index(host)]
        + ENTRY.before[ENTRY.before.index(host) :].replace("def matmul(", "def again(")
        + "\n\n"
        + rest
    )
    assert described(both).count("def matmul_matmul_kernel_a_descriptor") == 1


@pytest.mark.parametrize("entry", ["host-descriptors", "tile-descriptors"])
def test_a_load_of_one_number_moves_no_pointer(entry: str) -> None:
    kernel = "@triton.jit\ndef k(x_ptr, scale_ptr, n, BLOCK: tl.constexpr):\n"
    kernel += "    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0 / tl.load(scale_ptr))\n\n\n"
    text = f"{HEAD}{kernel}def run(x, scale):\n    k[(1,)](x, scale, x.numel(), BLOCK=64)\n"
    with pytest.raises(NotApplicable, match="the load at line 8 is no tile of two dimensions"):
        playbook.get(entry).variants(subject(text))


ATTENTION = Path(__file__).parents[2] / "benchmarks/triton/attention/attention.py"


def test_a_tuner_above_descriptors_restores_no_descriptor() -> None:
    """What a heuristic makes is among no launch's arguments; the array behind it is new."""
    text = described(ATTENTION.read_text())
    tuned = apply("add-autotune", text)
    assert "out_desc.store(" in tuned
    assert tuned.index("@triton.autotune") < tuned.index("@triton.heuristics")
    assert "restore_value" not in tuned
    unseen = text.replace('        args["out_ptr"],\n        [', "        output(args),\n        [")
    with pytest.raises(NotApplicable, match="a heuristic gives out_desc, which no tuner can"):
        apply("add-autotune", unseen)
