"""What is written for an argument makes one like it: the facts of both agree."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agent.capture.arguments import ArgumentWriter, as_safetensors
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
HELPERS = {
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


def made(told: dict[str, Any], *, keeps: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the written code makes."""
    writer = ArgumentWriter(keeps=keeps)
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
    (again,), _ = made(seen(index), keeps=True)
    assert again.dtype == index.dtype
    assert again.tolist() == index.tolist()


def test_integers_that_cannot_be_kept_stay_within_their_range() -> None:
    told = seen(torch.randint(7, 50, (1000,)))
    writer = ArgumentWriter(keeps=False)
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
    writer = ArgumentWriter(keeps=True)
    writer.call(seen(index, torch.randint(0, 9, (50,), dtype=torch.int16), index.clone()))
    found = library.load(as_safetensors(writer.kept))
    assert {name: tensor.dtype for name, tensor in found.items()} == {
        "int64_30x10": torch.int64,
        "int16_50": torch.int16,
    }
    assert torch.equal(found["int64_30x10"], index)
    assert mask.dtype == torch.bool
