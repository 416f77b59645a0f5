"""`tile-agent capture`: a command is run as it is, and what it calls becomes tests that run."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from agent.errors import ExitCode
from tests.support.project import Outcome, tile_agent
from tests.support.repo import git, isolate, make_repo, snapshot, write
from tests.support.warm_python import warm_interpreter

COMMAND_FAILED, NO_LAUNCH = 3, 4
OPERATORS = '''\
"""Scaling and gathering, in every way in which a file may offer them."""

import random

import numpy
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, factor * tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def gather_kernel(x_ptr, index_ptr, y_ptr, x_stride, n_cols, BLOCK: tl.constexpr):
    source = tl.load(index_ptr + tl.program_id(0))
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    row = tl.load(x_ptr + source * x_stride + cols, mask=mask)
    tl.store(y_ptr + tl.program_id(0) * n_cols + cols, row, mask=mask)


def _launch(x, y, factor):
    scale_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), factor, BLOCK=128)


def scale_(x, factor=2.0):
    _launch(x, x, factor)
    return x


def scale_into(x, out, *, factor):
    _launch(x, out, factor)


def gather(x, index):
    y = x.new_empty(index.numel(), x.shape[1])
    block = triton.next_power_of_2(x.shape[1])
    gather_kernel[(index.numel(),)](x, index, y, x.stride(0), x.shape[1], BLOCK=block)
    return y


def noisy(x, generator=None):
    noise = torch.rand(x.shape, generator=generator, device=x.device)
    return scale_(x + noise, factor=random.random() + numpy.random.rand())


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        y = torch.empty_like(x)
        _launch(x, y, factor)
        ctx.factor = factor
        return y

    @staticmethod
    def backward(ctx, dy):
        dx = torch.empty_like(dy)
        _launch(dy.contiguous(), dx, ctx.factor)
        return dx, None


scale = Scale.apply


class ScaleTwice(Scale):
    @staticmethod
    def forward(ctx, x, factor):
        return Scale.forward(ctx, Scale.forward(ctx, x, factor), factor)


class Scaler(torch.nn.Module):
    def __init__(self, n, factor=3.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(n))
        self.factor = factor

    def forward(self, x):
        return Scale.apply(x * self.weight, self.factor)


class Into:
    forward = scale_into


class Table:
    def __init__(self, width):
        self.width = width

    def rows(self, x, index):
        return gather(x, index)[:, : self.width]


def only_counts(n):
    return n + 1


class ScaleByLayer(torch.autograd.Function):
    """Through functions of the file, there and back; the layer is nothing that a text can make."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer = layer
        return scale_copy(x, layer.options.factor)

    @staticmethod
    def backward(ctx, dy):
        return scale_copy(dy.contiguous(), ctx.layer.options.factor), None


def scale_copy(x, factor):
    y = torch.empty_like(x)
    _launch(x, y, factor)
    return y


def scale_layer(layer, x):
    return Scale.apply(x, layer.options.factor)
