"""The kernels of the tilegym wheel, unmodified, beside what torch computes in fp64."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from tile_agent_pytest.tile_cpu import TileCpu

VERSION = "1.5.1"
NAMESPACES = {
    "core": ("tilegym.ops", "tilegym.ops"),
    "liger": ("tilegym.suites.liger.ops", "tilegym.suites.liger.cutile"),
    "unsloth": ("tilegym.suites.unsloth.ops", "tilegym.suites.unsloth.cutile"),
    "flashinfer": ("tilegym.suites.flashinfer.ops", "tilegym.suites.flashinfer.cutile"),
}
"""Where the operations of a suite are, and what has to be imported for its cuTile kernels."""


ALL = 99


@dataclass(frozen=True)
class Case:
    """One operation: `call` and `reference` take the same inputs and return the same tensors."""

    name: str
    call: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Callable[[], Sequence[torch.Tensor]]
    tolerance: float = 1e-4
    gradients: int = 0
    """Of how many first inputs the gradients are compared, for random gradients of the results."""


@dataclass
class Outcome:
    kernels: set[str] = field(default_factory=set)
    """Module and name of the kernels that ran, without 'tilegym.'."""
    error: BaseException | None = None


def folder() -> Path:
    """The unpacked wheel, downloaded once a machine; skips the test where there is no index."""
    target = Path(tempfile.gettempdir()) / f"tile-agent-tests-{os.getuid()}" / f"tilegym-{VERSION}"
    if not target.is_dir():
        target.parent.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            command = ["download", f"tilegym=={VERSION}", "--no-deps", "--dest", work]
            done = subprocess.run(
                [sys.executable, "-m", "pip", *command], capture_output=True, text=True
            )
            if done.returncode:
                pytest.skip(f"the tilegym wheel cannot be downloaded: {done.stderr.strip()[-200:]}")
            unpacked = Path(work) / "unpacked"
            for wheel in Path(work).glob("*.whl"):
                zipfile.ZipFile(wheel).extractall(unpacked)
            unpacked.rename(target)
    return target


def operation(suite: str, name: str, **options: Any) -> Callable[..., Any]:
    """An operation by its public name, with the cuTile backend."""

    def call(*inputs: Any) -> Any:
        module, backend = NAMESPACES[suite]
        importlib.import_module(backend)
        return getattr(importlib.import_module(module), name)(*inputs, backend="cutile", **options)

    return call


def internal(module: str, name: str, **options: Any) -> Callable[..., Any]:
    """A function of a module that has no public operation."""

    def call(*inputs: Any) -> Any:
        importlib.import_module("tilegym.ops")
        return getattr(importlib.import_module(f"tilegym.{module}"), name)(*inputs, **options)

    return call


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Standard normal values; what they are follows from the shape."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype).to("cuda")


def half(*shape: int) -> torch.Tensor:
    return normal(*shape, dtype=torch.float16)


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in tensors(item)]
    return []


def run(case: Case, cpu: TileCpu) -> Outcome:
    """Run the operation and its reference; an error is a value."""
    outcome = Outcome()
    before = len(cpu.launched)
    try:
        _compare(case)
    except Exception as problem:
        outcome.error = problem
    outcome.kernels = {name.removeprefix("tilegym.") for name in cpu.launched[before:]}
    return outcome


def _compare(case: Case) -> None:
    inputs = list(case.inputs())
    given = [x.clone() for x in inputs]
    exact = [x.double() if x.is_floating_point() else x for x in inputs]
    for x in (*given[: case.gradients], *exact[: case.gradients]):
        x.requires_grad_()
    actual, expected = tensors(case.call(*given)), tensors(case.reference(*exact))
    assert len(actual) == len(expected) > 0
    if case.gradients:
        upstream = [torch.randn(y.shape, device="cuda") for y in expected]
        for results in (actual, expected):
            pairs = zip(results, upstream, strict=True)
            torch.autograd.backward(results, [g.to(y.dtype).clone() for y, g in pairs])
        actual = actual + [x.grad for x in given[: case.gradients]]
        expected = expected + [x.grad for x in exact[: case.gradients]]
    for mine, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(
            mine.double(), theirs.double(), rtol=case.tolerance, atol=case.tolerance
        )
