"""What is written for an argument makes one like it: the facts of both agree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from agent.capture.arguments import ArgumentWriter, as_safetensors
from tile_agent_pytest.capture.contents import MOST_VALUES
from tile_agent_pytest.capture.described import ArgumentFacts, describe

QKV = torch.randn(4, 96)
X = torch.randn(6, 8)
DRAWN = {
    "contiguous": X,
    "transposed": torch.randn(3, 5, 7).transpose(0, 2),
    "expanded": torch.randn(8).expand(4, 8),
    "of padded rows": torch.randn(6, 32)[:, :20],
    "unaligned": torch.randn(101)[1:],
    "strided by two": torch.randn(64)[::2],
    "of one element": torch.randn(1, 1),
    "without dimensions": torch.tensor(2.5),
    "empty": torch.empty(0, 4),
    "half": torch.randn(4, 4, dtype=torch.float16),
    "with a gradient": torch.randn(4, requires_grad=True),
    "a parameter": torch.nn.Parameter(torch.randn(3)),
    "complex": torch.randn(4, dtype=torch.complex64),
}
DECAYS = -torch.rand(2, 100, 3).add(0.1)


def cumulative(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    dim: int,
    mean: float,
    std: float = 0.0,
    chunk: int | None = None,
    start: float = 0.0,
) -> torch.Tensor:
    """As the test files have it."""
    variance = math.log1p((std / mean) ** 2)
    steps = mean * torch.exp(math.sqrt(variance) * torch.randn(shape) - variance / 2)
    sums = [part.cumsum(dim) for part in steps.split(chunk or shape[dim], dim)]
    return (start + torch.cat(sums, dim)).to(dtype)


def in_chunks(decays: torch.Tensor, chunk: int, dim: int = 1) -> torch.Tensor:
    """Sums that begin anew at each chunk."""
    return torch.cat([part.cumsum(dim) for part in decays.split(chunk, dim)], dim)


def attributed(tensor: torch.Tensor, /, **attributes: Any) -> torch.Tensor:
    """As the test files have it."""
    vars(tensor).update(attributes)
    return tensor


HELPERS = {
    "attributed": attributed,
    "cumulative": cumulative,
    "torch": torch,
    "DEVICE": "cpu",
    "normal": lambda shape, dtype, mean=0.0, std=1.0: (mean + std * torch.randn(shape)).to(dtype),
    "uniform": lambda shape, dtype, low=0.0, high=1.0: (low + (high - low) * torch.rand(shape)).to(
        dtype
    ),
    "integers": lambda shape, dtype, low, high: torch.randint(low, high + 1, shape, dtype=dtype),
    "generator": torch.Generator,
    "given": lambda *args, **kwargs: (args, kwargs),
}


def seen(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """What the recorder would tell of a call."""
    facts = ArgumentFacts()
    told = describe(args, kwargs, facts)
    facts.add_contents()
    return told


def made(told: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the written code makes."""
    writer = ArgumentWriter()
    code = f"given({', '.join(writer.call(told))})"

    def kept(name: str) -> torch.Tensor:
        dtype, shape, values = writer.kept[name]
        return torch.tensor(values, dtype=getattr(torch, dtype)).view(shape)

    modules = {name: __import__(name) for name in writer.imports}
    args, kwargs = eval(code, {**HELPERS, **modules, "kept": kept})
    return args, kwargs


def layout(told: Any) -> Any:
    """Without what is drawn anew: contents, the size of what a view is cut from, offsets in it."""
    if isinstance(told, dict):
        left = ("contents", "memory_elements", "offset")
        return {key: layout(value) for key, value in told.items() if key not in left}
    return [layout(value) for value in told] if isinstance(told, list) else told


@pytest.mark.parametrize("kind", DRAWN)
def test_a_tensor_is_made_with_the_same_layout(kind: str) -> None:
    told = seen(DRAWN[kind])
    args, kwargs = made(told)
    assert layout(seen(*args, **kwargs)) == layout(told)


