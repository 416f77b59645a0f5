"""Whether captured tests need tensors of a GPU, or what says it is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.capture.gpu_guards import asks_for_gpu
from agent.on_disk import on_disk
from tests.support.repo import write

KERNEL = "pkg/ops/scale.py"
TEXT = """\
from pkg.utils import {name}


def scale(x):
    return {name}(x)
"""
UTILS = """\
from pkg.devices import on_gpu

LIMIT = 4


def checked(x):
    return _looked_at(x)


def _looked_at(x):
    assert x.is_cuda
    return x


def by_another(x):
    assert on_gpu(x)


if LIMIT:
    def fast(x):
        return x


class Apart:
    pass
"""
FILES = {
    "pkg/__init__.py": "",
    "pkg/ops/__init__.py": "",
    "pkg/utils.py": UTILS,
    "pkg/devices.py": "def on_gpu(x):\n    return x.is_cuda\n",
    "broken.py": "def f(:\n",
}


@pytest.mark.parametrize(
    ("name", "asks"), [("checked", True), ("by_another", True), ("fast", False), ("Apart", False)]
)
def test_a_guard_counts_where_it_is_reached(tmp_path: Path, name: str, asks: bool) -> None:
    text = TEXT.format(name=name)
    write(tmp_path, {**FILES, KERNEL: text})
    assert asks_for_gpu(on_disk(tmp_path, whole=True), ["."], KERNEL, text) is asks


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("def f(x):\n    assert x.is_cuda\n", True),
        ("def f(x):\n    return utils.is_cuda()\n", False),
        ("import broken\n\ndef f(x):\n    return broken.f(x)\n", False),
        ("import torch\n", False),
    ],
)
def test_a_guard_of_the_file_itself(tmp_path: Path, text: str, asks: bool) -> None:
    write(tmp_path, {**FILES, "kernel.py": text})
    assert asks_for_gpu(on_disk(tmp_path, whole=True), ["."], "kernel.py", text) is asks


def test_modules_that_import_each_other_come_to_an_end(tmp_path: Path) -> None:
    ring = {"a.py": "from b import g\n\ndef f(x):\n    return g(x)\n"}
    ring["b.py"] = "from a import f\n\ndef g(x):\n    return f(x)\n"
    write(tmp_path, ring)
    assert not asks_for_gpu(on_disk(tmp_path, whole=True), ["."], "a.py", ring["a.py"])
