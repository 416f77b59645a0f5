"""As test_traps.py: other kernels, and the types that cuTile itself computes them in."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from agent.environment import probe
from agent.ported import Project, check
from agent.porting import port
from tests.porting import host_traps, number_traps
from tests.support.warm_python import warm_interpreter

TYPED = """\
import torch
import triton
import triton.language as tl


@triton.jit
def helped(n):
    found = 2.0
    return found


@triton.jit
def passed(c, n):
    return c


@triton.jit
def kernel(x_ptr, y_ptr, n, F: tl.constexpr, C: tl.constexpr):
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i){cast}
    {body}
    tl.store(y_ptr + i, y)


def run(x, y, n, f, c):
    kernel[(1,)](x, y, n, F=f, C=c)
"""
HALF, BYTE = torch.float16, torch.int8
COMPUTED = [
    ("c = 2.0; y = x * c", HALF, "float32"),
    ("c = F * 0.5; y = x * c", HALF, "float32"),
    ("c = F; y = x * c", HALF, "float32"),
    ("c = C; y = x * c", BYTE, "int32"),
    ("c = 3; y = x * c", BYTE, "int32"),
    ("c = F if C > 2 else 1.0; y = tl.where(i > 3, x, c)", HALF, "float32"),
    ("c = 2.0 if n > 3 else F; y = x * c", HALF, "float32"),
    ("c = 2.0; y = x * tl.cast(c, tl.float32)", HALF, "float32"),
    ("y = x * tl.exp(2.0)", HALF, "float32"),
    ("c = 2.0; m = tl.maximum(c, 1.0); y = x * m", HALF, "float32"),
    ("c = 2.0; m = tl.maximum(c, F); y = x * m", HALF, "float32"),
    ("c = 2.0; y = x * tl.sigmoid(c)", HALF, "float32"),
    ("c = 2.0; d = c * 3.0; y = x * d", HALF, "float32"),
    ("c = 2.0; c *= F; y = x * -c", HALF, "float32"),
    ("c = 2.0; y = x * tl.where(n > 3, c, 1.0)", HALF, "float32"),
    ("c, d = 2.0, F; y = x * (c + d)", HALF, "float32"),
    ("y = x * helped(n)", HALF, "float32"),
    ("y = x * passed(2.0, n)", HALF, "float16"),
    ("c = 2.0; y = x * passed(c, n)", HALF, "float32"),
    ("c = 1.0\n    for k in range(n):\n        c = c * F; y = x * c", HALF, "float32"),
    ("c = 1.0\n    for k in tl.static_range(3):\n        c = c * F; y = x * c", HALF, "float32"),
    ("c = 0.0\n    for k in tl.static_range(2):\n        c += x; y = x * (c * F)", HALF, "float32"),
    ("c = 1.0\n    if n > 3:\n        c = F; y = x * c", HALF, "float32"),
    ("y = x * 2.0 + F", HALF, "float16"),
    ("c = 0x9E3779B9; y = x.to(tl.uint8) * c", BYTE, "uint32"),
    ("c = C << 33; y = x * c", BYTE, "int64"),
    ("c = -C; y = x * c", BYTE, "int32"),
    ("c = True; y = x * c", BYTE, "int8"),
    ("y = tl.cumsum(x > 0, 0)", HALF, "uint32"),
    ("y = tl.max(x > 0, 0) + i", HALF, "int32"),
]
"""Statements, the type of x, and what Triton's y is."""


def loaded(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("traps", [number_traps, host_traps], ids=["numbers", "host"])
def test_every_call_agrees(traps: Any, tmp_path: Path) -> None:
    name = traps.__name__.rpartition(".")[2]
    kernel = tmp_path / f"{name}.py"
    kernel.write_text(traps.TRITON)
    tests = tmp_path / f"test_{name}.py"
    tests.write_text(traps.TESTS)
    made = port(traps.TRITON, kernel.name)
    found = check(
        made,
        kernel,
        Project(tmp_path, (tests,), (tmp_path,)),
        made.functions,
        python=warm_interpreter(),
        timeout_s=300,
        targets=("sm_90",) if probe().tileiras is not None else (),
    )
    assert found.problems == ()
    assert found.calls == traps.CALLS


def test_an_annotation_is_the_type_of_what_is_passed() -> None:
    """An int given to `alpha: tl.float32` is fp32, which Triton's interpreter does not know."""
    assert "(flat(x), flat(out), float(alpha), 8)" in port(host_traps.TRITON, "k.py").text


@pytest.mark.skipif(probe().tileiras is None, reason="needs cuda.tile's compiler")
@pytest.mark.parametrize(("body", "dtype", "wanted"), COMPUTED)
def test_the_type_that_cutile_computes_in(
    body: str, dtype: Any, wanted: str, tmp_path: Path
) -> None:
    """The compiler's own answer: on the CPU a constant may have a type that it has not on a GPU."""
    assert compiled_for(body, "", dtype, wanted, tmp_path) == ""
    other = "int16" if wanted != "int16" else "int32"
    assert "Static assertion failed" in compiled_for(body, "", dtype, other, tmp_path)


@pytest.mark.skipif(probe().tileiras is None, reason="needs cuda.tile's compiler")
def test_bf16_with_a_variable_of_an_integer_is_fp32(tmp_path: Path) -> None:
    body = "c = 3; y = x * c"
    cast = ".to(tl.bfloat16)"
    assert compiled_for(body, cast, torch.float32, "float32", tmp_path) == ""


def compiled_for(body: str, cast: str, dtype: Any, wanted: str, folder: Path) -> str:
    """Why the port of some statements does not compile where `y` has to be of a type."""
    from tile_agent_pytest.compile_cutile import Compiler
    from tile_agent_pytest.record_cutile import ConstraintRules

    text = TYPED.format(body=body.replace("; ", "\n    "), cast=cast)
    made = port(text, "typed.py").text
    store = "    ct.scatter(y_ptr"
    assert made.count(store) == 1
    asserted = made.replace(store, f"    ct.static_assert(y.dtype == ct.{wanted})\n{store}")
    file = folder / "typed_cutile.py"
    file.write_text(asserted)
    kernel = loaded(f"typed_{wanted}", file).kernel
    compiler = Compiler.installed()
    assert compiler is not None
    rules = ConstraintRules(compiler)
    arguments = (torch.zeros(8, dtype=dtype), torch.zeros(8, dtype=torch.float64), 5, 1.5, 3)
    given = zip(arguments, kernel._annotated_function.parameter_annotations, strict=True)
    constraints = [rules.constraint(value, annotation) for value, annotation in given]
    try:
        compiler.cubin(kernel, constraints, "sm_90")
    except Exception as problem:
        return str(problem)
    return ""
