"""TileGym's versions are called rightly: they compute what PyTorch does, on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")

from benchmarks.agreement import copied, error, right
from benchmarks.spec import Spec, find
from tests.tile_cpu import tilegym_wheel
from tile_agent_pytest.tile_cpu import TileCpu

pytestmark = [
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="tilegym caches what it asks of a GPU, and here is one"
    ),
    # What TileGym's host code warns about is not ours to mend.
    pytest.mark.filterwarnings("ignore"),
]

SMALL: dict[str, tuple[Any, ...]] = {
    "softmax": (8, 256, torch.bfloat16),
    "rms_norm": (600, 256, torch.bfloat16),
    "layer_norm": (16, 256, torch.bfloat16),
    "matmul": (128, 128, 64, torch.bfloat16),
    "bmm": (2, 128, 128, 64, torch.float16),
    "attention": (1, 2, 256, 128, torch.bfloat16),
    "silu_and_mul": (4, 256, torch.bfloat16),
    "rope": (1, 4, 2, 16, 64, torch.bfloat16),
    "cross_entropy": (8, 1000, torch.bfloat16),
}


@pytest.fixture(scope="module")
def cpu() -> Iterator[TileCpu]:
    """The CPU execution, with TileGym to import."""
    sys.path.insert(0, str(tilegym_wheel.folder()))
    with TileCpu() as opened:
        yield opened
    sys.path.pop(0)


@pytest.mark.full
@pytest.mark.parametrize("spec", find(["cutile"]), ids=lambda spec: spec.name)
def test_an_expert_agrees_with_pytorch(spec: Spec, cpu: TileCpu) -> None:
    if spec.name not in SMALL:
        pytest.skip("there is no expert's version of it")
    reference = spec.reference()
    inputs = reference.inputs(SMALL[spec.name])
    expected = right(reference, inputs)
    for label, make in reference.experts.items():
        launched = len(cpu.launched)
        error(make(*map(copied, inputs))(), expected)  # raises where it is off
        assert len(cpu.launched) > launched, label
