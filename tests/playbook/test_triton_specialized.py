"""Loops that the compiler takes apart: where they are left alone, and what goes with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.syntax import Source
from tests.support.triton_compiler import BY_16, compiled

ENTRY = playbook.get("warp-specialized-loops")
BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks" / "triton"


def subject(text: str, sm: int = 100, *, interpreted: bool = False) -> Subject:
    return Subject(Source(text), KernelClass.COMPUTE, Hardware(sm=sm, interpreted=interpreted))


def refusal(text: str, sm: int = 100) -> str:
    with pytest.raises(NotApplicable) as found:
        ENTRY.apply(subject(text, sm), {"num_stages": 3})
    return str(found.value)


def test_machines_without_tma_are_left_alone() -> None:
    assert "sm_80 has no tensor memory accelerator" in refusal(ENTRY.before, sm=80)
    with pytest.raises(NotApplicable, match="interpreter has no"):
        ENTRY.apply(subject(ENTRY.before, 0, interpreted=True), {"num_stages": 3})


def test_machines_where_the_results_are_wrong_are_left_alone() -> None:
    assert "for sm_90 the compiler's results are wrong" in refusal(ENTRY.before, sm=90)


def test_a_kernel_that_tunes_its_stages_is_left_alone() -> None:
    tuned = "@triton.autotune([triton.Config({}, num_stages=3)], key=['K'])\n@triton.jit"
    assert "is autotuned" in refusal(ENTRY.before.replace("@triton.jit", tuned))


def test_a_kernel_without_products_is_left_alone() -> None:
    assert "no launched kernel multiplies tiles" in refusal(playbook.get("even-blocks").before)


def test_one_loop_is_taken_apart() -> None:
    start, end = PRODUCT.index("    for k in"), PRODUCT.index("    c_desc.store")
    again = PRODUCT[start:end].replace("range(0, K", "range(K, 2 * K")
    assert "product_kernel has 2" in refusal(PRODUCT[:end] + again + PRODUCT[end:] + HOST)


def test_a_loop_that_is_no_range_is_left_alone() -> None:
    text = ENTRY.apply(subject(ENTRY.before), {"num_stages": 3})
    again = text.replace(", warp_specialize=DESCRIPTORS and SPECIALIZED", "").replace(
        "tl.range(0,", "steps(0,"
    )
    assert "is no range" in refusal(again)


def test_a_loop_that_loads_through_pointers_too_is_left_alone() -> None:
    text = PRODUCT.replace("a_desc.load([row, k])", "tl.load(a_ptr + rows * K + k + columns)")
    assert "loads through pointers in the same loop" in refusal(text + HOST)


@pytest.mark.full
@pytest.mark.parametrize("name", ["matmul", "bmm", "attention"])
@pytest.mark.parametrize("host", [False, True])
def test_stages_go_with_it(name: str, host: bool) -> None:
    text = (BENCHMARKS / name / f"{name}.py").read_text()
    if host:
        text = playbook.get("host-descriptors").apply(subject(text), {"tiles": "loads"})
    found = ENTRY.variants(subject(text))
    assert [params["num_stages"] for params in found] == [2, 3, 4]
    for params in found:
        new = ENTRY.apply(subject(text), params)
        assert new.count("warp_specialize=DESCRIPTORS and SPECIALIZED)") == 1
        assert "lambda args: torch.cuda.get_device_capability() >= (10, 0)" in new
        stages = params["num_stages"]
        assert (f"num_stages={stages}" in new) == (stages != 3), "3 is the default"


@pytest.mark.full
@pytest.mark.usefixtures("compiler")
def test_descriptors_of_the_authors_own(tmp_path: Path) -> None:
    """No constant says whether there are any; the compiler adds a group of four warps."""
    text = f"{PRODUCT}{HOST}"
    new = ENTRY.apply(subject(text), {"num_stages": 2})
    assert "lambda args: torch.cuda.get_device_capability() >= (10, 0)" in new
    for name, lines, threads in (("own", new, 256), ("whole", text, 128)):
        path = tmp_path / f"{name}.py"
        path.write_text(lines)
        types = [*["*bf16"] * 3, *[f"i32{BY_16}"] * 3, 128, 64, *[True] * (lines is new)]
        ptx = compiled(path, "product_kernel", types, 100, {"num_stages": 2}).asm["ptx"]
        assert f".reqntid {threads}" in ptx


PRODUCT = """\
import torch
import triton
import triton.language as tl


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BLOCK_K, BLOCK])
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), acc)
    c_desc.store([row, column], acc.to(c_ptr.dtype.element_ty))
"""
HOST = '''

def product(a, b):
    """a @ b."""
    (M, K), (_, N) = a.shape, b.shape
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    product_kernel[(triton.cdiv(M, 128), triton.cdiv(N, 128))](
        a, b, c, M, N, K, BLOCK=128, BLOCK_K=64, num_warps=8
    )
    return c
'''
