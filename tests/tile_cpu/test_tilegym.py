"""The CPU execution agrees with torch on kernels that were written for GPUs by others."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ct = pytest.importorskip("cuda.tile", reason="the cuda-tile package is not installed")

from tests.tile_cpu import tilegym_core, tilegym_suites, tilegym_wheel  # noqa: E402
from tile_agent_pytest.tile_cpu import TileCpu, hook  # noqa: E402

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="tilegym caches what it asks of a GPU, and here is one"
    ),
    # What TileGym's host code warns about is not ours to mend.
    pytest.mark.filterwarnings("ignore"),
]

DOCUMENT = Path(__file__).parents[2] / "docs" / "tile_cpu.md"
CASES = {case.name: case for case in (*tilegym_core.CASES, *tilegym_suites.CASES)}
LEAST = 40
"""Kernels that have to agree."""


@pytest.fixture(scope="module")
def cpu() -> Iterator[TileCpu]:
    sys.path.insert(0, str(tilegym_wheel.folder()))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with TileCpu() as opened:
        yield opened
    torch.set_num_threads(threads)
    sys.path.pop(0)


@pytest.fixture(scope="module")
def outcomes(cpu: TileCpu) -> dict[str, tilegym_wheel.Outcome]:
    return {name: tilegym_wheel.run(case, cpu) for name, case in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_torch(name: str, outcomes: dict[str, tilegym_wheel.Outcome]) -> None:
    outcome = outcomes[name]
    if outcome.error is not None:
        raise outcome.error
    assert outcome.kernels, "no kernel was launched"


def listed(heading: str) -> set[str]:
    """The kernels, as module.name, that a table below a heading of the document names."""
    section = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \|", section, flags=re.MULTILINE)
    return {
        f"{module}.{kernel}" for module, names in rows for kernel in re.findall(r"`(\w+)`", names)
    }


def test_the_document_lists_what_agrees(outcomes: dict[str, tilegym_wheel.Outcome]) -> None:
    agree = {kernel for outcome in outcomes.values() for kernel in outcome.kernels}
    assert len(agree) >= LEAST
    assert listed("TileGym kernels that agree") == agree


def test_the_document_lists_every_other_kernel(outcomes: dict[str, tilegym_wheel.Outcome]) -> None:
    del outcomes  # by then every module of kernels is imported
    functions = {
        hook.python_function(value)
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("tilegym.")
        for value in vars(module).values()
        if isinstance(value, ct.kernel)
    }
    every = {f"{f.__module__}.{f.__qualname__}".removeprefix("tilegym.") for f in functions}
    assert every
    missing = every - listed("TileGym kernels that agree") - listed("TileGym kernels that do not")
    assert not missing
