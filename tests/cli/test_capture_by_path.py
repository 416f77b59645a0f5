"""`tile-agent capture` of files that the command loads by their path, under any name.

Many tests do so where a package wants to be installed, or a file's name begins with a digit.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.project import tile_agent
from tests.support.repo import git, isolate, make_repo
from tests.support.tiers import others_full
from tests.support.warm_python import warm_interpreter

DOUBLE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * 2.0, mask=offsets < n)
"""
LAUNCH = """

def double(x):
    y = torch.empty_like(x)
    double_kernel[(1,)](x, y, x.numel(), BLOCK=64)
    return y
"""
LOAD = """\
import importlib.util
from pathlib import Path

import torch


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


"""
TEST = (
    LOAD
    + """
ops = load("made_up", "../shop/{file}")


def test_double():
    x = torch.randn(40)
    torch.testing.assert_close(ops.double(x), 2 * x)
"""
)
LAUNCHERS = (
    LOAD + 'held = load("kernels", "double.py")\ndouble_kernel = held.double_kernel\n' + LAUNCH
)


FILES = {
    "01-double.py": {"shop/01-double.py": DOUBLE + LAUNCH},
    "random.py": {"shop/random.py": DOUBLE + LAUNCH},
    "double.py": {"shop/double.py": DOUBLE, "shop/02-launch.py": LAUNCHERS},
}


@pytest.mark.parametrize("kernel", others_full(FILES))
def test_captured_tests_load_the_file_as_the_command_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    files = FILES[kernel]
    called = [*files][-1].removeprefix("shop/")
    package = {"shop/__init__.py": "import no_such_server\n"}
    test = {"tests/test_ops.py": TEST.format(file=called)}
    repo = make_repo(tmp_path, {**package, **files, **test})
    given = ("--kernel", f"shop/{kernel}")
    command = (warm_interpreter(), "-m", "pytest", "-q", "tests")
    done = tile_agent(repo, "capture", *given, "--json", "--", *command, env=dict(os.environ))
    assert done.code == 0, done.err
    assert done.json["notes"] == []
    captured = next((repo / "tests").glob("*_captured.py"))
    assert f'captured = load("made_up", "../shop/{called}")\n' in captured.read_text()
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "captured")
    judged = tile_agent(repo, "verify", *given, env=dict(os.environ))
    assert judged.code == 0, judged.err
    wrong = (repo / "shop" / kernel).read_text().replace("x * 2.0", "x * 2.1")
    (repo / "shop" / kernel).write_text(wrong)
    alone = [warm_interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(captured)]
    said = subprocess.run(alone, cwd=repo, capture_output=True, text=True, check=False).stdout
    assert "FAILED" in said, said


@pytest.mark.full
@pytest.mark.parametrize("beside", ["scale", "tests"])
def test_a_file_in_a_folder_of_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    script = "import torch\nfrom scale.scale import double\n\ndouble(torch.ones(40))\n"
    files = {"scale/scale.py": DOUBLE + LAUNCH, "script.py": script, f"{beside}/x.txt": ""}
    repo = make_repo(tmp_path, files)
    given = ("--kernel", "scale/scale.py")
    done = tile_agent(
        repo,
        "capture",
        *given,
        "--json",
        "--",
        warm_interpreter(),
        "script.py",
        env=dict(os.environ),
    )
    assert done.code == 0, done.err
    assert done.json["notes"] == []
    assert (repo / beside / "test_scale_captured.py").exists()
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "captured")
    judged = tile_agent(repo, "verify", *given, env=dict(os.environ))
    assert judged.code == 0, judged.err
