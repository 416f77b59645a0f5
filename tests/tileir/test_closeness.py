"""What `--reference` calls right: mutants of a softmax over 8192 columns, and honest rounding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tile_agent_pytest.tile_ir.closeness import Tolerance

ROWS, COLUMNS = 16, 8192
X = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(3))
HALVES = (torch.float16, torch.bfloat16)
MUTANTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": torch.zeros_like,
    "a constant": lambda y: torch.full_like(y, 1 / COLUMNS),
    "the mean of all": lambda y: y.mean().expand_as(y),
    "permuted rows": lambda y: y.roll(1, 0),
    "permuted columns": lambda y: y.roll(1, 1),
    "reversed": lambda y: y.flip(1),
    "a row for all": lambda y: y[:1].expand_as(y),
    "scaled by 1.03": lambda y: 1.03 * y,
    "scaled by 0.97": lambda y: 0.97 * y,
    "a missing last column": lambda y: torch.cat([y[:, :-1], 0 * y[:, -1:]], 1),
    "another temperature": lambda y: torch.softmax(0.98 * y.log(), -1),
    "an offset": lambda y: y + 0.1 / COLUMNS,
}


def softmax(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """In the dtype, and in float64."""
    x = X.to(dtype)
    return torch.softmax(x, -1), torch.softmax(x.double(), -1)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_no_mutant_of_a_softmax_passes(mutant: str, dtype: torch.dtype) -> None:
    right, exact = softmax(dtype)
    wrong = MUTANTS[mutant](exact).to(dtype)
    problem, _ = Tolerance().difference(wrong, right, exact)
    assert problem is not None


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
def test_a_softmax_of_its_own_rounding_passes(dtype: torch.dtype) -> None:
    right, exact = softmax(dtype)
    online = torch.exp2(X.to(dtype).float() * 1.4426950408889634)
    mine = (online / online.sum(-1, keepdim=True)).to(dtype)
    problem, largest = Tolerance().difference(mine, right, exact)
    assert problem is None
    assert largest is not None and largest[0] < 1e-4


def test_a_product_in_tf32_passes() -> None:
    torch.manual_seed(5)
    a, b = torch.randn(64, 1024), torch.randn(1024, 64)
    cut = [(m.view(torch.int32) & ~0x1FFF).view(torch.float32) for m in (a, b)]
    right, exact = a @ b, a.double() @ b.double()
    assert Tolerance().difference(right, right, exact)[0] is None
    half = (a.half() @ b.half(), a.half().double() @ b.half().double())
    assert Tolerance().difference((a.half().float() @ b.half().float()).half(), *half)[0] is None
    problem, _ = Tolerance(rtol=1e-3, atol=0.1).difference(cut[0] @ cut[1], right, exact)
    assert problem is None


def test_near_the_truth_is_near_though_the_reference_is_not() -> None:
    """A sum in float16 by steps of its own is far from the exact one."""
    exact = torch.full((32,), 2049.0, dtype=torch.float64)
    coarse = torch.full((32,), 1900.0, dtype=torch.float16)
    fine = exact.half()
    assert Tolerance().difference(fine, coarse, exact)[0] is None
    assert Tolerance().difference(fine, coarse, coarse)[0] is not None


def test_what_is_as_a_whole_another_multiple() -> None:
    right = (torch.rand(1000) + 0.5).half()
    twisted = (right.double() * 1.012).half()
    problem, _ = Tolerance().difference(twisted, right, right)
    assert problem == "is 1.012 times the reference, taken as a whole"
    few = Tolerance().difference(twisted[:8], right[:8], right[:8])
    assert few[0] is None


def test_tolerances_that_are_given_hold_as_they_are() -> None:
    zeros, small = torch.zeros(64), torch.full((64,), 1e-5)
    assert Tolerance().difference(zeros, small, small)[0] is not None
    assert Tolerance(atol=1e-4).difference(zeros, small, small)[0] is not None  # 0 times it
    assert Tolerance(rtol=1.0, atol=1e-4).difference(zeros, small, small)[0] is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_has_to_be_the_same(value: float) -> None:
    right = torch.tensor([1.0, value, 2.0])
    assert Tolerance().difference(right.clone(), right, right)[0] is None
    other = torch.tensor([1.0, 5.0, 2.0])
    assert Tolerance().difference(other, right, right)[0] is not None
    assert Tolerance().difference(right, other, other)[0] is not None


TAIL = {"float16": 128, "bfloat16": 256, "float32": 16}


@pytest.mark.parametrize("name", TAIL)
def test_a_tail_that_a_norm_leaves_out(name: str) -> None:
    """Every element is near enough by itself in 16 bits; all are larger than they should be."""
    dtype = getattr(torch, name)
    x = X.to(dtype).double()

    def norm(columns: int) -> torch.Tensor:
        return x * (x[:, :columns].square().sum(-1, keepdim=True) / COLUMNS).rsqrt()

    exact = norm(COLUMNS)
    assert Tolerance().difference(exact.to(dtype), exact.to(dtype), exact)[0] is None
    wrong = norm(COLUMNS - TAIL[name]).to(dtype)
    problem, _ = Tolerance().difference(wrong, exact.to(dtype), exact)
    assert problem is not None and ("taken as a whole" in problem or "elements" in problem)


@pytest.mark.parametrize("dtype", HALVES)
def test_most_of_a_gradient_that_is_not_there(dtype: torch.dtype) -> None:
    """Of a cross entropy: a few large numbers, and very many small ones that make up the rest."""
    logits = 0.05 * torch.randn(64, 4000, generator=torch.Generator().manual_seed(1))
    right = torch.softmax(logits.double(), -1)
    hot = torch.nn.functional.one_hot(torch.arange(64) * 50, 4000)
    exact = (right - hot) / 64
    assert Tolerance().difference((-hot / 64).to(dtype), exact.to(dtype), exact)[0] is not None


def test_what_cancels_is_judged_by_what_the_reference_is_off() -> None:
    y = torch.softmax(X, -1)
    exact = torch.softmax(X.double(), -1).sum(-1) - 1
    mine = y.view(ROWS, -1, 64).sum(1).sum(-1) - 1
    assert Tolerance().difference(mine, y.sum(-1) - 1, exact)[0] is None
    assert Tolerance().difference(mine + 0.001, y.sum(-1) - 1, exact)[0] is not None


@pytest.mark.parametrize("size", [1e200, 1e-170])
def test_numbers_of_any_size(size: float) -> None:
    right = torch.randn(64, dtype=torch.float64) * size
    assert Tolerance().difference(right.clone(), right, right)[0] is None
    assert Tolerance().difference(0 * right, right, right)[0] is not None


def test_a_reference_that_overflows_where_the_truth_does_not() -> None:
    exact = torch.linspace(1, 2, 32, dtype=torch.float64)
    broken = exact.half()
    broken[3] = float("nan")
    assert Tolerance().difference((exact * 1.001).half(), broken, exact)[0] is None


def test_long_integers_are_compared_to_the_last_bit() -> None:
    right = torch.tensor([2**60, 2**53])
    assert Tolerance().difference(right.clone(), right, right)[0] is None
    problem, _ = Tolerance().difference(right + 1, right, right)
    assert problem is not None and "2 of 2 elements differ" in problem


def test_integers_have_to_be_equal() -> None:
    right = torch.arange(40)
    assert Tolerance().difference(right.clone(), right, right)[0] is None
    assert Tolerance().difference(right + (right == 7), right, right)[0] is not None


def test_nothing_but_zeros_is_near_numbers_that_round_to_them() -> None:
    zeros = torch.zeros(32)
    assert Tolerance().difference(zeros + 1e-6, zeros, zeros)[0] is None


def test_a_sum_in_a_half_is_as_near_as_a_half_is() -> None:
    reference = torch.full((4,), 1.0)
    for gap, near in ((0.005, True), (0.1, False)):
        found = Tolerance(computed_in=torch.float16).difference(
            reference + gap, reference, reference
        )
        assert (found[0] is None) == near
        assert Tolerance().difference(reference + gap, reference, reference)[0] is not None
