"""Fresh bytes for the inputs of a callable, and the old ones back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tile_agent_pytest.examining.inputs import Inputs  # noqa: E402
from tile_agent_pytest.examining.monotone import monotone  # noqa: E402
from tile_agent_pytest.examining.tensors import digest, overlap, reachable  # noqa: E402


def bytes_of(tensor: Any) -> Any:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).clone()


TENSORS: dict[str, Callable[[], dict[str, Any]]] = {
    "float32": lambda: {"x": torch.randn(7, 33)},
    "half": lambda: {"x": torch.randn(64, 8).half(), "y": torch.randn(5).bfloat16()},
    "float8": lambda: {"x": torch.randn(16, 16).to(torch.float8_e4m3fn)},
    "one element": lambda: {"x": torch.tensor(3.5)},
    "a transposed view": lambda: {"x": torch.randn(8, 6).t()},
    "views of one tensor": lambda: dict(zip("qkv", torch.randn(4, 30).chunk(3, -1), strict=True)),
    "not finite": lambda: {"x": torch.tensor([[1.0, float("inf")], [float("nan"), -0.0]])},
    "large": lambda: {"x": torch.full((4, 4), 60000.0).half()},
    "a parameter": lambda: {"x": torch.nn.Parameter(torch.randn(9, 9))},
    "an expanded one": lambda: {"x": torch.randn(5, 1).expand(5, 6)},
    "decays": lambda: {"g": -torch.rand(3, 40).cumsum(1), "half": torch.rand(40).cumsum(0).half()},
    "falling, and a view of it": lambda: dict(zip("gt", two_ways(), strict=True)),
}


def two_ways() -> tuple[Any, Any]:
    g = -torch.rand(12, 3).cumsum(0)
    return g, g.t()


@pytest.mark.parametrize("name", TENSORS)
def test_every_bit_comes_back(name: str) -> None:
    tensors = TENSORS[name]()
    before = {key: bytes_of(tensor) for key, tensor in tensors.items()}
    identities = {key: (id(t), t._version) for key, t in tensors.items()}
    inputs = Inputs(tensors)
    for seed in range(6):
        inputs.refresh(seed)
        inputs.jitter(1 + seed % 3)
        inputs.specialize(seed)
        assert {key: (id(t), t._version) for key, t in tensors.items()} == identities
    inputs.restore()
    for key, tensor in tensors.items():
        assert torch.equal(bytes_of(tensor), before[key]), key


def test_the_bytes_are_fresh_and_the_same_in_every_process() -> None:
    made = torch.randn(64, 64)
    ours, theirs = made.clone(), made.clone()
    first, second = Inputs({"x": ours}), Inputs({"x": theirs})
    seen = {digest(ours)}
    for seed in range(8):
        first.refresh(seed)
        second.refresh(seed)
        assert digest(ours) == digest(theirs)
        assert digest(ours) not in seen
        seen.add(digest(ours))


ORDERED: dict[str, Callable[[], Any]] = {
    "decays": lambda: -torch.rand(4, 64, 3).cumsum(1),
    "in half precision": lambda: torch.rand(4, 64).cumsum(1).half(),
    "in chunks": lambda: -torch.rand(2, 5, 32).cumsum(2).view(2, 160)[:, :145],
    "positions": lambda: torch.arange(100, dtype=torch.float32),
    "a transposed view": lambda: torch.rand(64, 5).cumsum(0).t(),
    "far from zero": lambda: 1e6 + torch.rand(1000).cumsum(0),
}


@pytest.mark.parametrize("name", ORDERED)
def test_what_rises_or_falls_still_does(name: str) -> None:
    x = ORDERED[name]()
    made, order = x.clone(), monotone(x)
    assert order is not None
    inputs, seen = Inputs({"x": x}), {digest(x)}
    for seed in range(8):
        inputs.refresh(seed)
        inputs.specialize(seed)
        assert digest(x) not in seen
        seen.add(digest(x))
        lines, before = (t.movedim(order["dimension"], -1) for t in (x, made))
        for part, given in zip(
            lines.split(order["chunk"] or x.numel(), -1),
            before.split(order["chunk"] or x.numel(), -1),
            strict=True,
        ):
            steps = part.diff()
            assert (steps >= 0).all() if order["step_mean"] > 0 else (steps <= 0).all()
            assert torch.equal(part[..., 0], given[..., 0])
            assert (part.amax(-1) <= given.amax(-1)).all()
            assert (part.amin(-1) >= given.amin(-1)).all()


def test_offsets_stay_whole_and_end_where_they_ended() -> None:
    offsets = torch.tensor([0, 3, 10, 11, 40, 44, 47, 90, 100, 128.0])
    inputs, steps = Inputs({"x": offsets}), offsets.diff()
    for seed in range(4):
        inputs.refresh(seed)
        assert torch.equal(offsets.diff().sort().values, steps.sort().values)
        assert not torch.equal(offsets.diff(), steps)
        assert (offsets[0], offsets[-1]) == (0, 128)


def test_each_draw_turns_the_last_bit_of_others() -> None:
    x = torch.randn(64, 64)
    inputs, plain = Inputs({"x": x}), x.clone()
    turned = []
    for draw in (1, 2, 3, 2):
        inputs.jitter(draw)
        turned.append((x.view(torch.int32) ^ plain.view(torch.int32)).bool())
        assert (x - plain).abs().max() <= 2.0**-22 * plain.abs().max()
        inputs.restore()
        assert torch.equal(x, plain)
    assert turned[0].all()
    assert torch.equal(turned[1], turned[3])
    assert all(0.4 < mask.double().mean() < 0.6 for mask in turned[1:])
    assert not torch.equal(turned[1], turned[2])


def test_an_odd_seed_moves_and_an_even_one_does_not() -> None:
    x = torch.randn(1000)
    inputs, there = Inputs({"x": x}), x.data_ptr()
    inputs.refresh(2)
    assert x.data_ptr() == there
    inputs.refresh(3)
    assert x.data_ptr() != there


def test_what_moved_lies_where_it_lay_with_the_bytes_it_has() -> None:
    x = torch.randn(1000)
    made, twin = bytes_of(x), x.clone()
    inputs, there = Inputs({"x": x}), x.data_ptr()
    inputs.refresh(3)
    Inputs({"x": twin}).refresh(3)
    inputs.move_back()
    assert x.data_ptr() == there
    assert torch.equal(bytes_of(x), bytes_of(twin))
    inputs.restore()
    assert torch.equal(bytes_of(x), made)


class Allocated(TorchDispatchMode):  # type: ignore[misc]
    """Counts the operators whose result is new memory, by whether it is as large as a tensor."""

    def __init__(self, tensor: Any) -> None:
        super().__init__()
        self._bytes = tensor.nbytes
        self.large = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
            is_new = made.untyped_storage().data_ptr() not in given
            self.large += is_new and made.nbytes > self._bytes / 8
        return made


def test_a_tensor_need_not_fit_beside_itself_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tile_agent_pytest.examining.inputs.CHUNK", 1000)
    monkeypatch.setattr("tile_agent_pytest.examining.monotone.MOST_COMPARED", 1000)
    x = torch.randn(100_000)
    made = bytes_of(x)
    with Allocated(x) as looking:
        inputs = Inputs({"x": x})
    assert looking.large == 0
    inputs.refresh(2)
    with Allocated(x) as undoing:
        inputs.restore()
    assert undoing.large == 1
    assert torch.equal(bytes_of(x), made)


def test_integers_stay_and_what_they_point_to_does_not_move() -> None:
    x, lengths = torch.randn(100), torch.arange(10)
    pointers = torch.tensor([x.data_ptr()])
    inputs, there = Inputs({"x": x, "lengths": lengths, "pointers": pointers}), x.data_ptr()
    inputs.refresh(3)
    assert x.data_ptr() == there
    assert torch.equal(lengths, torch.arange(10))


def test_what_is_written_is_kept_as_it_was() -> None:
    x = torch.randn(50)
    inputs, before = Inputs({"x": x}), x.clone()
    inputs.save(["x"])
    inputs.refresh(4)
    x.mul_(0)
    inputs.restore()
    assert torch.equal(x, before)


def test_what_a_test_has_at_hand() -> None:
    x, y = torch.ones(2), {"inner": [torch.ones(3), 7]}
    layer = torch.nn.Linear(2, 2)

    def call(scale: Any = torch.ones(4)) -> Any:  # noqa: B008
        return layer(x), y, scale

    found = reachable(call, "kernel.py")
    assert {tuple(t.shape) for t in found.values()} == {(2,), (3,), (2, 2), (4,)}
    assert reachable(call, "test_inputs.py") == {}


def test_overlapping_memory() -> None:
    x = torch.zeros(10)
    assert overlap(x, x[3:5])
    assert not overlap(x[:3], x[3:])
    assert not overlap(x, torch.zeros(10))
    assert not overlap(x[:0], x)


def test_what_is_made_up_is_the_same_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the numbers of a large tensor repeat, in memory of any order."""
    monkeypatch.setattr("tile_agent_pytest.examining.inputs.MADE_UP", 101)
    found = []
    for _ in range(2):
        tensors = {
            "x": torch.randn(16, 40).half(),
            "turned": torch.randn(40, 16).t(),
            "short": torch.randn(7),
            "eight": torch.randn(300).to(torch.float8_e4m3fn),
            "count": torch.arange(5),
        }
        inputs = Inputs(tensors)
        inputs.make_up(tensors)
        found.append({name: bytes_of(tensor) for name, tensor in tensors.items()})
        x = tensors["x"].float()
        assert float(x.min()) >= 0.5 and float(x.max()) <= 1.5 and len(x.unique()) > 50
        flat = tensors["turned"].reshape(-1)
        assert torch.equal(flat[:101], flat[101:202]) and len(flat[:101].unique()) == 101
        assert not tensors["count"].any()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_all_numbers_are_others_until_they_are_restored() -> None:
    x = torch.randn(40, 16).t()
    inputs, before = Inputs({"x": x}), x.clone()
    inputs.save(["x"])
    inputs.replace()
    assert bool((x != before).all())
    inputs.restore()
    assert torch.equal(x, before)
