"""The examples compile for every GPU generation, and the Triton ones pass in the interpreter.

No test here needs a GPU. Each works in a process of its own, because Triton decides at its import
whether it interprets or compiles. Run as a script, this file compiles one example.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiers import others_full
from tests.support.warm_python import warm_interpreter

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
TRITON = {"softmax": "triton_softmax", "layer_norm": "triton_layer_norm", "matmul": "triton_matmul"}
CUTILE = {"softmax": "cutile_softmax", "rms_norm": "cutile_rms_norm", "matmul": "cutile_matmul"}
ALL = [*TRITON.items(), *CUTILE.items()]
ARCHITECTURES = (80, 90, 100)


def installed(distribution: str) -> bool:
    """Whether it can be imported here, found out without importing it."""
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


needs_triton = pytest.mark.skipif(not installed("triton"), reason="triton is not installed")
needs_cutile = pytest.mark.skipif(
    not (installed("cuda-tile") and installed("nvidia-cuda-tileiras")),
    reason="tileiras is not installed",
)


def python(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter without a GPU and without what the surrounding pytest has set."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTEST_") and name != "TRITON_INTERPRET"
    }
    environment |= {"CUDA_VISIBLE_DEVICES": "", **variables}
    return subprocess.run(
        [warm_interpreter(), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def collected(example: str, expression: str, cwd: Path) -> list[str]:
    """The names of the tests that `-k expression` selects."""
    command = ["-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q"]
    arguments = (*command, "-k", expression, str(EXAMPLES / example))
    result = python(*arguments, cwd=cwd, TRITON_INTERPRET="1")
    assert result.returncode == 0, result.stdout + result.stderr
    return [line.rpartition("::")[2] for line in result.stdout.splitlines() if "::" in line]


@pytest.mark.parametrize("example", [example for _, example in ALL])
def test_an_example_is_complete(example: str) -> None:
    kernel = next(kernel for kernel, folder in ALL if folder == example)
    readme = (EXAMPLES / example / "README.md").read_text()
    assert f"tile-agent run --kernel {kernel}.py" in readme
    assert (EXAMPLES / example / f"{kernel}.py").is_file()
    assert (EXAMPLES / example / "tests" / f"test_{kernel}.py").is_file()


@needs_triton
@pytest.mark.parametrize(
    "folder", ["the example", pytest.param("the repository", marks=pytest.mark.full)]
)
def test_the_usual_expressions_select_triton_tests(folder: str) -> None:
    cwd = EXAMPLES / "triton_softmax" if folder == "the example" else ROOT
    correctness = collected("triton_softmax", "test_ and triton and not test_perf", cwd)
    perf = collected("triton_softmax", "test_perf and triton", cwd)
    assert len(correctness) > 5
    assert all(name.startswith("test_softmax_triton") for name in correctness)
    assert perf
    assert all(name.startswith("test_perf_softmax_triton") for name in perf)


@needs_cutile
@pytest.mark.parametrize(
    "folder", ["the example", pytest.param("the repository", marks=pytest.mark.full)]
)
def test_the_usual_expressions_select_cutile_tests(folder: str) -> None:
    cwd = EXAMPLES / "cutile_softmax" if folder == "the example" else ROOT
    correctness = collected("cutile_softmax", "test_ and cutile and not test_perf", cwd)
    perf = collected("cutile_softmax", "test_perf and cutile", cwd)
    assert len(correctness) > 5
    assert all(name.startswith("test_softmax_cutile") for name in correctness)
    assert perf
    assert all(name.startswith("test_perf_softmax_cutile") for name in perf)


@pytest.mark.full
@needs_triton
@pytest.mark.parametrize("example", TRITON.values())
def test_a_triton_example_passes_in_the_interpreter(example: str, tmp_path: Path) -> None:
    """As a copy of its own, all of it: correctness and timing."""
    copy = tmp_path / example
    shutil.copytree(
        EXAMPLES / example, copy, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache")
    )
    result = python("-m", "pytest", "-q", "-W", "error", cwd=copy)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "skipped" not in result.stdout
    assert "CPU wall time" in result.stdout


@needs_cutile
@pytest.mark.parametrize("example", others_full(CUTILE.values()))
def test_a_cutile_example_says_why_it_is_skipped(example: str) -> None:
    command = ["-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", str(EXAMPLES / example)]
    result = python(*command, cwd=ROOT, TRITON_INTERPRET="0")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "passed" not in result.stdout
    assert "cuTile kernels run on an NVIDIA GPU only" in result.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    "example",
    [pytest.param(example, marks=needs_triton) for example in TRITON.values()]
    + [pytest.param(example, marks=needs_cutile) for example in CUTILE.values()],
)
def test_an_example_compiles_without_a_gpu(example: str) -> None:
    result = python("-m", "tests.test_examples", example, cwd=ROOT, TRITON_INTERPRET="0")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.split() == [f"sm_{architecture}" for architecture in ARCHITECTURES]


def load(example: str) -> Any:
    """Import the kernel file of an example."""
    kernel = next(kernel for kernel, folder in ALL if folder == example)
    path = EXAMPLES / example / f"{kernel}.py"
    spec = importlib.util.spec_from_file_location(kernel, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[kernel] = module
    spec.loader.exec_module(module)
    return module


def compile_triton(example: str, architecture: int) -> bytes:
    """The cubin of a Triton example with the blocks that its launch binds, for bf16."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module = load(example)
    if example == "triton_softmax":
        kernel, constants = module.softmax_kernel, {"BLOCK": 4096}
        types = {"x_ptr": "*bf16", "y_ptr": "*bf16"}
    elif example == "triton_layer_norm":
        kernel, constants = module.layer_norm_kernel, {"BLOCK_SIZE": module.BLOCK_SIZE}
        types = dict.fromkeys(("x_ptr", "weight_ptr", "bias_ptr", "y_ptr"), "*bf16")
        types["eps"] = "fp32"
    else:
        kernel = module.matmul_kernel
        constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
        types = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*bf16")
    signature = {
        name: "constexpr" if name in constants else types.get(name, "i32")
        for name in kernel.arg_names
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", architecture, 32))
    cubin: bytes = compiled.asm["cubin"]
    return cubin


def compile_cutile(example: str, architecture: int) -> bytes:
    """The cubin of a cuTile example for contiguous bf16 arrays."""
    import cuda.tile as ct
    from cuda.tile.compilation import (
        ArrayConstraint,
        CallingConvention,
        KernelSignature,
        ScalarConstraint,
        export_kernel,
    )

    def array(ndim: int) -> ArrayConstraint:
        return ArrayConstraint(
            ct.bfloat16,
            ndim,
            index_dtype=ct.int32,
            stride_lower_bound_incl=0,
            alias_groups=(),
            may_alias_internally=False,
            stride_constant=(None,) * (ndim - 1) + (1,),
            stride_divisible_by=(16,) * (ndim - 1) + (1,),
            shape_divisible_by=16,
            base_addr_divisible_by=16,
        )

    module = load(example)
    parameters: list[Any]
    if example == "cutile_softmax":
        kernel, parameters = module.softmax_kernel, [array(2), array(2), 4096]
    elif example == "cutile_rms_norm":
        kernel = module.rms_norm_kernel
        parameters = [array(2), array(1), array(2), ScalarConstraint(ct.float32), module.TILE_N]
    else:
        kernel = module.matmul_kernel
        parameters = [array(2)] * 3 + [module.TILE_M, module.TILE_N, module.TILE_K]
    cubin = io.BytesIO()
    export_kernel(
        kernel,
        [KernelSignature(parameters, CallingConvention.cutile_python_v2())],
        cubin,
        gpu_code=f"sm_{architecture}",
        output_format="cubin",
    )
    return cubin.getvalue()


def main(example: str) -> None:
    """Compile one example and print what it was compiled for."""
    compile_one = compile_triton if example in TRITON.values() else compile_cutile
    for architecture in ARCHITECTURES:
        if compile_one(example, architecture).startswith(b"\x7fELF"):
            print(f"sm_{architecture}")


if __name__ == "__main__":
    main(sys.argv[1])
