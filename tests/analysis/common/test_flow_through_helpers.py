"""A block size whose element numbers a helper loads at is no part of what that returns."""

from __future__ import annotations

import pytest

from agent.analysis.common.constant_flow import Flow
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def loaded(a_ptr, offsets, mask, more=0):
    x = tl.load(a_ptr + offsets, MASK)
    RETURNED


@triton.jit
def kernel(a_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    count = tl.cdiv(n, BLOCK)
    tl.store(out_ptr + offsets, VALUE, mask=mask)


def run(a, out):
    kernel[(triton.cdiv(a.numel(), 256),)](a, out, a.numel(), BLOCK=256)
"""
CALL = "loaded(a_ptr, offsets, mask)"
COUNTED = "loaded(a_ptr, offsets, mask, count)"
MASKED = "mask=mask, other=0"


def flow(mask: str, returned: str, value: str) -> Flow:
    text = KERNEL.replace("MASK", mask).replace("RETURNED", returned).replace("VALUE", value)
    source = Source(text)
    (kernel,) = (each for each in TRITON.kernels(source) if each.name == "kernel")
    return Flow(TRITON, source, kernel, "BLOCK")


@pytest.mark.parametrize(
    ("mask", "returned", "value", "guarded"),
    [
        (MASKED, "return x * 2", CALL, True),
        (MASKED, "y = tl.where(offsets > 3, x, 0.0)\n    return y", f"{CALL} + 1", True),
        ("other=0", "return x * 2", CALL, False),  # what lies behind the end is loaded, too
    ],
)
def test_any_size_gives_the_same(mask: str, returned: str, value: str, guarded: bool) -> None:
    found = flow(mask, returned, value)
    assert found.refusal() is None
    assert found.guarded() is guarded


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        ("return x * offsets", CALL),
        ("y = offsets + 1\n    return x * y", CALL),
        ("y = x\n    y += offsets\n    return y", CALL),
        ("return x", f"{CALL} * BLOCK"),
        ("i = 0\n    while i < more:\n        x += 1.0\n        i += 1\n    return x", COUNTED),
        ("for i in range(more):\n        x += i\n    return x", COUNTED),
        (
            "for i in range(more):\n        x += tl.load(a_ptr + i)\n    return x",
            COUNTED,
        ),
        ("return x + more", "loaded(a_ptr, offsets, mask, BLOCK)"),
        ("return x", "loaded(a_ptr, offsets, mask, BLOCK)"),  # with it a helper does as it likes
    ],
)
def test_what_is_stored_may_depend_on_it(returned: str, value: str) -> None:
    reason = flow(MASKED, returned, value).refusal()
    assert reason is not None and ("part of what" in reason or "element numbers" in reason)


def test_a_helper_may_reduce_along_it() -> None:
    reason = flow(MASKED, "return tl.sum(x, 0)", CALL).refusal()
    assert reason is not None and "reduces along it" in reason
