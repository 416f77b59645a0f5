"""Every operation against torch, on edge values, tails and dtypes; and against a GPU, if any."""

from __future__ import annotations

import pytest
import torch

ct = pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")

from tests.tile_cpu import elementwise_programs, programs  # noqa: E402
from tests.tile_cpu.front_end import front_end  # noqa: E402
from tests.tile_cpu.programs import Program  # noqa: E402
from tests.tile_cpu.tilegym_wheel import tensors  # noqa: E402
from tile_agent_pytest.tile_cpu import OPERATIONS, TileCpu  # noqa: E402

PROGRAMS = [*elementwise_programs.PROGRAMS, *programs.PROGRAMS]
IDS = [program.name for program in PROGRAMS]


def launched(program: Program) -> list[torch.Tensor]:
    outputs = list(program.outputs())
    arguments = (*program.inputs(), *outputs)
    ct.launch(torch.cuda.current_stream(), program.grid, program.kernel, arguments)
    return outputs


def assert_same(actual: list[torch.Tensor], expected: list[torch.Tensor], tolerance: float) -> None:
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(
            mine.cpu(), theirs.cpu(), rtol=tolerance, atol=tolerance, equal_nan=True
        )


@pytest.mark.parametrize("program", PROGRAMS, ids=IDS)
def test_agrees_with_torch(program: Program) -> None:
    with TileCpu():
        expected = tensors(program.reference(*program.inputs()))
        assert_same(launched(program), expected, program.tolerance)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("program", PROGRAMS, ids=IDS)
def test_agrees_with_a_gpu(program: Program) -> None:
    on_gpu = [tensor.cpu() for tensor in launched(program)]
    with TileCpu():
        on_cpu = [tensor.cpu() for tensor in launched(program)]
    assert_same(on_cpu, on_gpu, program.tolerance)


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS, ids=IDS)
def test_the_compiler_takes_it_too(program: Program) -> None:
    """Its front end checks dtypes and shapes: what it refused would prove nothing here."""
    with TileCpu():
        arguments = (*program.inputs(), *program.outputs())
        front_end(program.kernel, arguments)


def test_every_function_of_cuda_tile_is_there() -> None:
    """Only those that are no device functions, or that host code may call itself, are left out."""
    from_host = {"launch", "cdiv", "static_iter", "static_exception", "function", "kernel"}
    no_operation = {"compiler_timeout", "foreign_pointer_dtype"}
    functions = {
        name
        for name in ct.__all__
        if callable(getattr(ct, name))
        and not isinstance(getattr(ct, name), type | ct.DType)
        and name == name.lower()
        and not hasattr(getattr(ct, name), "__metadata__")
    }
    assert functions - set(OPERATIONS) - from_host - no_operation == set()
