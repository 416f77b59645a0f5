"""How far results are from those expected, and what a larger difference means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

from agent.measuring.differences import ResultDifference, ResultFault  # noqa: E402
from tile_agent_pytest.examining.comparer import difference  # noqa: E402
from tile_agent_pytest.examining.exchange import NotExchangeable, hand_out, take  # noqa: E402


def fault_of(expected: Any, actual: Any, rounding: float = 0.0) -> ResultFault | None:
    dtype = str(expected.dtype).removeprefix("torch.")
    found = ResultDifference("y", dtype, **difference(expected, actual))
    return found.fault(rounding=rounding)


def test_sums_in_another_order_are_rounding() -> None:
    x = torch.randn(64, 4096)
    one, other = x.sum(-1), x.view(64, 64, 64).sum(-1).sum(-1)
    assert fault_of(one, other) is None
    assert fault_of(x @ x.t(), (x.double() @ x.double().t()).float()) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_accumulator_of_half_the_width_is_less_precise(dtype: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 512, dtype=dtype)
    exact = x.float().cumsum(-1).to(dtype)
    half = torch.zeros(64, dtype=dtype)
    columns = []
    for column in x.unbind(-1):
        half = half + column
        columns.append(half)
    assert fault_of(exact, x.double().cumsum(-1).to(dtype)) is None
    assert fault_of(exact, torch.stack(columns, -1)) is ResultFault.IMPRECISE


def test_tf32_is_less_precise_and_may_be_allowed() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(64, 256), torch.randn(256, 64)

    def cut(x: Any) -> Any:
        return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)

    assert fault_of(a @ b, cut(a) @ cut(b)) is ResultFault.IMPRECISE
    assert fault_of(a @ b, cut(a) @ cut(b), rounding=2.0**-9) is None


def test_a_missing_row_is_wrong() -> None:
    x = torch.randn(1000, 100)
    less = x.clone()
    less[-1] = 0
    assert fault_of(x, less) is ResultFault.WRONG


def test_what_is_not_finite_has_to_be_in_the_same_places() -> None:
    x = torch.tensor([1.0, float("inf"), float("nan")])
    assert fault_of(x, x.clone()) is None
    assert fault_of(x, torch.tensor([1.0, float("inf"), 3.0])) is ResultFault.WRONG
    assert (
        fault_of(x, torch.tensor([float("nan"), float("inf"), float("nan")])) is ResultFault.WRONG
    )
    largest = torch.tensor([1.0, 65504.0]).half()
    assert fault_of(largest, torch.tensor([1.0, float("inf")]).half()) is None


def test_integers_are_equal_but_for_a_rounded_one_of_eight_bits() -> None:
    x = torch.arange(5000)
    assert fault_of(x, x) is None
    near = x.clone()
    near[7] += 1
    assert fault_of(x, near) is ResultFault.WRONG
    assert fault_of((x % 100).to(torch.int8), (near % 100).to(torch.int8)) is None


def test_what_the_origin_does_to_itself_is_allowed() -> None:
    own = ResultDifference("y", "float32", 10, rms_ulps=900.0, max_ulps=5000.0)
    other = ResultDifference("y", "float32", 10, rms_ulps=2000.0, max_ulps=9000.0)
    assert other.fault(own) is None
    assert other.fault() is ResultFault.IMPRECISE
    assert "2e+03 ulps of float32" in str(other)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "float8_e5m2"])
def test_tensors_are_handed_over(tmp_path: Path, dtype: str) -> None:
    x = torch.randn(6, 5).mul(3).to(getattr(torch, dtype)).t()
    given = hand_out({"x": x, "none": x[:0], "one": x[0, 0]}, tmp_path)
    for described, tensor in zip(given, (x, x[:0], x[0, 0]), strict=True):
        taken = take(described)
        assert taken.shape == tensor.shape and taken.dtype == tensor.dtype
        plain = (one.contiguous().view(-1).view(torch.uint8) for one in (taken, tensor))
        assert torch.equal(*plain)


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"dtype": "float32", "shape": [3], "file": "/nowhere"},
        {"dtype": "float32", "shape": [3], "file": "/etc/hostname"},
        {"dtype": "save", "shape": [3]},
        {"dtype": "float32", "shape": "x"},
    ],
    ids=str,
)
def test_what_is_no_tensor_is_told(described: dict[str, Any]) -> None:
    with pytest.raises(NotExchangeable):
        take(described)
