"""What Triton's interpreter lacks and public kernels use."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest

from agent.environment import probe
from tests.support.repo import write
from tests.support.warm_python import run_python
from tile_agent_pytest.interpreted_libdevice import _named

pytest.importorskip("triton", reason="triton is not installed")

KERNEL = """
import torch
import triton
import triton.language as tl
from triton.language.extra.libdevice import tanh
from triton.language.extra.cuda import libdevice


@triton.jit
def shift_kernel(x_ptr, y_ptr, n, epsilon, exact: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    if not exact:
        x = x + epsilon.to(tl.float32)
    tl.static_assert(epsilon.dtype == tl.float32)
    tl.store(y_ptr + offsets, x * epsilon, mask=offsets < n)


@triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64)], key=["n"])
@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def curve(x):
    return tl.extra.libdevice.rsqrt(tanh(x) + 2.0) * libdevice.pow(libdevice.abs(x), 0.5 + 0.0 * x)


@triton.jit
def curve_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    y = curve(x) + libdevice.erf(x) + libdevice.fma(x, x, x)
    y = tl.where(libdevice.isnan(x), 0.0, y) + libdevice.tanh(tl.load(x_ptr))
    tl.store(y_ptr + offsets, y, mask=offsets < n)


def curved(x):
    y = torch.empty_like(x)
    curve_kernel[(triton.cdiv(x.numel(), 32),)](x, y, x.numel(), BLOCK=32)
    return y


def shift(x, epsilon):
    y = torch.empty_like(x)
    shift_kernel[(triton.cdiv(x.numel(), 32),)](x, y, x.numel(), epsilon, exact=False, BLOCK=32)
    return y


def copy(x):
    y = torch.empty_like(x)
    copy_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
"""
USE = """
import torch
import triton
from triton.runtime import interpreter

from tile_agent_pytest.mended_interpreter import mend, mend_all

mend_all()
mended = interpreter._implicit_cvt
mend()
assert interpreter._implicit_cvt is mended

from kernel import copy, curved, shift

x = torch.randn(100)
torch.testing.assert_close(shift(x, 1e-3), (x + 1e-3) * 1e-3)
assert shift(x.double(), 0.1).dtype == torch.float64
assert torch.equal(copy(x), x)
for x in (torch.randn(100), torch.randn(100, dtype=torch.float64)):
    expected = torch.rsqrt(torch.tanh(x) + 2) * x.abs() ** 0.5 + torch.erf(x) + x * x + x
    torch.testing.assert_close(curved(x), expected + torch.tanh(x[0]))
assert curved(torch.tensor([1.0, float("nan")]))[1] == torch.tanh(torch.tensor(1.0))
"""


MASKS = """
import triton
import triton.language as tl


@triton.jit
def masked_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr, ALL: tl.constexpr):
    i = tl.arange(0, BLOCK)
    inside, even = i < n, i % 2 == 0
    loaded = tl.load(x_ptr + i, mask=even and inside, other=-1.0)
    tl.store(y_ptr + i, loaded, mask=inside and even)
    tl.store(z_ptr + i, 1.0, mask=n > 0 and (inside or even) and not ALL)
    if n > 100 and tl.load(x_ptr + 1000000) > 0:
        tl.store(y_ptr, 7.0)
"""
USE_MASKS = """
import warnings

import torch
import triton

from tile_agent_pytest.mended_interpreter import mend, mend_all

mend_all()
mend()

from masks import masked_kernel

x, y, z = torch.arange(4.0) + 1, torch.zeros(8), torch.zeros(8)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    masked_kernel[(1,)](x, y, z, 4, BLOCK=8, ALL=False)
print(y.tolist(), z.tolist())
print([str(each.message).split(" is taken")[0] for each in told])
"""


def test_masks_are_combined_element_by_element_as_the_compiler_does(
    tmp_path: Path,
) -> None:
    write(tmp_path, {"masks.py": MASKS})
    done = run_python(
        USE_MASKS,
        environment={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    stored, told = done.stdout.splitlines()
    # i < 4 and even; and i < 4 or even
    assert stored == f"{[1.0, 0.0, 3.0, 0.0] + [0.0] * 4} {[1.0] * 5 + [0.0, 1.0, 0.0]}"
    assert "`and` between tiles" in told
    assert "`or` between tiles" in told


COUNTERS = """
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    for row in range(ROWS):
        for start in tl.range(0, n, BLOCK):
            offsets = start.to(tl.int64) + tl.arange(0, BLOCK)
            tl.static_assert(start.dtype == tl.int32)
            x = tl.load(x_ptr + row * n + offsets, mask=offsets < n)
            tl.store(y_ptr + row * n + offsets, x, mask=offsets < n)
