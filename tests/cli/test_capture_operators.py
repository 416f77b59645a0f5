"""`tile-agent capture` where what is called is no function: an operator of PyTorch's, an object."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ExitCode
from tests.support.project import Outcome, tile_agent
from tests.support.repo import git, isolate, make_repo, write
from tests.support.warm_python import warm_interpreter

pytest.importorskip("triton", reason="triton is not installed")

NO_LAUNCH = 4
DECORATORS = """\
import torch


def operator(function):
    made = torch.library.custom_op(f"theirs::{function.__name__}", function, mutates_args=())

    def call(*args, **kwargs):
        return made(*args, **kwargs)

    return call


def bare(function):
    return torch.library.custom_op(f"theirs::{function.__name__}", function, mutates_args=())


class Counted:
    def __init__(self, function):
        self.function = function
        self.calls = 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs)
"""
OPERATORS = '''\
"""Scaling, as operators and objects."""

import torch
import triton
import triton.language as tl
from kernels.decorators import Counted, bare, operator


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, factor * tl.load(x_ptr + offsets, mask=mask), mask=mask)


def _launch(x, factor):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    scale_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), factor, BLOCK=128)
    return y


@torch.library.custom_op("mine::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return _launch(x, factor)


@scaled.register_fake
def _(x, factor=2.0):
    return torch.empty_like(x)


def _keep(ctx, inputs, output):
    ctx.factor = inputs[1]


def _backward(ctx, dy):
    return _launch(dy.contiguous(), ctx.factor), None


scaled.register_autograd(_backward, setup_context=_keep)


@torch.library.custom_op("mine::plain", mutates_args=())
def plain(x: torch.Tensor) -> torch.Tensor:
    return _launch(x, 4.0)


plain.register_autograd(lambda ctx, dy: _launch(dy.contiguous(), 4.0))


@torch.library.triton_op("mine::tripled", mutates_args=())
def tripled(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    torch.library.wrap_triton(scale_kernel)[grid](x, y, x.numel(), 3.0, BLOCK=128)
    return y


@operator
def wrapped(x: torch.Tensor) -> torch.Tensor:
    return _launch(x, 5.0)


@bare
def named(x: torch.Tensor) -> torch.Tensor:
    return _launch(x, 6.0)


def by_name(x):
    return torch.ops.theirs.named(x)


@Counted
def counted(x):
    return _launch(x, 7.0)


class Scaler:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return _launch(x, self.factor)


eightfold = Scaler(8.0)


def _made(factor):
    @torch.library.custom_op(f"mine::by_{factor}", mutates_args=())
    def hidden(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        scale_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), factor, BLOCK=128)
        return y

    return hidden


def apart(x: torch.Tensor) -> torch.Tensor:
    return _launch(x, 10.0)


torch.library.custom_op("mine::apart", apart, mutates_args=())
HIDDEN = [_made(9)]


def eleven(x):
    return _launch(x, 11.0)


LIBRARY = torch.library.Library("mine_too", "DEF")
LIBRARY.define("eleven(Tensor x) -> Tensor")
LIBRARY.impl("eleven", eleven, "CompositeExplicitAutograd")
'''
KERNEL, CAPTURED = "kernels/operators.py", "tests/test_operators_captured.py"
FILES = {
    "kernels/__init__.py": "",
    "kernels/decorators.py": DECORATORS,
    KERNEL: OPERATORS,
    "tests/__init__.py": "",
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
}
USE = "import torch\nfrom kernels import operators as o\n\nx = torch.ones(200)\n"
GRADIENTS = """\
for function in (o.scaled, o.plain):
    leaf = torch.ones(200, requires_grad=True)
    for _ in range(2):
        function(leaf).sum().backward()
    assert leaf.grad.tolist() == [4.0 if function is o.scaled else 8.0] * 200
