"""Several sets of a callable's tensors: what lies in them, and how many overflow a cache."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

from tile_agent_pytest.input_sets import InputSets, Turns, count_of_sets  # noqa: E402

MIB = 1 << 20


def test_a_set_holds_the_same_bytes_in_other_memory() -> None:
    x, known = torch.arange(12.0), torch.arange(12.0)
    at = x.data_ptr()
    sets = InputSets([x], 3)
    addresses = set()
    for index in range(len(sets)):
        sets.use(index)
        addresses.add(x.data_ptr())
        assert torch.equal(x, known)
    assert len(addresses) == 3
    x.mul_(2.0)
    sets.use(0)
    assert x.data_ptr() == at
    assert torch.equal(x, known)


def test_views_of_one_memory_stay_views_of_one() -> None:
    base = torch.zeros(4, 6)
    part, turned = base[1:, 2:4], base.t()
    sets = InputSets([part, turned, base], 2)
    sets.use(1)
    part.fill_(1.0)
    assert base.sum() == 6.0
    assert turned[2, 1] == 1.0
    assert turned.stride() == (1, 6)
    sets.use(0)
    assert base.sum() == 0.0


def test_a_parameter_keeps_its_identity_and_its_version() -> None:
    """Of a tensor that autograd knows, too: what was saved of it is still what it was."""
    w = torch.nn.Parameter(torch.ones(3))
    loss = (w * w).sum()
    version = w._version
    sets = InputSets([w], 2)
    sets.use(1)
    sets.use(0)
    assert (w.is_leaf, w.requires_grad, w._version) == (True, True, version)
    loss.backward()
    assert torch.equal(w.grad, 2 * torch.ones(3))


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        (1 << 10, 1),  # fifty of them fit into the cache
        (MIB, 13),  # 12 MiB with the result, of 150
        (12 * MIB, 2),
        (40 * MIB, 1),  # it overflows the cache by itself
    ],
)  # fmt: skip
def test_as_many_sets_as_overflow_the_cache(elements: int, expected: int) -> None:
    tensors = [torch.empty(elements) for _ in range(3)]
    assert count_of_sets(tensors, 50 * MIB, 50) == expected


def test_what_shares_its_memory_counts_once() -> None:
    x = torch.zeros(MIB)
    assert count_of_sets([x, x[1:], x.view(-1, 2)], 50 * MIB, 50) == 38


def test_calls_take_turns_and_any_of_their_sets_can_be_looked_at() -> None:
    x = torch.ones(4)
    at, seen = x.data_ptr(), []
    turns = Turns(InputSets([x], 3))

    def call() -> Any:
        seen.append(x.data_ptr())
        return x * len(seen)

    for left in reversed(range(7)):
        turns.take(left, call)
    turns.end()
    assert (seen[-1], len(set(seen)), x.data_ptr()) == (at, 3, at)
    assert [turns.look_at(draw)[0] for draw in (0, 1, 2, 4)] == [7, 6, 5, 6]
    x.fill_(5.0)  # as a check has it: the bytes of the set that it looks at are those of all
    turns.spread()
    turns.end()
    assert (x.data_ptr(), x[0]) == (at, 5.0)
    turns.look_at(2)
    assert x[0] == 5.0