"""
USE_COUNTERS = """
import torch

from tile_agent_pytest.mended_interpreter import mend, mend_all

mend_all()
mend()

from counters import copy_kernel

x, y = torch.arange(20.0), torch.zeros(20)
copy_kernel[(1,)](x, y, 10, ROWS=2, BLOCK=4)
assert torch.equal(x, y), y
"""


def test_the_counter_of_a_loop_has_a_type_where_it_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path, {"counters.py": COUNTERS})
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)}
    done = run_python(USE_COUNTERS, environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    without = USE_COUNTERS.replace("mend_all()\nmend()\n", "")
    done = run_python(without, environment=environment, cwd=tmp_path)
    assert "'int' object has no attribute 'to'" in done.stderr


USE_TYPES = """
import triton
import triton.language as tl
from triton.runtime import interpreter
from tile_agent_pytest import mended_interpreter

original = interpreter._get_np_dtype
mended_interpreter.mend()
scalars = [value for value in vars(tl).values() if isinstance(value, tl.dtype)]
wrong, told = [], 0
for scalar in [*scalars, *map(tl.pointer_type, scalars)]:
    for kind in (scalar, tl.block_type(scalar, [4]), tl.block_type(scalar, [2, 8])):
        try:
            expected = original(kind)
        except KeyError:
            continue
        for _ in range(2):
            told += 1
            if interpreter._get_np_dtype(kind) != expected:
                wrong.append(kind)
print(interpreter._get_np_dtype is not original, told > 50, wrong)
"""


def test_numpys_types_are_remembered_as_they_are() -> None:
    done = run_python(USE_TYPES, environment={**os.environ, "TRITON_INTERPRET": "1"})
    assert (done.returncode, done.stdout) == (0, "True True []\n"), done.stderr


COMPUTED = {
    "__nv_tanhf": ((0.3,), math.tanh(0.3)),
    "__nv_erf": ((0.3,), math.erf(0.3)),
    "__nv_erff": ((0.3,), math.erf(0.3)),
    "__nv_fast_expf": ((0.3,), math.exp(0.3)),
    "__nv_fast_fdividef": ((3.0, 4.0), 0.75),
    "__nv_fdiv_rn": ((3.0, 4.0), 0.75),
    "__nv_fmaf_rn": ((3.0, 4.0, 5.0), 17.0),
    "__nv_frsqrt_rn": ((4.0,), 0.5),
    "__nv_cbrtf": ((-8.0,), -2.0),
    "__nv_exp10f": ((2.0,), 100.0),
    "__nv_fdimf": ((1.0, 3.0), 0.0),
    "__nv_ldexpf": ((3.0, 4), 48.0),
    "__nv_tgammaf": ((-1.5,), math.gamma(-1.5)),
    "__nv_lgammaf": ((4.5,), math.lgamma(4.5)),
    "__nv_rintf": ((2.5,), 2.0),
    "__nv_roundf": ((-2.5,), -3.0),
    "__nv_normcdff": ((1.0,), 0.5 * (1 + math.erf(math.sqrt(0.5)))),
    "__nv_saturatef": ((1.5,), 1.0),
    "__nv_sinpif": ((0.5,), 1.0),
    "__nv_finitef": ((math.inf,), 0.0),
    "__nv_abs": ((-3,), 3),
}


@pytest.mark.parametrize("symbol", COMPUTED)
def test_a_function_of_the_device_is_known_by_its_symbol(symbol: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    arguments, expected = COMPUTED[symbol]
    function = _named(symbol)
    assert function is not None
    kinds = (
        torch.float64 if isinstance(argument, float) else torch.int32 for argument in arguments
    )
    given = [torch.tensor(a, dtype=kind) for a, kind in zip(arguments, kinds, strict=True)]
    assert float(function(*given)) == pytest.approx(expected)


def test_what_is_not_known_is_said() -> None:
    assert _named("__nv_byte_perm") is None
    assert _named("__nv_fadd_rz") is None


def test_floats_have_a_type_libdevice_computes_and_tuners_need_no_gpu(tmp_path: Path) -> None:
    write(tmp_path, {"kernel.py": KERNEL})
    done = run_python(
        USE,
        environment={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr


USE_DRIVER = """
import sys
import torch
import triton
from tile_agent_pytest.mended_interpreter import mend, mend_all