"""


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return make_repo(tmp_path, FILES)


def capture(repo: Path, script: str, python: str = "") -> Outcome:
    write(repo, {"use.py": f"{USE}{script}"})
    given = ("--kernel", KERNEL, "--json", "--", python or warm_interpreter(), "use.py")
    return tile_agent(repo, "capture", *given, env=dict(os.environ))


def entries(done: Outcome) -> dict[str, Any]:
    return {entry["name"]: entry for entry in done.json["entries"]}


def test_operators_and_objects_are_captured_by_their_names(repo: Path) -> None:
    """What the tests call is the candidate's, and what is right says the origin: none takes the
    place of the other, whoever gave it its name."""
    calls = "o.tripled(x), o.wrapped(x), o.named(x), torch.ops.mine.apart(x)\n"
    calls += "torch.ops.mine_too.eleven(x), o.by_name(x), o.counted(x), o.eightfold(x)\n"
    done = capture(repo, f"{GRADIENTS}{calls}")
    assert done.code == 0, done.err
    found = [
        "apart",
        "by_name",
        "counted",
        "eightfold",
        "eleven",
        "named",
        "plain",
        "scaled",
        "tripled",
        "wrapped",
    ]
    assert sorted(entries(done)) == found
    assert not any("outside" in note for note in done.json["notes"]), done.json
    text = (repo / CAPTURED).read_text()
    assert text.count("1 call") + text.count("2 calls, 2 backward") == len(found)
    copied = (repo / "tests" / "operators_origin.py").read_text()
    assert "torch.ops.theirs_origin.named(x)" in copied
    formatter = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", CAPTURED]
    subprocess.run([*formatter, "--line-length=100"], cwd=repo, capture_output=True, check=True)
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "-m", "captured")
    right = tile_agent(repo, "verify", "--kernel", KERNEL, "--tests", CAPTURED)
    assert (right.code, "10 correctness tests pass" in right.out) == (ExitCode.DONE, True), (
        right.err
    )
    write(repo, {KERNEL: OPERATORS.replace("y_ptr + offsets, factor *", "y_ptr + offsets, 0.5 *")})
    git(repo, "commit", "--quiet", "--all", "-m", "wrong")
    wrong = tile_agent(repo, "verify", "--kernel", KERNEL, "--tests", CAPTURED)
    assert wrong.code == ExitCode.NO_IMPROVEMENT, wrong.out
    assert "(and 9 more)" in wrong.out


def test_an_operator_is_captured_whoever_calls_it(repo: Path) -> None:
    script = "torch.ops.mine.scaled(x)\n"
    script += "with torch.inference_mode():\n    torch.ops.mine.scaled.default(x[:100], 3.0)\n"
    script += "leaf = torch.ones(50, requires_grad=True)\n"
    script += "torch.ops.mine.scaled(leaf).sum().backward()\n"
    done = capture(repo, script)
    assert done.code == 0, done.err
    text = (repo / CAPTURED).read_text()
    assert set(re.findall(r'id="([\w-]+)"', text)) == {
        "200-float32",
        "100-float32",
        "50-float32",
    }
    assert "1 call, 1 backward" in text


@pytest.mark.full
def test_an_operator_is_captured_in_a_graph_that_is_compiled_whole(repo: Path) -> None:
    script = "graph = torch.compile(lambda x: o.scaled(x) + 1, fullgraph=True, backend='eager')\n"
    script += "assert graph(x).tolist() == [3.0] * 200\ntorch.ops.mine_too.eleven(x)\n"
    done = capture(repo, script, sys.executable)
    assert done.code == 0, done.err
    assert sorted(entries(done)) == ["eleven", "scaled"]


def test_an_operator_without_a_name_in_the_file_is_told(repo: Path) -> None:
    done = capture(repo, "o.HIDDEN[0](x)\n")
    assert done.code == NO_LAUNCH
    said = "`hidden` is a torch custom op, whose calls are not recorded: call a function of "
    assert said in done.json["error"]
    done = capture(repo, "o.HIDDEN[0](x), o.counted(x)\n")
    assert done.code == 0, done.err
    assert [*entries(done)] == ["counted"]
    said = "there are others: `hidden` is a torch custom op, whose calls are not recorded"
    assert said in done.json["notes"]
