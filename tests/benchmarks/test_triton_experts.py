"""The experts' versions of the Triton kernels are called rightly, as far as a CPU can tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.agreement import LARGEST_ERROR
from benchmarks.spec import find
from tests.benchmarks.triton_experts import called

pytest.importorskip("triton", reason="triton is not installed")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU, which the benchmark uses"),
]

INTERPRETED = {
    "softmax": "Liger softmax",
    "rms_norm": "Conch rms_norm",
    "attention": "fla parallel_attn",
    "embedding": "Liger embedding",
    "cross_entropy": "fla cross_entropy",
}
"""Those that Triton's interpreter can run. It has no libdevice, and no GPU to tune on."""
NEED_A_GPU = {
    ("attention", "PyTorch flex_attention"),
    ("matmul", "Inductor's Triton template"),
    ("bmm", "Inductor's Triton template"),
}
"""Those that PyTorch compiles, so that there is no kernel before there is code."""
OTHERS = [
    (spec.name, label)
    for spec in find(["triton"])
    for label in spec.reference().experts
    if (spec.name, label) not in NEED_A_GPU
]


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """How far each is off, or why it did not run."""
    return called("interpret", tmp_path_factory.mktemp("home"), INTERPRETED.items())


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The kernels that each launches, or why it did not get so far."""
    return called("launch", tmp_path_factory.mktemp("home"), OTHERS)


@pytest.mark.parametrize(("kernel", "label"), INTERPRETED.items())
def test_it_agrees_with_pytorch(
    kernel: str, label: str, interpreted: dict[str, dict[str, Any]]
) -> None:
    error = interpreted[kernel][label]
    assert isinstance(error, float), error
    assert error < LARGEST_ERROR


@pytest.mark.parametrize(("kernel", "label"), OTHERS)
def test_it_launches_for_a_result_of_the_right_shape(
    kernel: str, label: str, launched: dict[str, dict[str, Any]]
) -> None:
    kernels = launched[kernel][label]
    assert isinstance(kernels, list), kernels
    assert kernels


def test_every_kernel_has_an_expert() -> None:
    assert all(spec.reference().experts for spec in find(["triton"]))
