"""What `capture` says is next, as far as its tests could be tried, and where there is no GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agent.cli.capture import COMMAND_FAILED
from tests.support.project import Outcome, tile_agent
from tests.support.repo import git, isolate, make_repo, write
from tests.support.warm_python import warm_interpreter

pytest.importorskip("cuda.tile", reason="cuTile kernels are captured here")

EXAMPLE = Path(__file__).parents[2] / "examples/cutile_softmax"
PYTHON = sys.executable
PYTEST = (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider")
LAUNCHED = "import torch\nfrom softmax import softmax\nsoftmax(torch.ones(2, 9, device='cuda'))\n"
SCALE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
"""


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


@pytest.fixture
def softmax(tmp_path: Path) -> Path:
    files = ("softmax.py", "pyproject.toml", "tests/test_softmax.py")
    texts = {name: (EXAMPLE / name).read_text() for name in files}
    return make_repo(tmp_path, texts | {"launched.py": LAUNCHED})


def capture(repo: Path, kernel: str, *command: str) -> Outcome:
    given = ("capture", "--kernel", kernel, *(() if "--" in command else ("--",)), *command)
    return tile_agent(repo, *given, env=dict(os.environ))


def test_cutile_tests_on_the_cpu_become_tests_that_are_tried_there(softmax: Path) -> None:
    tests = ("tests/test_softmax.py", "-k", "test_softmax_cutile and float32")
    done = capture(softmax, "softmax.py", *PYTEST, "--tile-cpu", *tests)
    assert done.code == 0, done.err
    text = (softmax / "tests/test_softmax_captured.py").read_text()
    assert "wall time on the CPU" in text and "4x128-float32" in text
    assert "note:" not in done.out
    *_, last = done.out.splitlines()
    assert last.startswith("commit them, then, on a machine with a GPU: tile-agent run --kernel")
    _, _, here = last.partition("; here: ")
    assert here == ("python -m pytest --tile-cpu tests/test_softmax_captured.py -k 'not test_perf'")


def test_a_command_that_needs_a_gpu_is_told_of_the_cpu_execution(softmax: Path) -> None:
    done = capture(softmax, "softmax.py", PYTHON, "launched.py")
    assert done.code == COMMAND_FAILED
    *_, told = done.err.splitlines()
    assert "no GPU is visible, and `pytest --tile-cpu` alone runs such kernels" in told
    assert "tile-agent capture --kernel softmax.py -- python -m pytest --tile-cpu TESTS" in told


@pytest.mark.parametrize("verb", ["begin", "run"])
def test_a_missing_gpu_is_said_before_missing_tests(softmax: Path, verb: str) -> None:
    git(softmax, "rm", "-r", "--quiet", "tests", "launched.py")
    git(softmax, "commit", "--quiet", "--message", "no tests")
    end = tile_agent(softmax, verb, "--kernel", "softmax.py", "--yes", "--json")
    assert end.json["error"].startswith("cuTile runs on an NVIDIA GPU only, and none is visible")


def test_tests_that_could_not_be_tried_are_not_to_be_committed(tmp_path: Path) -> None:
    call = "import torch\nfrom scale import scale\nscale(torch.ones(9))\n"
    repo = make_repo(tmp_path, {"scale.py": SCALE, "call.py": call})
    write(repo, {"conftest.py": "import module_that_is_not_there\n"})
    done = capture(repo, "scale.py", warm_interpreter(), "call.py")
    assert done.code == 0, done.err
    assert "could not be found out" in done.out and "module_that_is_not_there" in done.out
    *_, last = done.out.splitlines()
    assert last == (
        "not tried yet, no run can rest on them: mend what the note tells, commit them "
        "and run them: tile-agent verify --kernel scale.py --tests test_scale_captured.py; then: "
        "tile-agent run --kernel scale.py"
    )


def test_what_is_named_next_runs_here_with_the_variables_that_were_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = "import torch\nfrom scale import scale\nscale(torch.ones(9))\n"
    asks = "import os\n\nassert os.environ['PROJECT_FLAVOUR']\n"
    repo = make_repo(tmp_path, {"scale.py": asks + SCALE, "call.py": call})
    monkeypatch.setenv("PROJECT_FLAVOUR", "sweet")
    done = capture(repo, "scale.py", warm_interpreter(), "call.py")
    assert "not tried yet" in done.out and "'PROJECT_FLAVOUR'" in done.out
    passing = ("--pass-env", "PROJECT_FLAVOUR")
    done = capture(repo, "scale.py", "--force", *passing, "--", warm_interpreter(), "call.py")
    assert done.code == 0, done.err
    *_, last = done.out.splitlines()
    run = "tile-agent run --kernel scale.py --pass-env PROJECT_FLAVOUR"
    assert last == f"commit them, then: {run}"
    git(repo, "add", ".")
    git(repo, "commit", "--quiet", "--message", "captured")
    tests = ("--tests", "test_scale_captured.py")  # as is said where the trying failed
    right = tile_agent(repo, "verify", "--kernel", "scale.py", *tests, *passing)
    assert right.out.startswith("right: "), right.err
