"""Finding the kernels of the benchmark, and what their folders say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.spec import describe, find
from tests.support.repo import write

REFERENCE = """\
import torch

CONFIGS = [(2, 3, torch.float32)]


def inputs(m, n, dtype):
    return (torch.ones(m, n, dtype=dtype),)


def torch_version(x):
    return x + 1


def bytes_moved(x):
    return 2 * x.nbytes
"""
KERNEL = "def add(x):\n    return x + 1\n"


def test_a_kernel_by_any_of_its_names(tmp_path: Path) -> None:
    for folder in ("cutile/add", "triton/add", "cutile/sub"):
        write(tmp_path / folder, {"reference.py": REFERENCE})
    write(tmp_path / "cutile/no_kernel", {"README.md": ""})
    keys = [spec.key for spec in find([], tmp_path)]
    assert keys == ["cutile/add", "cutile/sub", "triton/add"]
    assert [spec.key for spec in find(["add"], tmp_path)] == ["cutile/add", "triton/add"]
    assert [spec.key for spec in find(["cutile/add"], tmp_path)] == ["cutile/add"]
    assert [spec.key for spec in find(["triton", "sub"], tmp_path)] == ["cutile/sub", "triton/add"]


def test_a_name_that_no_kernel_has(tmp_path: Path) -> None:
    write(tmp_path / "cutile/add", {"reference.py": REFERENCE})
    with pytest.raises(ValueError, match="no kernel softmax; there are: cutile/add"):
        find(["add", "softmax"], tmp_path)


def test_two_versions_of_a_kernel_at_once(tmp_path: Path) -> None:
    write(tmp_path, {"cutile/add/reference.py": REFERENCE, "cutile/add/add.py": KERNEL})
    write(tmp_path, {"add.py": KERNEL.replace("x + 1", "x + 2")})
    (spec,) = find(["add"], tmp_path)
    origin, best = spec.wrapper(spec.kernel), spec.wrapper(tmp_path / "add.py")
    assert (origin(1), best(1)) == (2, 3)


def test_the_reference(tmp_path: Path) -> None:
    write(tmp_path, {"cutile/add/reference.py": REFERENCE})
    (spec,) = find(["add"], tmp_path)
    reference = spec.reference()
    inputs = reference.inputs(reference.configs[0])
    assert torch.equal(reference.torch_version(*inputs), torch.full((2, 3), 2.0))
    assert reference.work(inputs) == (48, "B")
    assert reference.experts == {}


def test_a_config_in_words() -> None:
    assert describe((16384, 4096, torch.bfloat16)) == "16384 x 4096 bfloat16"
