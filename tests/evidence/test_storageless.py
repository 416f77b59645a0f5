"""Code written for a GPU reaches its launches on tensors that hold nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import torch

from tile_agent_pytest.known_values import launched
from tile_agent_pytest.storageless import storageless

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")


@pytest.fixture(autouse=True)
def _pretended() -> Iterator[None]:
    with storageless(90):
        yield
    assert not torch.cuda.is_available()


def test_a_tensor_of_a_terabyte() -> None:
    x = torch.randn(2**20, 2**18, device="cuda", dtype=torch.float32)
    assert x.is_cuda
    assert x.device == torch.device("cuda", 0)
    y = torch.empty_like(x.T.contiguous())
    assert y.shape == (2**18, 2**20)
    assert y.stride() == (2**20, 1)
    assert torch.zeros(4, device=x.device).is_cuda


@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.ones(8).cuda(),
        lambda: torch.ones(8).to("cuda"),
        lambda: torch.ones(8).to("cuda:0", torch.float16),
        lambda: torch.ones(8).to(torch.device("cuda")),
        lambda: torch.ones(8, device=torch.device("cuda", 0)),
        lambda: torch.rand(8, device="cuda", generator=torch.Generator("cuda").manual_seed(0)),
        lambda: torch.tensor([1.0, 2.0], device="cuda"),
    ],
)
def test_ways_onto_the_gpu(made: object) -> None:
    assert callable(made)
    assert made().is_cuda


def test_a_device_as_context() -> None:
    with torch.device("cuda"):
        assert torch.ones(8).is_cuda
    assert not torch.ones(8).is_cuda


def test_addresses_tell_how_a_view_is_aligned() -> None:
    x = torch.empty(64, device="cuda", dtype=torch.float16)
    assert x.data_ptr() % 256 == 0
    assert x[1:].data_ptr() % 16 == 2
    assert x[8:].data_ptr() % 16 == 0


def test_values_are_not_compared() -> None:
    x = torch.ones(4, device="cuda")
    torch.testing.assert_close(x, 2 * x)
    assert torch.allclose(x, 2 * x)
    assert x.cpu().device.type == "cpu"
    assert x.to("cpu", torch.float64).dtype == torch.float64


def test_a_value_that_does_not_exist_is_not_made_up() -> None:
    with pytest.raises(RuntimeError, match="meta"):
        torch.ones(4, device="cuda").sum().item()


def test_what_the_gpu_is() -> None:
    assert torch.cuda.get_device_capability() == (9, 0)
    assert torch.cuda.get_device_properties(0).multi_processor_count == 132
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.synchronize()
    assert torch.cuda.Event(enable_timing=True).elapsed_time(torch.cuda.Event()) > 0


def test_on_the_cpu_all_is_as_ever() -> None:
    assert torch.ones(4).sum().item() == 4
    assert torch.equal(torch.ones(4), torch.ones(4))


def test_what_an_operator_of_the_project_launches_is_launched() -> None:
    """On meta PyTorch would ask what stands in for it: its gradient and its shapes stay that."""
    called: list[str] = []

    @torch.library.custom_op("tile_agent_tests::fill", mutates_args={"y"})
    def fill(y: torch.Tensor, x: torch.Tensor) -> None:
        called.append(f"fill {tuple(y.shape)} {x.is_cuda}")

    @torch.library.custom_op("tile_agent_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x, device="cuda")
        fill(y, x)
        return y

    @torch.library.custom_op("tile_agent_tests::bare", mutates_args=())
    def bare(x: torch.Tensor) -> torch.Tensor:
        return torch.empty(x.shape[0], device=x.device)

    twice.register_fake(torch.empty_like)
    twice.register_autograd(lambda _, gradient: gradient * 2)
    x = torch.randn(8, 4, device="cuda", requires_grad=True)
    twice(x).sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    torch.ops.tile_agent_tests.fill(torch.empty(3, device="cuda"), x)
    assert bare(x.detach()).shape == (8,)
    assert called == ["fill (8, 4) True", "fill (3,) True"]


def test_so_is_what_is_registered_for_the_gpu_by_other_ways() -> None:
    """Also where something stands in for it on meta, which launches nothing."""
    called: list[str] = []

    def body(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
        def run(x: torch.Tensor) -> torch.Tensor:
            called.append(name)
            return torch.empty_like(x)

        return run

    torch.library.define("tile_agent_ways::by_impl", "(Tensor x) -> Tensor")
    torch.library.impl("tile_agent_ways::by_impl", "CUDA", body("by_impl"))
    library = torch.library.Library("tile_agent_ways", "FRAGMENT")
    library.define("by_library(Tensor x) -> Tensor")
    library.impl("by_library", body("by_library"), "CUDA")
    torch.library.register_fake("tile_agent_ways::by_library", torch.empty_like)
    torch.library.define("tile_agent_ways::anywhere", "(Tensor x) -> Tensor")
    torch.library.impl("tile_agent_ways::anywhere", "default", body("anywhere"))
    torch.library.define("tile_agent_ways::with_fake", "(Tensor x) -> Tensor")
    torch.library.impl("tile_agent_ways::with_fake", "default", body("with_fake"))
    torch.library.register_fake("tile_agent_ways::with_fake", torch.empty_like)
    torch.library.define("tile_agent_ways::on_cpu", "(Tensor x) -> Tensor")
    torch.library.impl("tile_agent_ways::on_cpu", "cpu", body("on_cpu"))

    @torch.library.custom_op("tile_agent_ways::own", mutates_args=())
    def own(x: torch.Tensor) -> torch.Tensor:
        called.append("elsewhere")
        return x.clone()

    own.register_kernel("cuda")(body("own on the GPU"))
    x = torch.ones(4, device="cuda")
    ways = torch.ops.tile_agent_ways
    by_name = (ways.by_impl.default, ways.by_library, ways.anywhere, ways.with_fake)
    for operator in (ways.by_impl, *by_name, own):
        assert operator(x).shape == (4,)
    with pytest.raises(NotImplementedError):
        ways.on_cpu(x)
    by_name_too = ["by_impl", "by_library", "anywhere", "with_fake"]
    assert called == ["by_impl", *by_name_too, "own on the GPU"]


def test_elements_are_known_of_small_integers_that_the_test_makes() -> None:
    target = torch.randint(0, 100, (8192,), device="cuda")
    target[5] = -100
    assert (target != -100).sum().item() == 8191
    offsets = torch.tensor([0, 5, 9, 30], device="cuda", dtype=torch.int32)
    assert (offsets[1:] - offsets[:-1]).max().item() == 21
    assert offsets.tolist() == offsets.cpu().tolist() == offsets.cuda().tolist() == [0, 5, 9, 30]
    counted = torch.arange(10).cuda()
    assert bool((counted > 3).any()) and int(counted.sum()) == 45
    counted += 1
    counted[2:4].fill_(0)
    assert counted.tolist() == [1, 2, 0, 0, 5, 6, 7, 8, 9, 10]
    assert torch.unique(counted > 4).tolist() == [False, True]
    x = torch.randn(10, 2**20, device="cuda")
    assert x[torch.nonzero(counted == 0).flatten()].shape == (2, 2**20)
    on_cpu = torch.zeros(3, dtype=torch.int64)
    on_cpu.add_(1)  # is computed once
    on_gpu = on_cpu.to("cuda")
    on_gpu.add_(1)
    assert (on_cpu.tolist(), on_gpu.tolist()) == ([1, 1, 1], [2, 2, 2])


def test_elements_are_not_known_of_what_a_kernel_or_a_large_tensor_may_have_written() -> None:
    x = torch.randn(2**21, device="cuda")
    zeros = torch.zeros(4, dtype=torch.int32, device="cuda")
    assert zeros.sum().item() == 0
    given = torch.tensor([1, 2], device="cuda")
    launched([zeros[1:], given, 3, None])
    for unknown in (
        lambda: zeros.sum().item(),
        lambda: torch.empty(4, dtype=torch.int32, device="cuda").max().item(),
        lambda: x.sum().item(),
        lambda: int(x.argmax()),
        lambda: torch.nonzero(x > 0),
    ):
        with pytest.raises((RuntimeError, NotImplementedError)):
            unknown()
    assert given.tolist() == [1, 2]  # a kernel is given it to read
    given[0] = x.argmax()
    with pytest.raises(RuntimeError):
        given.tolist()


def test_an_unknown_write_is_seen_through_every_other_name_of_the_memory() -> None:
    unknown = torch.randn(2**21, device="cuda")[:6].to(torch.int64)
    for written in (
        lambda a: a.detach().add_(unknown),
        lambda a: a.data.copy_(unknown),
        lambda a: a[:3].add_(unknown[:3]),
        lambda a: torch.ops.aten.add_.Tensor(a, unknown),
        lambda a: setattr(a, "data", unknown),
    ):
        a = torch.arange(6, device="cuda")
        assert a.tolist() == [0, 1, 2, 3, 4, 5]
        written(a)
        with pytest.raises(RuntimeError):
            a.tolist()
    for counter in (torch.tensor([0], device="cuda"), torch.zeros(3, dtype=torch.int64).cuda()):
        launched([counter.detach()])
        with pytest.raises(RuntimeError):
            counter.tolist()


def is_known(tensor: torch.Tensor) -> bool:
    try:
        tensor.tolist()
    except NotImplementedError:
        return False
    return True


def test_what_is_given_the_memory_of_another_is_one_with_it() -> None:
    x, y = torch.zeros(3, dtype=torch.int64, device="cuda"), torch.arange(3, device="cuda")
    x.set_(y)
    assert x.tolist() == [0, 1, 2]
    x[0] = 7
    assert y.tolist() == [7, 1, 2]
    x.copy_(torch.empty_like(y))
    assert not is_known(y)
    data, z = torch.empty(2, dtype=torch.int64, device="cuda"), torch.arange(4, device="cuda")
    data.data = z[:2]
    data.copy_(torch.empty_like(data))
    assert not is_known(z)
    x.set_(torch.empty(5, dtype=torch.int64, device="cuda"))
    assert not is_known(x)


def test_whose_memory_a_storage_is_nobody_knows() -> None:
    x, y = torch.zeros(3, dtype=torch.int64, device="cuda"), torch.arange(3, device="cuda")
    x.set_(y.untyped_storage(), 0, (3,), (1,))
    x.copy_(torch.empty_like(y))
    assert not is_known(y)
    assert torch.arange(3, device="cuda").tolist() == [0, 1, 2]


def test_a_write_is_seen_of_which_the_functions_name_does_not_tell() -> None:
    x = torch.randn(4, 3, device="cuda")
    mean = torch.arange(3, device="cuda").float()
    var = mean + 1
    functional = torch.nn.functional
    functional.batch_norm(x, mean, var, training=False)
    assert is_known(mean) and is_known(var)
    functional.batch_norm(x, mean, var, training=True)
    assert not is_known(mean) and not is_known(var)
    mean = torch.arange(3, device="cuda").float()
    functional.instance_norm(x[:, :, None].expand(4, 3, 5), mean, mean + 1, use_input_stats=True)
    assert not is_known(mean)
    rows = torch.arange(12, device="cuda").float().reshape(4, 3)
    functional.embedding(torch.empty(2, dtype=torch.int64, device="cuda"), rows, max_norm=1.0)
    assert not is_known(rows)
    layer = torch.nn.BatchNorm1d(3).cuda()
    layer(x)
    assert layer.num_batches_tracked is not None and layer.num_batches_tracked.tolist() == 1
    assert layer.running_mean is not None and not is_known(layer.running_mean)


def test_nothing_of_the_callers_changes() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(6)
    made = torch.as_tensor(array, device="cuda")
    made.add_(1)
    array[:] = 0
    assert made.tolist() == [1, 2, 3, 4, 5, 6]
    torch.manual_seed(0)
    torch.randint(0, 9, (3,), device="cuda")
    drawn = torch.rand(2)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(2))
    on_cpu = torch.arange(3)
    with contextlib.suppress(RuntimeError):
        on_cpu.add_(torch.tensor(1, device="cuda"))
    assert on_cpu.tolist() == [0, 1, 2]


def test_a_projects_operator_is_called_once() -> None:
    calls = []

    @torch.library.custom_op("known_values_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.is_cuda)
        return x + x

    twice(torch.tensor([1, 2], device="cuda"))
    assert calls == [True]


def test_a_test_may_insist_on_numbers_before_it_launches_anything() -> None:
    with storageless(90):
        for x in (torch.randn(3, 2**26, device="cuda"), torch.rand(5).cuda() / 3):
            assert not torch.isnan(x).any()
            assert not x.isinf().any().item()
            assert torch.isfinite(x.flatten()[:7]).all()
        with pytest.raises(RuntimeError):
            bool((torch.randn(3, 7, device="cuda") > 0).all())


def test_what_is_written_into_a_truth_is_written_there_alone() -> None:
    with storageless(90):
        odd = torch.isnan(torch.randn(7, device="cuda"))
        odd[2] = True
        assert odd.any()
        assert not odd.all()
