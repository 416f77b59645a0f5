"""Block pointers beyond the entry's example: what becomes descriptors, and what is left alone.

Triton 3.9 has no block pointers left, so that the numbers are compared with what torch computes.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from agent import playbook
from tests.playbook.test_triton_traps import HEAD, agree, apply, refusal
from tests.support.triton_compiler import GENERATIONS, compiled

PRODUCT = (
    HEAD
    + """\
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    first = tl.program_id(0) * BM
    pid_n = tl.program_id(1)
    a_block_ptr = tl.make_block_ptr(
        base=a_ptr, shape=(M, K), strides=(sa, 1), offsets=(first, 0),
        block_shape=(BM, BK), order=(1, 0),
    )
    b_block_ptr = tl.make_block_ptr(
        base=b_ptr, shape=(K, N), strides=(sb, 1), offsets=(0, pid_n * BN),
        block_shape=(BK, BN), order=(1, 0),
    )
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        acc += tl.dot(
            tl.load(a_block_ptr, boundary_check=(0, 1), eviction_policy="evict_last"),
            tl.load(b_block_ptr, boundary_check=(0, 1)),
        )
        a_block_ptr = tl.advance(base=a_block_ptr, offsets=(0, BK))
        b_block_ptr = tl.advance(b_block_ptr, offsets=(BK, 0))
    c_block_ptr = tl.make_block_ptr(
        base=c_ptr, shape=(M, N), strides=(sc, 1), offsets=(first, pid_n * BN),
        block_shape=(BM, BN), order=(1, 0),
    )
    tl.store(c_block_ptr, acc, boundary_check=(0, 1))


def matmul(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    matmul_kernel[grid](
        a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), BM=16, BN=16, BK=16
    )
    return c
"""
)
ROWS = (
    HEAD
    + """\
@triton.jit
def twice_kernel(x_ptr, y_ptr, M, N, stride, B: tl.constexpr):
    col = tl.program_id(0) * B
    for row in range(0, M, B):
        src = tl.make_block_ptr(x_ptr, (M, N), (stride, 1), (row, col), (B, B), (1, 0))
        dst = tl.make_block_ptr(y_ptr, (M, N), (stride, 1), (row, col), (B, B), (1, 0))
        tl.store(dst, 2 * tl.load(src, boundary_check=(0, 1)), boundary_check=(0, 1))


def twice(x):
    y = torch.empty_like(x)
    M, N = x.shape
    twice_kernel[(triton.cdiv(N, 16),)](x, y, M, N, x.stride(0), B=16)
    return y
"""
)


@pytest.mark.full
def test_two_block_pointers_in_one_statement(tmp_path: Path) -> None:
    new = apply("block-descriptors", PRODUCT)
    assert "acc += tl.dot(\n                a_desc.load([first, a_1]),\n" in new
    assert "b_desc.load([b_0, b_1])," in new
    assert "a_1 += BK" in new
    assert "b_0 += BK" in new
    assert 'mask=a_inside, other=0, eviction_policy="evict_last")' in new
    right = "import torch\n\n\ndef matmul(a, b):\n    return a @ b\n"
    agree("matmul", [[[20, 36], [36, 24]], [[5, 7], [7, 9]]], right, new, tmp_path)


@pytest.mark.full
def test_a_descriptor_is_made_above_the_loop_that_makes_block_pointers(tmp_path: Path) -> None:
    new = apply("block-descriptors", ROWS)
    made = "        src_desc = tl.make_tensor_descriptor(x_ptr, [M, N], [stride, 1], [B, B])\n"
    assert f"    if DESCRIPTORS:\n{made}" in new
    assert new.index("dst_desc = ") < new.index("for row in")
    assert "dst_desc.store([row, col], 2 * src_desc.load([row, col]))" in new
    agree("twice", [[[20, 36]], [[5, 7]]], "def twice(x):\n    return 2 * x\n", new, tmp_path)


@pytest.mark.full
def test_a_descriptor_that_changes_stays_in_its_loop(tmp_path: Path) -> None:
    batched = (
        ROWS.replace("for row in range(0, M, B):", "for batch in range(0, M):\n        row = 0")
        .replace("x_ptr, (M, N)", "x_ptr + batch * stride, (1, N)")
        .replace("y_ptr, (M, N)", "y_ptr + batch * stride, (1, N)")
    )
    new = apply("block-descriptors", batched)
    assert new.index("for batch in") < new.index("src_desc = ")
    agree("twice", [[[20, 36]], [[5, 7]]], "def twice(x):\n    return 2 * x\n", new, tmp_path)


@GENERATIONS
@pytest.mark.parametrize("fit", [True, False])
@pytest.mark.usefixtures("compiler")
def test_they_compile(sm: int, fit: bool, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    P = "*fp32"
    sizes: list[Any] = [*["i32"] * 6, 64, 64, 32, fit]
    for text, kernel, types in (
        (PRODUCT, "matmul_kernel", [P, P, P, *sizes]),
        (ROWS, "twice_kernel", [P, P, "i32", "i32", "i32", 32, fit]),
    ):
        path = tmp_path / f"{kernel}.py"
        path.write_text(apply("block-descriptors", text))
        ptx = compiled(path, kernel, types, sm, {}).asm["ptx"]
        assert ("cp.async.bulk.tensor" in ptx) is (fit and sm >= 90)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (('padding_option="zero"', 'padding_option="nan"'), "pads with"),
        (("tl.load(tile, ", "tl.load(tile, volatile=True, "), "line 12 is volatile"),
        (("(1, 0))", "(0, 1, 2))"), "does not show all of itself"),
        (("(stride, 1)", "(stride * 2, 1)"), "is no parameter"),
        (("    total = tl.zeros", "    print(tile)\n    total = tl.zeros"), "otherwise"),
    ],
)
def test_block_pointers_that_no_descriptor_replaces(change: tuple[str, str], reason: str) -> None:
    assert reason in refusal(
        "block-descriptors", playbook.get("block-descriptors").before.replace(*change)
    )


def test_a_block_pointer_with_its_order_turned(tmp_path: Path) -> None:
    old = HEAD + (
        "@triton.jit\ndef turn_kernel(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):\n"
        "    first = tl.program_id(0) * BLOCK\n"
        "    tile = (BLOCK, BLOCK)\n"
        "    source = tl.make_block_ptr(x_ptr, (N, M), (1, N), (0, first), tile, (0, 1))\n"
        "    out = tl.make_block_ptr(y_ptr, (N, M), (M, 1), (0, first), tile, (1, 0))\n"
        "    for _ in range(0, N, BLOCK):\n"
        "        x = tl.load(source, boundary_check=(0, 1))\n"
        "        tl.store(out, x, boundary_check=(0, 1))\n"
        "        source = tl.advance(source, (BLOCK, 0))\n"
        "        out = tl.advance(out, (BLOCK, 0))\n\n\n"
        "def turn(x):\n    y = torch.empty(x.shape[1], x.shape[0])\n    M, N = x.shape\n"
        "    turn_kernel[(triton.cdiv(M, 16),)](x, y, M, N, BLOCK=16)\n    return y\n"
    )
    new = apply("block-descriptors", old)
    assert "make_block_ptr" not in new
    assert "x = source_desc.load([first, source_1]).T" in new
    agree(
        "turn", [[[20, 36]], [[5, 7]]], "def turn(x):\n    return x.T.contiguous()\n", new, tmp_path
    )


def test_what_a_product_is_stored_as_is_said_once_and_over_several_lines() -> None:
    stored = "acc.to(c_ptr.dtype.element_ty)"
    text = PRODUCT.replace("acc, boundary", f"{stored}, boundary")
    text = text.replace("base=c_ptr", "base=c_ptr + tl.program_id(2) * M * N")
    new = apply("block-descriptors", text)
    written = """\
        tl.store(
            c_ptr + tl.program_id(2) * M * N + at_0 * sc + at_1,
            acc.to(c_ptr.dtype.element_ty),
            mask=inside,
        )