mend_all()
module = sys.modules["triton.runtime.driver"]
made = module._create_driver
mend()
assert module._create_driver is made
driver = triton.runtime.driver.active
assert driver.get_active_torch_device() == torch.device("cpu")
assert driver.get_current_target().backend == "cuda"
calls = []
ms = triton.testing.do_bench(lambda: calls.append(sum(range(20000))), warmup=1, rep=2)
assert len(calls) >= 8 and 0.01 < ms < 1000, (len(calls), ms)
assert not hasattr(driver, "__wrapped__")
try:
    driver.launcher_cls
except RuntimeError as problem:
    print(problem)
"""


@pytest.mark.skipif(bool(probe().gpus), reason="there is a driver")
def test_without_a_gpu_its_driver_knows_the_device_and_the_time() -> None:
    done = run_python(USE_DRIVER, environment={**os.environ, "TRITON_INTERPRET": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 active drivers ([]). There should only be one.\n"
    compiled = run_python(USE_DRIVER, environment={**os.environ, "TRITON_INTERPRET": "0"})
    assert "0 active drivers" in compiled.stderr, "what is compiled needs a GPU as before"


USE_NUMBERS = """
import sys
import torch
import triton.runtime.interpreter as interpreter
from tile_agent_pytest.mended_interpreter import mend

patch = interpreter._patch_lang_tensor


def as_of_triton_3_6(tensor, *scopes):
    patch(tensor, *scopes)
    tensor.__index__ = lambda self: int(self.handle.data)


interpreter._patch_lang_tensor = as_of_triton_3_6
if sys.argv[1] == "mended":
    mend()
    mend()

from kernel import sum_kernel

x, y = torch.ones(100), torch.zeros(1)
sum_kernel[(1,)](x, y, 100, BLOCK=32)
assert y.item() == 100
"""
SUM_KERNEL = """
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, y, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0), axis=0)
    tl.store(y, total)
"""


@pytest.mark.skipif(
    tuple(map(int, np.__version__.split(".")[:2])) < (2, 4), reason="this NumPy still takes it"
)
def test_a_scalar_is_a_bound_for_a_numpy_that_takes_no_array(tmp_path: Path) -> None:
    write(tmp_path, {"kernel.py": SUM_KERNEL})
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)}
    done = run_python(USE_NUMBERS, "mended", environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    as_it_is = run_python(USE_NUMBERS, "not", environment=environment, cwd=tmp_path)
    assert "0-dimensional arrays" in as_it_is.stderr


USE_LAUNCHES = """
import torch
import triton
from tile_agent_pytest.mended_interpreter import mend, mend_all

mend_all()
mend()

from kernel import copy_kernel, shift_kernel

copy = copy_kernel.fn
x, y = torch.randn(100), torch.zeros(100)


def launched(kernel, *arguments, **options):
    y.zero_()
    kernel(x, y, 100, *arguments, **options)
    assert torch.equal(x, y)


launched(copy[[4]], BLOCK=32)
launched(copy[lambda meta: [triton.cdiv(100, meta["BLOCK"])]], BLOCK=32)
warm = copy.warmup(x, y, 100, BLOCK=32, num_warps=8, grid=(1,))
warm._init_handles()
assert 65536 // warm.n_regs and 65536 // warm.metadata.shared and warm.metadata.num_warps == 8
assert not y.eq(0).all()
launched(warm[(4, 1, 1)])
launched(warm[(4, 1, 1)], 32)
"""


def test_grids_may_be_lists_and_what_is_warm_is_launched(tmp_path: Path) -> None:
    """As Triton's softmax tutorial does, whose kernel says how many programs fit."""
    write(tmp_path, {"kernel.py": KERNEL})
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)}
    done = run_python(USE_LAUNCHES, environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


QUOTED = """\
import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, y_ptr, n_rows, n, BLOCK: "tl.constexpr"):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    mask = (row < n_rows) & (cols < n)
    other = (cols < n) & (row < n_rows)
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    tl.store(y_ptr + row * n + cols, x, mask=other)
"""
USE_QUOTED = """\
import torch
from tile_agent_pytest.mended_interpreter import mend_all

mend_all()
mend_all()
from kernel import copy

x = torch.randn(4, 10)
y = torch.zeros(4, 10)
copy[(5,)](x, y, 3, 10, BLOCK=16)
assert torch.equal(y[:3], x[:3]) and y[3].eq(0).all()
"""


def test_a_scalar_is_part_of_a_mask_and_quotes_hide_no_constant(tmp_path: Path) -> None:
    """As torchtitan's kernels have masks, and text-generation-inference's their annotations."""
    write(tmp_path, {"kernel.py": QUOTED})
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)}
    done = run_python(USE_QUOTED, environment=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
