"""Tests and scripts that put their tensors on "cuda" run in Triton's interpreter without a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.errors import ExitCode
from tests.support.project import tile_agent
from tests.support.repo import git, isolate, make_repo, write
from tests.support.warm_python import warm_interpreter

pytest.importorskip("triton", reason="triton is not installed")

KERNEL = """
import torch
import triton
import triton.language as tl
from torch.utils._triton import has_triton

SMS = torch.cuda.get_device_properties("cuda").multi_processor_count
DRIVER = triton.runtime.driver.active
FOUND = DRIVER.utils.get_device_properties(DRIVER.get_current_device())
assert FOUND["multiprocessor_count"] == SMS
WIDE = torch.cuda.get_device_capability() >= (8, 0)
assert has_triton() and torch.accelerator.current_accelerator().type == "cuda"
assert torch._C._cuda_getCurrentRawStream(0) == 0
exponential = tl.math.exp


@triton.jit
def double_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, 2 * x * exponential(0.0 * x), mask=offsets < n)


@torch.library.custom_op("mine::double", mutates_args={"x"})
def double_operator(x: torch.Tensor) -> None:
    double_on_cpu(x)


@torch.compile
def double_triton(x):
    y = torch.empty(x.shape, device="cuda").copy_(x)
    torch.ops.mine.double(y)
    return y


def double_(x):
    assert x.is_cuda
    return double_on_cpu(x)


def double_on_cpu(x):
    with torch.cuda._DeviceGuard(0), torch.cuda.device(x.device.index):
        torch.cuda.set_device(0)
        double_kernel[(triton.cdiv(x.numel(), 64),)](x, x.numel(), BLOCK=64)
    return x
"""
TESTS = """
import torch
from kernel import double_

torch.set_default_device("cuda")


def test_what_inductor_makes():
    made = torch._C._dynamo.guards._empty_strided_cuda((2, 3), (3, 1), torch.float32)
    assert made.is_cuda and made.shape == (2, 3)


def test_in_place():
    x = torch.randn(100, device="cuda")
    before, on_cpu = x.clone(), x.cpu()
    torch.testing.assert_close(double_(x), 2 * before)
    torch.testing.assert_close(on_cpu, before.cpu())  # a copy
    torch.cuda.synchronize()


def test_moved():
    kept = torch.ones(10, device="cpu")
    x = kept.to("cuda", torch.float32)
    double_(x)
    assert kept.sum() == 10 and x.sum() == 20
    y = torch.arange(5.0, requires_grad=True)
    (y.cuda() * 3).sum().backward()
    assert y.grad.tolist() == [3.0] * 5
    layer = torch.nn.Linear(4, 4).to(torch.device("cuda", 0))
    assert all(p.is_leaf for p in layer.parameters())
    assert torch.rand(3, generator=torch.Generator(device="cuda").manual_seed(1)).numel() == 3


def test_put_there_again():
    x = torch.zeros(8, device="cuda")
    assert x.cuda() is x and x.to("cuda:0") is x
    leaf = torch.randn(2, device=torch.cuda.current_device(), requires_grad=True)
    leaf.to(0).sum().backward()
    assert leaf.grad.tolist() == [1.0, 1.0]


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * torch.full((1,), 2.0, device="cuda")

    @staticmethod
    def backward(ctx, dy):
        assert dy.is_cuda
        return dy * torch.full((1,), 2.0, device="cuda") * torch.ones(1).cuda()


def test_put_there_in_a_backward_pass():
    x = torch.ones(3, device="cuda", requires_grad=True)
    Scale.apply(x).sum().backward()
    torch.autograd.backward(Scale.apply(x).sum())
    (again,) = torch.autograd.grad(Scale.apply(x).sum(), x)
    assert x.grad.tolist() == [4.0] * 3 and again.tolist() == [2.0] * 3