"""
    assert written in new


def test_one_row_again_and_again_is_no_tile() -> None:
    text = PRODUCT.replace("strides=(sb, 1)", "strides=(0, 1)")
    new = apply("block-descriptors", text)
    assert "b_block_ptr = tl.make_block_ptr" in new
    assert " * 0" not in new
    assert "a stride of 0, one row again" in refusal(
        "block-descriptors", ROWS.replace("(stride, 1)", "(0, 1)")
    )


def test_an_array_that_need_not_be_there(tmp_path: Path) -> None:
    """A launch that gives none for it has descriptors of the others."""
    old = (
        ROWS.replace("x_ptr, y_ptr, M", "x_ptr, y_ptr, more_ptr, HAS_MORE: tl.constexpr, M")
        .replace("(x, y, M", "(x, y, more, more is not None, M")
        .replace("def twice(x):", "def twice(x, more=None):")
        .replace(
            "        tl.store(dst, 2 * tl.load(src, boundary_check=(0, 1)), "
            "boundary_check=(0, 1))\n",
            """\
        value = 2 * tl.load(src, boundary_check=(0, 1))
        if HAS_MORE:
            plus = tl.make_block_ptr(more_ptr, (M, N), (stride, 1), (row, col), (B, B), (1, 0))
            value += tl.load(plus, boundary_check=(0, 1))
        tl.store(dst, value, boundary_check=(0, 1))
""",
        )
    )
    new = apply("block-descriptors", old)
    assert '            args["more_ptr"] is None\n            or (\n' in new
    right = "def twice(x, more=None):\n    return 2 * x + (0 if more is None else more)\n"
    agree("twice", [[[20, 36]], [[20, 36], [20, 36]]], right, new, tmp_path)


def test_kernels_that_are_methods_have_functions_of_their_own(tmp_path: Path) -> None:
    head, _, rest = ROWS.partition("@triton.jit\n")
    kernel, _, host = rest.partition("\n\n\ndef twice")
    method = textwrap.indent(f"@staticmethod\n@triton.jit\n{kernel}", "    ")
    old = f"{head}class Twice:\n{method}\n\n\nclass Again:\n{method}\n\n\ndef twice{host}"
    old = old.replace("    twice_kernel[", "    Twice.twice_kernel[").replace(
        "    return y\n",
        "    z = torch.empty_like(x)\n"
        "    Again.twice_kernel[(triton.cdiv(N, 16),)](y, z, M, N, y.stride(0), B=16)\n"
        "    return z\n",
    )
    new = apply("block-descriptors", old)
    assert "def Twice_twice_kernel_descriptors_fit(args):" in new
    assert "def Again_twice_kernel_descriptors_fit(args):" in new
    agree("twice", [[[20, 36]], [[5, 7]]], "def twice(x):\n    return 4 * x\n", new, tmp_path)