def test_what_is_set_on_a_tensor_is_set_again() -> None:
    weight = torch.nn.Parameter(torch.randn(4, 8))
    weight.main_grad = QKV[:, :32]  # type: ignore[attr-defined]
    weight.zeroed, weight.partition = True, -1  # type: ignore[attr-defined]
    weight.called, weight.scale, weight.none = "w", 0.5, None  # type: ignore[attr-defined]
    weight.itself, weight.owner = weight, object()  # type: ignore[attr-defined]
    weight._noted = 1  # type: ignore[attr-defined]
    told = seen([weight], QKV[:, 32:])
    args, _ = made(told)
    ((again,), other) = args
    assert {name: value for name, value in vars(again).items() if name != "main_grad"} == {
        "zeroed": True, "partition": -1, "called": "w", "scale": 0.5, "none": None,
    }  # fmt: skip
    assert layout(seen(again.main_grad)) == layout(seen(QKV[:, :32]))
    assert other.data_ptr() - again.main_grad.data_ptr() == 32 * 4
    assert told["arguments"][0]["items"][0]["not_made"] == ["itself", "owner"]


def test_a_number_that_is_set_on_a_tensor_makes_no_other_kind_of_call() -> None:
    kinds = []
    for step in (1, 2):
        x = torch.ones(4)
        x.step = step  # type: ignore[attr-defined]
        kinds.append(describe((x,), {}, ArgumentFacts()))
    assert kinds[0] == kinds[1]


def test_an_array_is_made_again_as_one() -> None:
    drawn = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    told = seen(np.array([3, 1, 2]), drawn[:, :4], torch.ones(3))
    args, kwargs = made(told)
    assert [type(arg) for arg in args] == [np.ndarray, np.ndarray, torch.Tensor]
    assert layout(seen(*args, **kwargs)) == layout(told)
    assert args[0].tolist() == [3, 1, 2]


def test_what_shares_memory_shares_it_again() -> None:
    told = seen(QKV[:, :32], QKV[:, 32:64], [QKV[:, 64:]], out=X, again=X)
    args, kwargs = made(told)
    assert layout(seen(*args, **kwargs)) == layout(told)
    assert args[1].data_ptr() - args[0].data_ptr() == 32 * 4
    assert kwargs["out"] is kwargs["again"]


@pytest.mark.parametrize(
    "index",
    [
        torch.tensor([3, 1, 2]),
        torch.arange(4, 400, 4, dtype=torch.int32),
        torch.arange(12).view(3, 4),
        torch.full((100,), -100),
        torch.randperm(300),
        torch.rand(20, 30) > 0.5,
        torch.randint(-5, 5, (40,), dtype=torch.int8),
        torch.tensor([0, 5, 9, 9, 30], dtype=torch.int32)[1:],
        torch.randperm(60).view(6, 10)[:, 2:7],
        torch.randperm(12).view(3, 4).t(),
        torch.randperm(12)[:, None].expand(12, 4),
    ],
    ids=lambda index: f"{index.dtype}{list(index.shape)}",
)
def test_index_like_integers_are_kept_as_they_were(index: torch.Tensor) -> None:
    (again,), _ = made(seen(index))
    assert again.dtype == index.dtype
    assert again.tolist() == index.tolist()


def test_integers_that_cannot_be_kept_stay_within_their_range() -> None:
    told = seen(torch.randint(7, 50, (MOST_VALUES + 1,)))
    writer = ArgumentWriter()
    (code,) = writer.call(told)
    assert (writer.drawn, writer.kept) == (1, {})
    again = eval(code, dict(HELPERS))
    contents = told["arguments"][0]["contents"]
    assert contents["low"] <= int(again.min()) <= int(again.max()) <= contents["high"]


@pytest.mark.parametrize(
    ("tensor", "low", "high"),
    [
        (torch.rand(1000), 0.0, 1.0),
        (1e-3 * torch.rand(1000) + 5.0, 4.9, 5.2),
        (torch.zeros(10), 0.0, 0.0),
        (torch.randn(1000) * 0.01 - 3.0, -3.2, -2.8),
    ],
)
def test_numbers_are_drawn_from_where_they_were(
    tensor: torch.Tensor, low: float, high: float
) -> None:
    (again,), _ = made(seen(tensor))
    assert low <= float(again.min()) <= float(again.max()) <= high


