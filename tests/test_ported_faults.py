"""What a check of a port says where nothing, or not all, could be compared."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.ported import Checked, Project, check
from agent.porting import port
from tests.support.repo import write

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("cuda.tile", reason="cuda.tile is not installed")

KERNEL = """\
import torch
import triton
import triton.language as tl


def on_accelerator(x):
    return str(x.device).startswith("cpu")


@triton.jit
def scale_kernel(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2.0, mask=i < n)


def scaled(x):
    assert on_accelerator(x)
    o = torch.empty_like(x)
    scale_kernel[(1,)](x, o, x.numel(), BLOCK=8)
    return o
"""
TESTS = """\
import torch
from scale import scaled


def test_scaled():
    for device in ("cpu", "cuda"):
        x = torch.ones(8, device=device)
        assert scaled(x).sum() == 16
"""


def checked(
    folder: Path, tests: str = TESTS, kernel: str = KERNEL, changed: tuple[str, str] = ("", "")
) -> Checked:
    """A kernel's port checked, with one text of the port in the place of another."""
    write(folder, {"scale.py": kernel, "test_scale.py": tests})
    made = port(kernel, "scale.py")
    if changed[0]:
        assert changed[0] in made.text
        made = replace(made, text=made.text.replace(*changed))
    project = Project(folder, (folder / "test_scale.py",), (folder,))
    return check(
        made, folder / "scale.py", project, made.functions,
        python=sys.executable, timeout_s=300, targets=(),
    )  # fmt: skip


def test_tensors_name_the_device_that_the_origin_saw(tmp_path: Path) -> None:
    found = checked(tmp_path)
    assert found.problems == ()
    assert found.calls == 2


def test_an_exception_without_a_message_is_told_by_its_line(tmp_path: Path) -> None:
    found = checked(tmp_path, changed=('startswith("cpu")', 'startswith("gpu")'))
    (problem,) = found.problems
    assert problem == "scaled: the port raises AssertionError at `assert on_accelerator(x)`"
    assert found.fault == "the port cannot be run as its origin can"


def test_other_results_are_told_as_such(tmp_path: Path) -> None:
    found = checked(tmp_path, changed=("* 2.0", "* 3.0"))
    assert found.fault == "the port does not agree with its origin"
