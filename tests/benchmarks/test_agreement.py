"""What counts as agreeing with PyTorch."""

from __future__ import annotations

import pytest
import torch

from benchmarks.agreement import error
from benchmarks.spec import find

LARGE, SMALL = torch.full((1000,), 100.0), torch.tensor([0.01, 0.02])


def test_each_tensor_has_to_agree() -> None:
    """A wrong one is not hidden by another whose numbers are larger."""
    expected = (LARGE.double(), SMALL.double())
    assert error((LARGE, SMALL * 1.005), expected) == pytest.approx(0.005, rel=1e-3)
    with pytest.raises(ValueError, match=r"off by 2\.00%, 1% is allowed"):
        error((LARGE, SMALL * 1.02), expected)


@pytest.mark.parametrize("wrong", [LARGE[:999], (LARGE, SMALL), LARGE * float("nan")])
def test_what_is_wrong_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"instead of|off by nan"):
        error(wrong, (LARGE,))


def test_scales_that_are_wrong_are_seen() -> None:
    (spec,) = find(["triton/group_quant"])
    reference = spec.reference()
    (x,) = reference.inputs((4, 256, torch.float32))
    quantized, scale = reference.torch_version(x)
    assert error((quantized, scale), (quantized, scale)) == 0
    with pytest.raises(ValueError, match="off by"):
        error((quantized, scale * 2), (quantized, scale))
