"""What only Triton needed does not stay behind in a port."""

from __future__ import annotations

import pytest

from agent.porting import port

FILE = """\
import math
from functools import lru_cache, partial

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i) * {factor})
    return


def run(x, y):
    n = x.numel()
    {before}
    kernel[(1,)](x, y, BLOCK=8, num_warps=num_warps{more})
    return {result}
"""
CHAIN = """num_warps = 4
    if n > 64:
        num_warps = 8
    elif n > 128:
        num_warps = 16"""
SEVERAL = """if n > 64:
        num_warps, m = 4, n
        num_warps = 8"""
HALF = """if n > 64:
        m = 4
        num_warps = 8
    else:
        num_warps = 4"""
IDLE = {
    "num_warps = 8": "",
    "num_warps = min(max(n // 256, 1), 8)": "",
    "num_warps = 4 if n <= 64 else 8": "",
    CHAIN: "",
    "num_warps = 4\n    if n > 64: num_warps = 8": "",
    HALF: "    if n > 64:\n        m = 4\n    else:\n        pass\n",
    SEVERAL: f"    {SEVERAL}\n",
    "num_warps = x.pop()": "    num_warps = x.pop()\n",
    "num_warps = 8\n    print(num_warps)": "    num_warps = 8\n    print(num_warps)\n",
}


def made(before: str = "num_warps = 8", factor: str = "2.0", result: str = "y") -> str:
    text = FILE.format(before=before, factor=factor, result=result, more=", num_stages=num_warps")
    return port(text, "k.py").text


@pytest.mark.parametrize(("before", "left"), IDLE.items())
def test_options_that_no_launch_takes_are_not_computed(before: str, left: str) -> None:
    text = made(before)
    assert f"    n = x.numel()\n{left}    blocks = (1,)\n" in text


def test_a_return_that_ends_a_kernel_is_left_out() -> None:
    assert "\n    return\n" not in made()
    early = FILE.replace("    tl.store", "    if BLOCK > 64:\n        return\n    tl.store")
    text = early.format(before="num_warps = 1", factor="2.0", result="y", more="")
    assert port(text, "k.py").text.count("    return\n") == 1


def test_imports_that_only_dropped_code_used_go() -> None:
    text = made("num_warps = 8 if math.pi > n else partial(n)", result="lru_cache(y)")
    assert "partial" in text  # a call may do anything
    text = made("num_warps = math.pi", result="lru_cache(y)")
    assert "import math" not in text
    assert "from functools import lru_cache, partial\n" in text  # unused in the origin, too
    guarded = FILE.replace("lru_cache, partial", "lru_cache, partial as tl_\ntl_.extra = 1")
    assert (
        "partial as tl_"
        in port(
            guarded.format(before="num_warps = 1", factor="2.0", result="y", more=""), "k.py"
        ).text
    )
