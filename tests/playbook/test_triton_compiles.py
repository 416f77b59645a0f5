"""Every Triton example compiles, before and after, for GPUs this machine need not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, Subject
from agent.playbook import for_backend
from agent.playbook.base import Optimization
from agent.playbook.trial import TritonTrial
from agent.syntax import Source
from tests.support.triton_compiler import BY_16, GENERATIONS, compiled

triton = pytest.importorskip("triton", reason="triton is not installed")

NO_BLOCK_POINTERS = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)

pytestmark = pytest.mark.usefixtures("compiler")
entries = pytest.mark.parametrize("entry", for_backend("triton"), ids=lambda entry: entry.name)


@entries
def test_after_compiles(entry: Optimization, tmp_path: Path) -> None:
    check_after(entry, 90, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("sm", [80, 100])
@entries
def test_after_compiles_for_other_generations(entry: Optimization, sm: int, tmp_path: Path) -> None:
    check_after(entry, sm, tmp_path)


@pytest.mark.full
@entries
def test_before_compiles(entry: Optimization, tmp_path: Path) -> None:
    """For one generation: what comes of it is compiled for all."""
    trial = trial_of(entry)
    check(entry.before, trial.kernel, trial.types, 90, trial.options, tmp_path)


def trial_of(entry: Optimization) -> TritonTrial:
    assert isinstance(entry.trial, TritonTrial)
    return entry.trial


def check_after(entry: Optimization, sm: int, folder: Path) -> None:
    trial = trial_of(entry)
    types = trial.types_after or trial.types
    check(entry.after, trial.kernel, types, sm, trial.options_after, folder)


def check(
    text: str,
    kernel: str,
    types: Sequence[str | int],
    sm: int,
    options: Mapping[str, int],
    folder: Path,
) -> None:
    path = folder / "kernel.py"
    path.write_text(text)
    if "make_block_ptr" in text and NO_BLOCK_POINTERS:
        with pytest.raises(triton.CompilationError, match="have been removed"):
            compiled(path, kernel, list(types), sm, dict(options))
    else:
        assert compiled(path, kernel, list(types), sm, dict(options)).asm["cubin"]


@GENERATIONS
def test_a_persistent_product_of_one_loop_compiles(sm: int, tmp_path: Path) -> None:
    before = playbook.get("grouped-programs").before
    subject = Subject(Source(before), KernelClass.COMPUTE, Hardware(sm=sm))
    params = {"programs_per_sm": 1, "flatten": True}
    path = tmp_path / "flat.py"
    path.write_text(playbook.get("persistent-programs").apply(subject, params))
    trial = trial_of(playbook.get("grouped-programs"))
    types = [*trial.types, "i32", "i32"]
    assert compiled(path, trial.kernel, types, sm, {}).asm["cubin"]


@pytest.mark.parametrize(
    ("sm", "stages"),
    [
        pytest.param(80, 2, marks=pytest.mark.full),
        (90, 3),
        pytest.param(100, 3, marks=pytest.mark.full),
    ],
)
def test_a_row_that_does_not_fit_ahead_is_not_pipelined(
    sm: int, stages: int, tmp_path: Path
) -> None:
    """A perf test of bf16 rows, and a correctness test of the same length in fp32."""
    entry = playbook.get("persistent-programs")
    subject = Subject(Source(entry.before), KernelClass.MEMORY, Hardware(sm=sm))
    path = tmp_path / "center.py"
    path.write_text(entry.apply(subject, {"programs_per_sm": 1, "num_stages": stages}))

    def shared_bytes(element: str, block: int) -> int:
        types = [f"*{element}", f"*{element}", f"i32{BY_16}", f"i32{BY_16}", block, "i32"]
        bytes_: int = compiled(path, "center_kernel", types, sm, {"num_warps": 32}).metadata.shared
        return bytes_

    row_bytes = 32768 * 2
    assert (stages - 1) * row_bytes <= shared_bytes("bf16", 32768) < (stages - 1) * row_bytes + 8192
    assert shared_bytes("fp32", 65536) < 8192


@pytest.mark.parametrize("warps", [4, 8])
def test_a_product_is_taken_apart(warps: int, tmp_path: Path) -> None:
    """On sm_100: a group of four warps loads beside those that multiply."""
    entry = playbook.get("warp-specialized-loops")
    path = tmp_path / "specialized.py"
    path.write_text(entry.after)
    types = [*["*bf16"] * 3, *[f"i32{BY_16}"] * 6, 128, 128, 64, True, True]
    options = {"num_warps": warps, "num_stages": 3}
    found = compiled(path, "matmul_kernel", types, 100, options)
    assert f".reqntid {(warps + 4) * 32}" in found.asm["ptx"]
