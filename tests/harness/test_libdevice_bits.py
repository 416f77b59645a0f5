"""Functions of libdevice that work on bits, or round in a direction, in Triton's interpreter."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.repo import write
from tests.support.warm_python import run_python
from tile_agent_pytest.libdevice_bits import bit_function

pytest.importorskip("triton", reason="triton is not installed")

LEAST = -(2**31)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("popc", [np.int32(-1)], 32),
        ("popcll", [np.int64(0b1011)], 3),
        ("clz", [np.int32(1)], 31),
        ("clz", [np.int32(0)], 32),
        ("clzll", [np.int64(-1)], 0),
        ("ffs", [np.int32(0)], 0),
        ("ffs", [np.int32(8)], 4),
        ("brev", [np.int32(1)], LEAST),
        ("brevll", [np.int64(2)], 2**62),
        ("mulhi", [np.int32(-5), np.int32(2**30)], -2),
        ("umulhi", [np.uint32(2**31), np.uint32(6)], 3),
        ("mul24", [np.int32(0xFFFFFF), np.int32(7)], -7),
        ("umul24", [np.uint32(0x1000003), np.uint32(7)], 21),
        ("hadd", [np.int32(-3), np.int32(0)], -2),
        ("urhadd", [np.uint32(2), np.uint32(3)], 3),
        ("sad", [np.int32(-3), np.int32(4), np.uint32(1)], 8),
        ("float_as_int", [np.float32(1.0)], 0x3F800000),
        ("int_as_float", [np.int32(0x40490FDB)], float(np.float32(math.pi))),
        ("double2hiint", [np.float64(1.0)], 0x3FF00000),
        ("float2int_rd", [np.float32(-1.5)], -2),
        ("float2int_rn", [np.float32(2.5)], 2),
        ("float2int_ru", [np.float32(1.25)], 2),
        ("float2int_rz", [np.float32(-1.75)], -1),
        ("float2int_rz", [np.float32(1e20)], 2**31 - 1),
        ("float2int_rz", [np.float32("nan")], 0),
        ("float2uint_rz", [np.float32(-3.0)], 0),
        ("double2ll_rd", [np.float64(-0.5)], -1),
        ("int2float_rd", [np.int32(2**24 + 1)], 2**24),
        ("int2float_ru", [np.int32(2**24 + 1)], 2**24 + 2),
        ("int2double_rn", [np.int32(7)], 7.0),
        ("fadd_ru", [np.float32(1.0), np.float32(2**-30)], 1 + 2**-23),
        ("fadd_rz", [np.float32(-1.0), np.float32(2**-30)], -1 + 2**-24),
        ("frcp_rd", [np.float32(3.0)], float(np.nextafter(np.float32(1 / 3), np.float32(0)))),
        ("ilogbf", [np.float32(0.4)], -2),
        ("ilogb", [np.float64(0.0)], LEAST),
        ("logbf", [np.float32(0.0)], -math.inf),
        ("remainderf", [np.float32(5.0), np.float32(2.0)], 1.0),
        ("remainder", [np.float64(5.5), np.float64(2.0)], -0.5),
        ("norm3df", [np.float32(2.0), np.float32(3.0), np.float32(6.0)], 7.0),
        ("rnorm4d", [np.float64(1.0)] * 4, 0.5),
    ],
)  # fmt: skip
def test_what_a_device_computes(name: str, arguments: list[np.generic], expected: float) -> None:
    function = bit_function(name)
    assert function is not None
    (found,) = function(*(np.array([argument]) for argument in arguments))
    assert found == expected


@pytest.mark.parametrize("name", ["dadd_rd", "jn", "ll2float_ru", "tanhf", "fma_rd", "byte_perm"])
def test_what_is_known_elsewhere_or_nowhere(name: str) -> None:
    assert bit_function(name) is None


KERNEL = """
import torch
import triton
import triton.language as tl
from triton.language.extra.libdevice import float2int_rd
from triton.language.extra.cuda import libdevice


@triton.jit
def bits_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    whole = float2int_rd(x)
    y = whole + libdevice.popc(whole) * 1000 + libdevice.ilogb(x) * 100000
    tl.store(y_ptr + offsets, y)
"""
USE = """
import torch
import triton
from tile_agent_pytest.mended_interpreter import mend_all

mend_all()
from kernel import bits_kernel

x = torch.tensor([1.5, 2.75, 7.0, 1024.25])
y = torch.zeros(4, dtype=torch.int32)
bits_kernel[(1,)](x, y, BLOCK=4)
assert y.tolist() == [1001, 101002, 203007, 1002024], y.tolist()
"""


def test_a_kernel_calls_them(tmp_path: Path) -> None:
    write(tmp_path, {"kernel.py": KERNEL})
    done = run_python(
        USE,
        environment={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