@pytest.mark.parametrize(
    ("tensor", "dim", "chunk"),
    [
        (DECAYS.cumsum(1), 1, 0),
        (in_chunks(DECAYS, 64), 1, 64),
        (in_chunks(DECAYS, 16).to(torch.bfloat16), 1, 16),
        (in_chunks(-DECAYS, 32), 1, 32),
        (DECAYS.flip(1).cumsum(1).flip(1), 1, 0),
        (DECAYS.cumsum(1) - DECAYS, 1, 0),
        (in_chunks(DECAYS, 64).requires_grad_(), 1, 64),
        (in_chunks(DECAYS.transpose(0, 1), 64, 0).transpose(0, 1), 1, 64),
        (torch.cat([DECAYS.cumsum(1), DECAYS], 2)[:, :, :3], 1, 0),
        (DECAYS[0, :, 0].cumsum(0)[4:], 0, 0),
        (torch.linspace(5, 9, 40), 0, 0),
        (torch.randn(30, 50).sort(1).values, 1, 0),
    ],
)
def test_what_rises_or_falls_along_a_dimension_does_so_again(
    tensor: torch.Tensor, dim: int, chunk: int
) -> None:
    told = seen(tensor)
    (again,), _ = made(told)
    assert layout(seen(again)) == layout(told)
    one, other = (seen(t)["arguments"][0]["contents"]["monotone"] for t in (tensor, again))
    assert (one["dimension"], one["chunk"]) == (other["dimension"], other["chunk"]) == (dim, chunk)
    assert one["step_mean"] == pytest.approx(other["step_mean"], rel=0.3)
    near = 0.2 * float(tensor.detach().abs().max())
    assert one["first"] == pytest.approx(other["first"], abs=near)
    assert one["last"] == pytest.approx(other["last"], abs=near)
    if float(tensor.detach().max()) <= 0:
        assert float(again.detach().max()) <= 0


def test_what_shares_memory_rises_or_falls_too() -> None:
    both = torch.cat([DECAYS.cumsum(1), torch.randn(2, 100, 3)], 2)
    (falling, other), _ = made(seen(both[:, :, :3], both[:, :, 3:]))
    assert falling.data_ptr() != other.data_ptr()
    assert bool((falling.diff(dim=1) <= 0).all())
    assert not bool((other.diff(dim=1) <= 0).all())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(4, 100),
        torch.rand(7),
        torch.randn(30, 2).cumsum(0),
        torch.ones(20, 20).tril(),
        torch.nn.functional.one_hot(torch.full((64,), 63)).float(),
    ],
)
def test_other_numbers_are_in_no_order(tensor: torch.Tensor) -> None:
    assert "monotone" not in seen(tensor)["arguments"][0]["contents"]


def test_an_order_is_found_in_what_is_looked_at_of_a_large_tensor() -> None:
    large = in_chunks(-torch.rand(4, 1 << 12, 200), 64)
    found = seen(large)["arguments"][0]["contents"]["monotone"]
    assert (found["dimension"], found["chunk"]) == (1, 64)


def test_other_values_are_written_as_they_are() -> None:
    values = (1, -2.5, float("inf"), True, None, "it's", (1,), [2, 3], {"a": (4, None)})
    args, kwargs = made(seen(*values, dtype=torch.float16, size=torch.Size([2, 3])))
    assert args == values
    assert kwargs == {"dtype": torch.float16, "size": (2, 3)}


def test_a_function_is_written_by_its_name_and_what_has_none_is_not_written() -> None:
    told = seen(lambda x: x, object())
    assert [fact["kind"] for fact in told["arguments"]] == ["unknown", "unknown"]
    told = seen(torch.nn.functional.silu)
    assert made(told)[0] == (torch.nn.functional.silu,)


def test_the_file_of_values_is_one_of_safetensors() -> None:
    library = pytest.importorskip("safetensors.torch")
    index, mask = torch.randperm(300).view(30, 10), torch.rand(7) > 0.5
    writer = ArgumentWriter()
    writer.call(seen(index, torch.randint(0, 9, (50,), dtype=torch.int16), index.clone()))
    found = library.load(as_safetensors(writer.kept))
    assert {name: tensor.dtype for name, tensor in found.items()} == {
        "int64_30x10": torch.int64,
        "int16_50": torch.int16,
    }
    assert torch.equal(found["int64_30x10"], index)
    assert mask.dtype == torch.bool
