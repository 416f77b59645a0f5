"""What a cuTile kernel calls is compiled: nothing that watches calls may take its place."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repo import write
from tile_agent_pytest.capture.call_recorder import ProcessRecorder
from tile_agent_pytest.capture.entry_points import EntryPoints
from tile_agent_pytest.device_functions import device_functions, python_function
from tile_agent_pytest.examining.calls import CallRecorder

pytest.importorskip("cuda.tile", reason="cuda-tile is not installed")

HELPERS = """
import cuda.tile as ct


def reciprocal(x):
    return ct.truediv(1.0, x)
"""
KERNEL = """
from dataclasses import dataclass

import cuda.tile as ct
import numpy

from device_only import helpers


@dataclass
class Shape:
    rows: int


SHAPE = Shape(1)
TABLE = [SHAPE]


def _sigmoid(x):
    return helpers.reciprocal(1.0 + ct.exp(-x))


def _silu(x):
    return x * _sigmoid(x)


def gated(factor):
    def scaled(x):
        return x * factor

    @ct.kernel
    def kernel(x, y, TILE: ct.Constant[int]):
        i = ct.bid(0)
        ct.store(y, (i,), scaled(_silu(ct.load(x, (i,), (TILE,)))))

    return kernel


gated_kernel = gated(2.0)


def run(x):
    return x * SHAPE.rows


def host_only(x):
    return run(x)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    package = {"__init__.py": "", "helpers.py": HELPERS, "kernel.py": KERNEL}
    write(tmp_path, {f"device_only/{name}": text for name, text in package.items()})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module("device_only.kernel")
    for name in [name for name in sys.modules if name.partition(".")[0] == "device_only"]:
        del sys.modules[name]


def test_helpers_are_found_through_calls_modules_and_closures(module: types.ModuleType) -> None:
    found = {function.__name__ for function in device_functions([module])}
    assert found == {"_silu", "_sigmoid", "reciprocal", "scaled"}
    assert python_function(module.gated_kernel).__name__ == "kernel"
    assert python_function(module.run) is None


def test_a_recorder_of_calls_leaves_them_alone(module: types.ModuleType) -> None:
    before = dict(vars(module))
    with CallRecorder("kernel.py").recording(lambda: "test_x"):
        assert {name for name in before if vars(module)[name] is not before[name]} == {
            "gated", "run", "host_only",
        }  # fmt: skip
    assert vars(module)["run"] is before["run"]


def test_a_capture_leaves_them_alone(module: types.ModuleType, tmp_path: Path) -> None:
    before = dict(vars(module))
    EntryPoints(module, ProcessRecorder(str(module.__file__), str(tmp_path))).watch()
    replaced = {name for name in before if vars(module)[name] is not before[name]}
    assert replaced == {"gated", "run", "host_only"}