'''
SCRIPT = """\
import torch
from kernels import operators
from kernels.operators import Scaler, Table, gather, scale

for n in (100, 100, 100, 64):
    operators.scale_(torch.randn(n))
operators.scale_into(x := torch.rand(30), out=torch.empty(30), factor=3.0)
operators.Into.forward(x, x, factor=-1.0)
scale(torch.randn(8, 32, requires_grad=True), 1.5).sum().backward()
operators.Scale.apply(torch.randn(4), 0.5)
Scaler(16, factor=4.0)(torch.randn(3, 16)).sum().backward()
gather(torch.randn(64, 48)[:, :40], torch.randperm(64)[:30])
Table(3).rows(torch.randn(9, 5), torch.tensor([3, 1, 2]))
operators.noisy(torch.randn(20), generator=torch.Generator().manual_seed(3))
operators.ScaleTwice.apply(torch.ones(5), 3.0).sum().item() == 45.0 or exit(9)
operators.only_counts(3)
layer = type("Layer", (), {"options": type("Options", (), {"factor": 2.5})})()
operators.scale_layer(layer, torch.randn(2, 6)).sum().item()
operators.ScaleByLayer.apply(torch.randn(7, requires_grad=True), layer).square().sum().backward()
operators.scale_layer(layer, torch.randn(2, 3, requires_grad=True)).sum().backward()
"""
TEST = """\
import pytest
import torch
from kernels.operators import gather


@pytest.mark.parametrize("rows", [4, 9])
def test_gather(rows):
    x = torch.randn(rows, 7)
    index = torch.randperm(rows)
    torch.testing.assert_close(gather(x, index), x[index])
"""
FILES = {
    "kernels/__init__.py": "",
    "kernels/operators.py": OPERATORS,
    "tests/test_gather.py": TEST,
    "use.py": SCRIPT,
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
}
KERNEL = "kernels/operators.py"
CAPTURED = "tests/test_operators_captured.py"
PYTHON = sys.executable


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return make_repo(tmp_path, FILES)


def capture(repo: Path, *command: str, options: Sequence[str] = ()) -> Outcome:
    given = ("capture", "--kernel", KERNEL, *options, "--json", "--", *command)
    return tile_agent(repo, *given, env=dict(os.environ))


def pytest_on(repo: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [warm_interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)


def cases(repo: Path) -> dict[str, list[str]]:
    """Name of a list of cases -> the ids in it."""
    text = (repo / CAPTURED).read_text()
    lists = re.findall(r"^(\w+)_CASES = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    return {name: re.findall(r' id="(.*)"', body) for name, body in lists}


def test_a_script_becomes_tests_of_every_way_to_call_the_file(repo: Path) -> None:
    before = snapshot(repo)
    done = capture(repo, warm_interpreter(), "use.py")
    assert done.code == 0, done.err
    assert {name: sorted(found) for name, found in cases(repo).items()} == {
        "SCALE_IN_PLACE": ["100-float32", "64-float32"],
        "SCALE_INTO": ["30-float32-factor=-1.0", "30-float32-factor=3.0"],
        "SCALE_APPLY_AND_BACKWARD": ["2x3-float32", "8x32-float32"],
        "SCALE_APPLY": ["2x6-float32", "4-float32"],
        "SCALE_TWICE_APPLY": ["5-float32"],
        "SCALER_AND_BACKWARD": ["3x16-float32"],
        "SCALE_COPY": ["7-float32", "7-float32-x=grad"],
        "GATHER": ["64x40-30-float32"],
        "TABLE_ROWS": ["9x5-3-float32"],
        "NOISY": ["20-float32"],
    }
    text = (repo / CAPTURED).read_text()
    ast.parse(text)
    assert "of the time, 3 calls" in text
    shares = re.findall(r"^    \(([\d.e-]+),(?: ([\d.e-]+))?\),$", text, re.MULTILINE)
    assert len(shares) == sum(entry["timed"] for entry in done.json["entries"])
    assert 0.9 < sum(float(part or 0) for share in shares for part in share) < 1.1
    assert "only_counts" not in text
    assert done.json["clock"] == "wall time on the CPU"
    assert sum(entry["share"] for entry in done.json["entries"]) == pytest.approx(1)
    assert (repo / "tests/operators_origin.py").read_text() == OPERATORS
    written = {Path(path).relative_to(repo).as_posix() for path in done.json["files"]}
    after = snapshot(repo)
    assert {name for name in after if before.get(name) != after[name]} <= written | {"tests"}


def test_a_command_calls_the_package_of_the_kernel_where_another_copy_is_installed(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = {
        "shop/__init__.py": "",
        "shop/ops/__init__.py": "",
        "shop/ops/operators.py": OPERATORS,
    }
    call = "import torch\nfrom shop.ops.operators import gather\n"
    call += "gather(torch.randn(6, 5), torch.tensor([1, 4]))\n"
    write(repo, {"benchmarks/call.py": call, **{f"src/{path}": package[path] for path in package}})
    write(repo.parent / "installed", package)
    monkeypatch.setenv("PYTHONPATH", str(repo.parent / "installed"))
    kernel = ("--kernel", "src/shop/ops/operators.py")
    command = (warm_interpreter(), "benchmarks/call.py")
    done = tile_agent(repo, "capture", *kernel, "--json", "--", *command, env=dict(os.environ))
    assert done.code == 0, done.err
    assert [entry["name"] for entry in done.json["entries"]] == ["gather"]


def test_a_script_finds_a_package_below_folders_that_are_none(repo: Path) -> None:
    """As in `conch/kernels/activation`, of which only the last says that it is a package."""
    call = "import torch\nfrom shop.kernels.copying.operators import gather\n"
    call += "gather(torch.randn(6, 5), torch.tensor([1, 4]))\n"
    place = "shop/kernels/copying"
    files = {f"{place}/__init__.py": "", f"{place}/operators.py": OPERATORS}
    write(repo, {**files, "benchmarks/call.py": call})
    given = (
        "--kernel",
        f"{place}/operators.py",
        "--json",
        "--",
        warm_interpreter(),
        "benchmarks/call.py",
    )
    done = tile_agent(repo, "capture", *given, env=dict(os.environ))
    assert done.code == 0, done.err
    text = (repo / "tests/test_operators_captured.py").read_text()
    assert "from shop.kernels.copying.operators import gather" in text


@pytest.mark.parametrize(
    "load",
    [
        "sys.path.insert(0, 'shop/ops')\nfrom operators import gather\n",
        "spec = importlib.util.spec_from_file_location('made_up', 'shop/ops/operators.py')\n"
        "made_up = sys.modules['made_up'] = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(made_up)\ngather = made_up.gather\n",
    ],
)
def test_a_file_that_is_taken_out_of_its_package(repo: Path, load: str) -> None:
    """As of lightllm, whose packages want a server when they are imported."""
    call = f"import importlib.util, sys, torch\n{load}"
    call += "gather(torch.randn(6, 5), torch.tensor([1, 4]))\n"
    packages = {f"shop/{name}__init__.py": "import no_such_server\n" for name in ("", "ops/")}
    write(repo, {**packages, "shop/ops/operators.py": OPERATORS, "bench.py": call})
    kernel = ("--kernel", "shop/ops/operators.py")
    done = tile_agent(repo, "capture", *kernel, "--json", "--", warm_interpreter(), "bench.py",
                      env=dict(os.environ))  # fmt: skip
    assert done.code == 0, done.err
    assert done.json["notes"] == []
    text = (repo / "tests/test_operators_captured.py").read_text()
    assert '/ "../shop/ops").resolve()))\nfrom operators import gather' in text
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "captured")
    alone = tile_agent(repo, "verify", *kernel, "--tests", "tests/test_operators_captured.py",
                       env=dict(os.environ))  # fmt: skip
    assert alone.code == 0, alone.err


def test_a_benchmark_of_the_files_own_is_no_entry_point(repo: Path) -> None:
    """As `testing_suite_layernorm` in unsloth's rms_layernorm.py: what it calls is recorded."""
    suite = "\n\ndef check(n, kind=torch.float32):\n    x = torch.randn(n, 5).to(kind)\n"
    suite += "    assert gather(x, torch.tensor([1, 4])).shape == (2, 5)\n"
    suite += "\n\ndef suite():\n    for n in (6, 9):\n        check(n)\n"
    write(repo, {"suite.py": OPERATORS + suite, "call.py": "import suite\nsuite.suite()\n"})
    given = ("--kernel", "suite.py", "--json", "--", warm_interpreter(), "call.py")
    done = tile_agent(repo, "capture", *given, env=dict(os.environ))
    assert done.code == 0, done.err
    assert [entry["name"] for entry in done.json["entries"]] == ["gather"]
    assert done.json["entries"][0]["cases"] == 2


def test_a_folder_named_src_may_be_the_package(repo: Path) -> None:
    call = "import torch\nfrom src.operators import gather\n"
    call += "gather(torch.randn(6, 5), torch.tensor([1, 4]))\n"
    write(repo, {"src/__init__.py": "", "src/operators.py": OPERATORS, "call.py": call})
    given = ("--kernel", "src/operators.py", "--json", "--", warm_interpreter(), "call.py")
    done = tile_agent(repo, "capture", *given, env=dict(os.environ))
    assert done.code == 0, done.err
    text = (repo / "tests/test_operators_captured.py").read_text()
    assert "from src.operators import gather" in text


def test_the_tests_are_tried_as_workers_will_run_them(repo: Path) -> None:
    typed = OPERATORS.replace("factor * tl.load", "factor.to(tl.float32) * tl.load")
    call = "import torch, typed\ntyped.scale_(torch.randn(40), 2.5)\n"
    write(repo, {"typed.py": typed, "call.py": call})
    done = tile_agent(
        repo, "capture", "--kernel", "typed.py", "--json", "--", warm_interpreter(), "call.py",
        env=dict(os.environ),
    )  # fmt: skip
    assert done.code == 0, done.err
    assert [entry["name"] for entry in done.json["entries"]] == ["scale_"]


def test_a_conftest_that_lets_no_test_run_is_left_behind(repo: Path) -> None:
    call = "import torch\nfrom kernels import operators\noperators.scale_(torch.randn(40), 2.5)\n"
    write(repo, {"tests/conftest.py": "import module_that_is_not_there\n", "call.py": call})
    command = ("capture", "--kernel", KERNEL, "--", warm_interpreter(), "call.py")
    done = tile_agent(repo, *command, env=dict(os.environ))
    assert done.code == 0, done.err
    alone = "kernels/test_operators_captured.py"
    assert f"then: tile-agent run --kernel {KERNEL} --tests {alone}" in done.out
    assert "none can be run here: tests/conftest.py:1: ModuleNotFoundError" in done.out
    assert (repo / alone).exists() and not (repo / CAPTURED).exists()


def test_a_command_that_fails_leaves_nothing(repo: Path) -> None:
    before = snapshot(repo)
    done = capture(repo, "sh", "-c", "exit 7")
    assert done.code == COMMAND_FAILED
    assert "exit code 7" in done.json["error"]
    assert capture(repo, "sh", "-c", "kill -9 $$").json["error"].count("SIGKILL") == 1
    assert snapshot(repo) == before


def test_a_python_that_is_another_than_ours_is_named(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "bin" / "python"
    write(tmp_path, {"bin/python": "#!/bin/sh\nexit 1\n"})
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}{os.pathsep}{os.environ['PATH']}")
    told = capture(repo, "python", "use.py").json["error"]
    assert f"python is {other} here: where it lacks a module, name /" in told
    assert "where it lacks" not in capture(repo, PYTHON, "-c", "1 / 0").json["error"]


def test_what_a_file_launches_while_it_is_imported_is_no_call_from_outside(repo: Path) -> None:
    write(repo, {KERNEL: f"{OPERATORS}\n\nscale_(torch.ones(4))\n"})
    called = "import torch, kernels.operators as k; k.scale_(torch.ones(9))"
    done = capture(repo, warm_interpreter(), "-c", called)
    assert done.code == 0, done.err
    assert not any("outside" in note for note in done.json["notes"]), done.json


@pytest.mark.full
def test_a_command_may_be_ended_with_what_it_has_called_until_then(repo: Path) -> None:
    write(repo, {"endless.py": "import time, use\nwhile True:\n    time.sleep(0.01)\n"})
    done = capture(
        repo, "sh", "-c", f"{PYTHON} endless.py; exit 3", options=["--stop-after-s", "25"]
    )
    assert done.code == 0, done.err
    assert "the command was ended after 25 s" in done.json["notes"]
    assert {"SCALE_COPY", "GATHER"} <= cases(repo).keys()
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run(["pgrep", "-f", "endless.py"], check=True, stdout=subprocess.DEVNULL)


def capturing_until(repo: Path, script: str, file: str) -> subprocess.Popen[str]:
    """A capture of a script as a terminal runs it, which has got as far as a file is there."""
    command = [PYTHON, "-m", "agent", "capture", "--kernel", KERNEL, "--json", "--"]
    running = subprocess.Popen(
        [*command, PYTHON, script], cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (repo / file).exists() and time.monotonic() < until:
        time.sleep(0.1)
    return running


@pytest.mark.full
@pytest.mark.parametrize("by", ["Ctrl-C", "timeout -s INT", "kill"])
def test_a_capture_that_is_interrupted_keeps_what_was_called(repo: Path, by: str) -> None:
    """Where nobody knows how long it would take; nothing is left of the command. Who is killed by
    others has not asked for tests."""
    unending = "import time, use\nopen('called', 'w')\nwhile True:\n    time.sleep(0.01)\n"
    write(repo, {"unending.py": unending})
    running = capturing_until(repo, "unending.py", "called")
    if by == "kill":
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=120)
        assert (running.returncode, (repo / CAPTURED).exists()) == (ExitCode.STOPPED, False), err
        assert "nothing was written: --stop-after-s or Ctrl-C keeps the calls" in err
        return
    if by == "timeout -s INT":
        running.send_signal(signal.SIGINT)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    assert "interrupted: the calls until now are gone on with; once more ends it" in err
    assert "Exception ignored in atexit" not in err  # it is left in peace while it ends
    assert any("the command was ended after" in note for note in json.loads(out)["notes"])
    assert {"SCALE_COPY", "GATHER"} <= cases(repo).keys()
    with pytest.raises(subprocess.CalledProcessError):
        session = str(running.pid)
        subprocess.run(["pgrep", "-s", session], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.full
def test_calls_are_kept_where_the_trying_is_interrupted(repo: Path) -> None:
    """It may hang, where the command took minutes."""
    hangs = "import time\nopen('tried', 'w')\ntime.sleep(100)\n"
    write(repo, {"tests/conftest.py": hangs})
    running = capturing_until(repo, "use.py", "tried")
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert any("not be found out (interrupted)" in note for note in json.loads(out)["notes"])
    assert {"SCALE_COPY", "GATHER"} <= cases(repo).keys()


OPERATIONS = {"abs", "all", "any", "divmod", "max", "min", "pow", "round", "sorted", "sum"}


def test_a_sum_may_be_off_by_the_last_digits_of_what_is_typical_of_a_row(repo: Path) -> None:
    """As where a product is added up in another order, and a result near zero is a difference."""
    assert capture(repo, warm_interpreter(), "use.py").code == 0
    body = ast.parse((repo / CAPTURED).read_text()).body
    called = {node.func.id for tree in body for node in ast.walk(tree)
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}  # fmt: skip
    assert called.isdisjoint(
        OPERATIONS
    )  # a kernel's file may define them, and the test import them
    own = [
        node for node in body
        if (isinstance(node, ast.FunctionDef) and node.name == "nearness")
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RTOL")
    ]  # fmt: skip
    names: dict[str, Any] = {"torch": torch}
    exec(compile(ast.Module(own, []), CAPTURED, "exec"), names)
    nearness = names["nearness"]
    half = torch.tensor([-0.25, 1e-4, float("inf"), float("nan")], dtype=torch.float16)
    assert nearness(half) == {"rtol": 1e-3, "atol": pytest.approx(2 * 2.0**-10 * 0.125, rel=1e-6)}
    assert nearness(torch.ones(3)) == {"rtol": 1.3e-6, "atol": 1e-5}
    assert nearness(torch.full((3,), 1000.0)) == {"rtol": 1.3e-6, "atol": 1000 * 2.0**-17}
    assert nearness(torch.ones(())) == {"rtol": 1.3e-6, "atol": 1e-5}
    assert nearness(torch.empty(0)) == nearness(torch.ones(3, dtype=torch.int64)) == {}
    right = torch.ones(64, 64, dtype=torch.bfloat16)
    right[3, 5] = 1000.0  # one value is no reason to let go of the others
    assert nearness(right)["atol"] == 2 * 2.0**-7
    for seed in range(4):  # float32, which sums have no more digits than
        generator = torch.Generator().manual_seed(seed)
        a, b = (torch.randn(512, 512, generator=generator) for _ in range(2))
        by_128, by_64 = (summed(a, b, block) for block in (128, 64))
        torch.testing.assert_close(by_64, by_128, **nearness(by_128))
        wrong = by_64 - a[:, :1] * b[:1] / 1000  # a thousandth of one of 512 terms
        assert not torch.allclose(wrong, by_128, **nearness(by_128))


def summed(a: torch.Tensor, b: torch.Tensor, block: int) -> torch.Tensor:
    """A product whose sums are taken block by block, as a kernel's are."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], block):
        total += a[:, k : k + block] @ b[k : k + block]
    return total


def test_a_command_that_launches_nothing_is_told_so(repo: Path) -> None:
    done = capture(repo, "true")
    assert (done.code, done.json["error"].count("no call")) == (NO_LAUNCH, 1)


def test_no_file_is_replaced_unasked(repo: Path) -> None:
    write(repo, {"tests/operators_origin.py": "mine"})
    done = capture(repo, "touch", "was-run")
    assert done.code == ExitCode.USAGE
    assert "tests/operators_origin.py exists" in done.json["error"]
    assert not (repo / "was-run").exists()


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        (["no-such-program"], [], "no-such-program cannot be run"),
        (["PYTHONPATH=src", "python"], [], "begin with `env PYTHONPATH=src`"),
        (["true"], ["--output", "tests/captured.py"], "name it so"),
        (["true"], ["--output", "nowhere/test_it.py"], "is no folder"),
    ],
)
def test_what_cannot_begin_is_refused(
    repo: Path, command: list[str], options: list[str], said: str
) -> None:
    done = capture(repo, *command, options=options)
    assert done.code == ExitCode.USAGE
    assert said in done.json["error"]


@pytest.mark.full
def test_the_written_tests_pass_and_find_what_is_wrong(repo: Path) -> None:
    assert capture(repo, warm_interpreter(), "use.py").code == 0
    done = pytest_on(repo, CAPTURED)
    assert done.returncode == 0, done.stdout
    wrong = OPERATORS.replace("return dx, None", "return dx + 1e-2, None")
    write(repo, {KERNEL: wrong.replace("[:, : self.width]", "[:, : self.width] * 1.01")})
    done = pytest_on(repo, CAPTURED, "-k", "not perf")
    failed = set(re.findall(r"FAILED .*::test_(\w+)\[", done.stdout))
    assert failed == {"scale_apply_and_backward", "scaler_and_backward", "table_rows"}


@pytest.mark.full
def test_the_written_tests_are_formatted(repo: Path) -> None:
    assert capture(repo, warm_interpreter(), "use.py").code == 0
    for command in (["format", "--check", "--line-length=100"], ["check", "--select=E,F,W,B,UP"]):
        done = subprocess.run(
            [PYTHON, "-m", "ruff", *command, "--isolated", CAPTURED],
            cwd=repo,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.full
def test_pytest_is_a_command_and_the_loop_takes_what_it_gives(repo: Path) -> None:
    command = (warm_interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    done = capture(repo, *command)
    assert done.code == 0, done.err
    assert {*cases(repo)["GATHER"]} == {"9x7-9-float32", "4x7-4-float32"}
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "Captured")
    verified = tile_agent(repo, "verify", "--kernel", KERNEL, "--json")
    assert verified.json["passed"] == 4, verified.err
    timed = tile_agent(repo, "bench", "--kernel", KERNEL, "--json")
    configs = {record["config"] for record in timed.json["records"]}
    assert configs
    assert configs <= {f"test_perf_gather[{name}]" for name in cases(repo)["GATHER"]}


def test_a_kernel_with_a_tuner_is_captured_without_a_gpu(repo: Path) -> None:
    tuned = "@triton.autotune([triton.Config({}), triton.Config({}, num_warps=2)], key=['n'])\n"
    text = OPERATORS.replace(
        "@triton.jit\ndef scale_kernel", f"{tuned}@triton.jit\ndef scale_kernel"
    )
    write(repo, {KERNEL: text})
    script = (
        "import torch\nfrom kernels.operators import scale_copy\nscale_copy(torch.ones(9), 2.0)\n"
    )
    command = ("capture", "--kernel", KERNEL, "--", warm_interpreter(), "-c", script)
    done = tile_agent(repo, *command)
    assert done.code == 0, done.err
    assert done.out.endswith(f"commit them, then: tile-agent run --kernel {KERNEL}\n")
    assert {*cases(repo)} == {"SCALE_COPY"}


@pytest.mark.full
@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_calls_of_other_processes_count_too(repo: Path, start: str) -> None:
    script = f"""\
import multiprocessing
import torch
from kernels import operators

def work(n):
    operators.scale_(torch.randn(n))

if __name__ == "__main__":
    work(8)
    context = multiprocessing.get_context("{start}")
    workers = [context.Process(target=work, args=(n,)) for n in (8, 16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""
    write(repo, {"many.py": script})
    assert capture(repo, PYTHON, "many.py").code == 0
    assert {*cases(repo)["SCALE_IN_PLACE"]} == {"8-float32", "16-float32"}
    assert "of the time, 2 calls" in (repo / CAPTURED).read_text()


BROKEN = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from kernels.operators import gather, scale_copy


class Broken(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "aten.std" in str(function):
            raise TypeError("takes exactly 25 arguments (21 given)")
        return function(*args, **(kwargs or {}))


x, index = torch.rand(8, 5), torch.tensor([2, 0, 7])
with Broken():
    for _ in range(3):
        gather(x, index)
scale_copy(torch.rand(7), 2.0)
"""


def test_a_call_that_cannot_be_described_is_told_and_takes_no_other_along(repo: Path) -> None:
    """As where a library has replaced operators of torch by its own, which fail."""
    write(repo, {"broken.py": BROKEN})
    done = capture(repo, warm_interpreter(), "broken.py")
    assert done.code == 0, done.err
    assert set(cases(repo)) == {"SCALE_COPY"}
    assert any("takes exactly 25 arguments" in note for note in done.json["notes"]), done.json


SECOND = """

def test_scale():
    x = torch.ones(40)
    assert torch.equal(scale(x, 2.0), 2 * x)


test_scale()


"What follows is another kernel."


def _negate(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, -tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


negate_kernel = triton.jit(_negate)
torch.manual_seed(0)


def negate(x: "torch.Tensor", y: Later = None) -> Never:
    y = torch.empty_like(x)
    negate_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y


if __name__ == "__main__":
    import sys

    assert __doc__ is None
    assert sys.argv[1:] == ["--all"] and __file__.endswith(sys.argv[0]), (sys.argv, __file__)
    negate(torch.ones(50))
"""


@pytest.mark.parametrize("name", ["operators.py", "2-operators.py"])
def test_the_file_itself_is_a_script_that_calls_it(repo: Path, name: str) -> None:
    """As people write one: its tests below it, at its top or guarded, and another kernel below."""
    text = f"from __future__ import annotations\n{OPERATORS}{SECOND}"
    write(repo, {f"alone/{name}": text})
    kernel, python = f"alone/{name}", sys.executable
    done = tile_agent(
        repo,
        "capture",
        "--json",
        "--kernel",
        kernel,
        "--",
        python,
        kernel,
        "--all",
        env=dict(os.environ),
    )
    assert done.code == 0, done.err
    assert {entry["name"] for entry in done.json["entries"]} == {"Scale.apply", "negate"}
    (note,) = (n for n in done.json["notes"] if "whenever it is imported" in n)
    assert "put that under `if __name__" in note
    run = pytest_on(repo, done.json["files"][0], "-k", "not perf")
    assert "2 passed" in run.stdout, run.stdout


def test_a_script_ends_as_it_would_alone(repo: Path) -> None:
    """What it says of its own error, and its exit code."""
    ends = {"1 / 0\n": 1, "raise SystemExit(7)\n": 7, "return 1\n": 1}
    for line, code in ends.items():
        write(repo, {KERNEL: f"import torch\n{OPERATORS}\n{line}"})
        alone = subprocess.run(
            [sys.executable, KERNEL], cwd=repo, env=dict(os.environ),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        done = capture(repo, sys.executable, KERNEL)
        assert (alone.returncode, done.code) == (code, COMMAND_FAILED)
        assert f"exit code {code}" in done.json["error"], done.json
        assert alone.stderr in done.err


@pytest.mark.full
def test_what_no_test_can_call_is_told(repo: Path) -> None:
    launch = "scale_kernel[(1,)](x, x, 4, 2.0, BLOCK=4)"
    write(repo, {KERNEL: f"{OPERATORS}\n\nx = torch.ones(4)\n{launch}\n"})
    done = capture(repo, warm_interpreter(), KERNEL)
    assert (done.code, "launch in a function" in done.json["error"]) == (NO_LAUNCH, True)
    write(repo, {KERNEL: OPERATORS})
    direct = "from kernels.operators import scale_kernel as k; import torch; x = torch.ones(4); "
    done = capture(repo, warm_interpreter(), "-c", f"{direct} k[(1,)](x, x, 4, 2.0, BLOCK=4)")
    assert (done.code, "launched outside of the file" in done.json["error"]) == (NO_LAUNCH, True)
    hooked = "def hooked(x, hook):\n    scale_kernel[(1,)](x, x, x.numel(), 2.0, BLOCK=128)\n"
    write(repo, {KERNEL: f"{OPERATORS}\n\n{hooked}"})
    odd = "from kernels.operators import hooked; import torch; hooked(torch.ones(3), object())"
    done = capture(repo, warm_interpreter(), "-c", odd)
    assert (done.code, "builtins.object" in done.json["error"]) == (NO_LAUNCH, True)


@pytest.mark.full
def test_the_sitecustomize_of_the_user_still_runs(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"site/sitecustomize.py": "import os; os.environ['THEIRS'] = 'ran'\n"})
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{repo}")
    check = "import os; assert os.environ['THEIRS'] == 'ran'\n"
    assert capture(repo, PYTHON, "-c", check + SCRIPT).code == 0


LAUNCHERS = """
import torch
import triton

from kernels import operators as ops
from kernels.operators import gather_kernel, scale_kernel as scale, scale_into


def scaled(x, factor=2.0):
    y = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), factor, BLOCK=128)
    return y


def rows_of(x, index):
    y = x.new_empty(index.numel(), x.shape[1])
    grid = (index.numel(),)
    ops.gather_kernel[grid](x, index, y, x.stride(0), x.shape[1], BLOCK=64)
    return y


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return scaled(x)

    @staticmethod
    def backward(ctx, dy):
        return scaled(dy.contiguous())


def both(x, out):
    scale_into(x, out, factor=1.0)


def no_launch(x):
    return x + 1
"""
USE_LAUNCHERS = """
import torch
from kernels.launchers import Doubled, both, no_launch, rows_of, scaled

scaled(torch.randn(40), factor=3.0)
rows_of(torch.randn(9, 33), torch.tensor([3, 1, 2]))
Doubled.apply(torch.randn(12, requires_grad=True)).sum().backward()
no_launch(torch.ones(3))
"""


def test_indices_are_read_without_the_library_of_their_file(
    repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Few Pythons that run kernels have it, and indices that are drawn anew are other ones."""
    use = "import torch\nfrom kernels.launchers import rows_of\n"
    use += "rows_of(torch.randn(200, 33), torch.arange(199, -1, -1).view(2, 100).t().flatten())\n"
    without = tmp_path / "without"
    write(without, {"safetensors/__init__.py": "raise ImportError('not installed')\n"})
    monkeypatch.setenv("PYTHONPATH", f"{without}{os.pathsep}{repo}")
    write(repo, {"kernels/launchers.py": LAUNCHERS, "use.py": use})
    done = capture(repo, warm_interpreter(), "use.py")
    assert done.code == 0, done.err
    assert done.json["notes"] == []  # none of its indices is drawn anew, and the tests pass
    assert (repo / CAPTURED).with_suffix(".safetensors").exists()
    assert pytest_on(repo, CAPTURED).returncode == 0


def test_calls_of_another_file_that_launches_become_tests(repo: Path) -> None:
    write(repo, {"kernels/launchers.py": LAUNCHERS, "use.py": USE_LAUNCHERS})
    done = capture(repo, warm_interpreter(), "use.py")
    assert done.code == 0, done.err
    assert cases(repo) == {
        "SCALED": ["40-float32"],
        "ROWS_OF": ["9x33-3-float32"],
        "DOUBLED_APPLY_AND_BACKWARD": ["12-float32"],
    }
    assert pytest_on(repo, CAPTURED).returncode == 0
    text = (repo / KERNEL).read_text()
    for right, wrong, test in (
        ("factor * tl.load", "1.01 * factor * tl.load", "test_doubled_apply_and_backward"),
        ("source * x_stride", "0 * x_stride", "test_rows_of"),
    ):
        assert right in text
        write(repo, {KERNEL: text.replace(right, wrong)})
        said = pytest_on(repo, CAPTURED).stdout
        assert f"FAILED {CAPTURED}::{test}[" in said, said


SCALES = """
import triton
import triton.language as tl


class Scale:
    @staticmethod
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    @triton.jit
    def forward(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        if EVEN:
            tl.store(y_ptr + offsets, 2.0 * tl.load(x_ptr + offsets))
        else:
            x = tl.load(x_ptr + offsets, mask=offsets < n)
            tl.store(y_ptr + offsets, 2.0 * x, mask=offsets < n)

    @staticmethod
    def blocks(n):
        return triton.cdiv(n, 32)
"""
OPERATOR = """
import torch
{imported}


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        n = x.numel()
        {scale}.forward[({scale}.blocks(n),)](x, y, n, BLOCK=32)
        return y

    @staticmethod
    def backward(ctx, dy):
        return 2.0 * dy
"""


@pytest.mark.parametrize(
    ("imported", "scale"),
    [
        ("import kernels", "kernels.Scale"),
        ("from kernels.operators import Scale", "Scale"),
        ("from kernels import operators as ops", "ops.Scale"),
    ],
    ids=["of a package", "by its name", "of its file"],
)
def test_kernels_in_a_class_are_launched_as_before_and_become_tests(
    repo: Path, imported: str, scale: str
) -> None:
    """As in trident, where `from trident import kernel` is followed by `kernel.RMSNorm.forward`."""
    files = {KERNEL: SCALES, "kernels/__init__.py": "from .operators import *\n"}
    files["shop/__init__.py"] = ""
    files["shop/scaled.py"] = OPERATOR.format(imported=imported, scale=scale)
    files["use.py"] = (
        "import torch\nfrom shop.scaled import Scaled\nScaled.apply(torch.randn(40))\n"
    )
    write(repo, files)
    done = capture(repo, warm_interpreter(), "use.py")
    assert done.code == 0, done.err
    assert cases(repo) == {"SCALED_APPLY": ["40-float32"]}
    assert pytest_on(repo, CAPTURED).returncode == 0
    write(repo, {KERNEL: SCALES.replace("2.0 * x", "2.01 * x")})
    said = pytest_on(repo, CAPTURED).stdout
    assert f"FAILED {CAPTURED}::test_scaled_apply[" in said, said


def test_calls_of_the_file_itself_go_before_those_of_another(repo: Path) -> None:
    call = "both(torch.ones(5), torch.ones(5))"
    write(repo, {"kernels/launchers.py": LAUNCHERS, "use.py": f"{USE_LAUNCHERS}{call}\n"})
    done = capture(repo, warm_interpreter(), "use.py")
    assert done.code == 0, done.err
    assert set(cases(repo)) == {"SCALE_INTO"}
    left_out = "kernels.launchers: calls that launch kernels of the file are left out"
    assert left_out in done.json["notes"]


def test_what_the_file_launches_for_an_object_is_none_of_another_files_launches(
    repo: Path,
) -> None:
    """A call inside that no text can make; the outer one launches by itself, and is a test."""
    of_object = "\n\ndef of_object(holder, x):\n    y = torch.empty_like(x)\n"
    of_object += "    scale_kernel[(1,)](x, y, x.numel(), holder.factor, BLOCK=128)\n"
    mixed = "\n\nclass Holder:\n    factor = 3.0\n\n\ndef mixed(x):\n"
    mixed += "    ops.of_object(Holder(), x)\n    return scaled(x)\n"
    use = "import torch\nfrom kernels.launchers import mixed\nmixed(torch.ones(40))\n"
    text = (repo / KERNEL).read_text()
    files = {KERNEL: text + of_object, "kernels/launchers.py": LAUNCHERS + mixed, "use.py": use}
    write(repo, files)
    done = capture(repo, warm_interpreter(), "use.py")
    assert done.code == 0, done.err
    assert set(cases(repo)) == {"MIXED"}


def test_what_a_third_file_launches_is_not_taken_for_a_call_of_the_second(repo: Path) -> None:
    """Its kernels could not be replaced: the test would compare a candidate with itself."""
    third = "from kernels.operators import scale_kernel\n\nBY_NAME = {'scale': [scale_kernel]}\n"
    third += "del scale_kernel\n\n\ndef launch(x, y):\n"
    third += "    BY_NAME['scale'][0][(1,)](x, y, x.numel(), 2.0, BLOCK=128)\n"
    second = "import torch\nfrom kernels import operators, third\n\n\ndef scaled(x):\n"
    second += "    y = torch.empty_like(x)\n    third.launch(x, y)\n    return y\n"
    use = "import torch\nfrom kernels.second import scaled\nscaled(torch.randn(9))\n"
    write(repo, {"kernels/third.py": third, "kernels/second.py": second, "use.py": use})
    done = capture(repo, warm_interpreter(), "use.py")
    assert (done.code, "launched outside of the file" in done.json["error"]) == (NO_LAUNCH, True)
    assert not (repo / CAPTURED).exists()


def test_calls_count_for_the_module_that_launches(repo: Path) -> None:
    second = "from kernels import launchers, operators\n\n\ndef outer(x):\n"
    second += "    return launchers.scaled(x, 4.0)\n"
    use = "import torch\nfrom kernels.second import outer\nouter(torch.randn(9))\n"
    files = {"kernels/launchers.py": LAUNCHERS, "kernels/second.py": second, "use.py": use}
    write(repo, files)
    done = capture(repo, warm_interpreter(), "use.py")
    assert done.code == 0, done.err
    assert cases(repo) == {"SCALED": ["9-float32"]}
    # a candidate that puts another kernel of its own there is found, whatever that computes
    text = (repo / KERNEL).read_text()
    write(repo, {KERNEL: f"{text}\n\nother = scale_kernel\nscale_kernel = gather_kernel\n"})
    write(repo, {"kernels/__init__.py": ""})
    assert "FAILED" in pytest_on(repo, CAPTURED).stdout


WRAPS = """
def dispatched(function):
    def run(*args, **kwargs):
        return function(*args, **kwargs)

    run.__name__ = function.__name__
    return run
"""
USE_DISPATCHED = """
import torch
from kernels.operators import scale_into

x = torch.randn(30)
scale_into(x, torch.empty_like(x), factor=2.0)
"""


def test_what_a_decorator_of_another_file_has_made_is_called(repo: Path) -> None:
    """It says of itself that it stands in that file, as those that register operators do."""
    text = (repo / KERNEL).read_text()
    assert "\ndef scale_into(" in text
    text = text.replace("\ndef scale_into(", "\n@dispatched\ndef scale_into(")
    text = text.replace("import torch\n", "import torch\nfrom kernels.wraps import dispatched\n", 1)
    write(repo, {KERNEL: text, "kernels/wraps.py": WRAPS, "use.py": USE_DISPATCHED})
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "Dispatched")
    done = capture(repo, warm_interpreter(), "use.py")
    assert done.code == 0, done.err
    assert cases(repo) == {"SCALE_INTO": ["30-float32"]}
    assert pytest_on(repo, CAPTURED).returncode == 0