@torch.library.custom_op("mine::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    assert x.is_cuda
    return x * torch.full((1,), factor, device="cuda")


def scaled_backward(ctx, dy):
    return scaled(dy * torch.ones(1, device="cuda"), ctx.factor), None


def keep_factor(ctx, inputs, output):
    ctx.factor = inputs[1] * torch.ones((), device="cuda").item()


scaled.register_autograd(scaled_backward, setup_context=keep_factor)
library = torch.library.Library("mine_too", "DEF")
library.define("zeros(Tensor x) -> Tensor")
library.impl("zeros", lambda x: torch.zeros(x.shape, device=0), "CompositeExplicitAutograd")


def test_put_there_by_operators():
    x = torch.ones(3, device="cuda", requires_grad=True)
    scaled(x, 2.0).sum().backward()
    assert x.grad.tolist() == [2.0] * 3
    assert torch.ops.mine.scaled(x, 3.0).tolist() == [3.0] * 3
    assert torch.ops.mine_too.zeros(x).tolist() == [0.0] * 3


def test_timed_by_events():
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        start.record()
        double_(torch.ones(8, device="cuda:0"))
        end.record(stream)
    torch.cuda.current_stream().wait_stream(stream)
    end.synchronize()
    assert start.elapsed_time(end) > 0


def test_mixed_precision():
    layer = torch.nn.Linear(4, 4)
    for autocast in (torch.autocast("cuda"), torch.amp.autocast("cuda", dtype=torch.float16)):
        with autocast:
            assert layer(torch.ones(2, 4).half()).dtype == torch.float16
    with torch.autocast("cuda", torch.bfloat16), torch.autocast("cuda", enabled=False):
        assert layer(torch.ones(2, 4)).dtype == torch.float32


def test_perf(tile_bench):
    x = torch.ones(64, device="cuda")
    tile_bench(lambda: double_(x))
"""
LOOKS = """
import torch
from kernel import double_on_cpu

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_there_is_none():
    assert DEVICE == "cpu" and torch.cuda.device_count() == 0
    x = torch.ones(3)
    assert x.cpu() is x and not x.is_cuda and double_on_cpu(x).sum() == 6
"""


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    return make_repo(tmp_path, {"kernel.py": KERNEL, "tests/test_kernel.py": TESTS})


def test_tests_that_name_cuda_are_run(repo: Path) -> None:
    right = tile_agent(repo, "verify", "--kernel", "kernel.py")
    assert (right.code, "8 correctness tests pass" in right.out) == (ExitCode.DONE, True), right.err
    timed = tile_agent(repo, "bench", "--kernel", "kernel.py")
    assert timed.code == ExitCode.DONE, timed.err


def test_who_looks_for_a_gpu_finds_none(repo: Path) -> None:
    write(repo, {"tests/test_kernel.py": LOOKS})
    git(repo, "commit", "--quiet", "--all", "-m", "looks")
    right = tile_agent(repo, "verify", "--kernel", "kernel.py")
    assert right.code == ExitCode.DONE, right.err


def test_a_script_that_names_cuda_is_captured(repo: Path) -> None:
    script = "import triton\nimport triton.language\nimport torch\n"
    script += "from kernel import double_on_cpu\n"
    script += "double_on_cpu(torch.randn(9, device='cuda'))\n"
    script += "from kernel import double_triton\n"
    script += "double_triton(torch.randn(5, device='cuda'))\n"
    write(repo, {"use.py": script})
    given = ("--kernel", "kernel.py", "--json", "--", warm_interpreter(), "use.py")
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = tile_agent(repo, "capture", *given, env=env)
    assert done.code == ExitCode.DONE, done.err
    assert [entry["name"] for entry in done.json["entries"]] == ["double_on_cpu", "double_triton"]
    origin = (repo / "tests" / "kernel_origin.py").read_text()
    assert origin == KERNEL.replace("mine::", "mine_origin::").replace(
        "ops.mine.", "ops.mine_origin."
    )
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "-m", "captured")
    captured = ("--kernel", "kernel.py", "--tests", "tests/test_kernel_captured.py")
    right = tile_agent(repo, "verify", *captured)  # both, though one alone names triton
    assert (right.code, "2 correctness tests pass" in right.out) == (ExitCode.DONE, True), right.err
    write(repo, {"kernel.py": KERNEL.replace("2 * x *", "3 * x *")})
    git(repo, "commit", "--quiet", "--all", "-m", "wrong")
    wrong = tile_agent(repo, "verify", *captured)  # the copy has not taken its place
    assert (wrong.code, "(and 1 more)" in wrong.out) == (ExitCode.NO_IMPROVEMENT, True), wrong.out


INSISTS = """
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, 2 * x, mask=offsets < n)


def double_(x):
    assert x.is_cuda
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, x.numel(), BLOCK=64)
    return x
"""


def test_what_insists_on_a_gpu_is_captured(repo: Path) -> None:
    script = "import torch\nfrom kernel import double_\ndouble_(torch.randn(9, device='cuda'))\n"
    write(repo, {"kernel.py": INSISTS, "use.py": script})
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    given = ("--kernel", "kernel.py", "--json", "--", warm_interpreter(), "use.py")
    done = tile_agent(repo, "capture", *given, env=env)
    assert done.code == ExitCode.DONE, done.err
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "-m", "captured")
    captured = ("--kernel", "kernel.py", "--tests", "tests/test_kernel_captured.py")
    right = tile_agent(repo, "verify", *captured)
    assert (right.code, "1 correctness test passes" in right.out) == (ExitCode.DONE, True), right


def test_an_optimizer_steps(repo: Path) -> None:
    trains = """
import torch
from kernel import double_


def test_step():
    weight = torch.nn.Parameter(torch.ones(2, device="cuda"))
    optimizer = torch.optim.Adam([weight])
    (weight * double_(torch.ones(2, device="cuda"))).sum().backward()
    optimizer.step()
    assert (weight < 1).all()
"""
    write(repo, {"tests/test_kernel.py": trains})
    git(repo, "commit", "--quiet", "--all", "-m", "trains")
    right = tile_agent(repo, "verify", "--kernel", "kernel.py")
    assert right.code == ExitCode.DONE, right.err + right.out
