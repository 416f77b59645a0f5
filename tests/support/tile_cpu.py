"""Running the text of a cuTile file on the CPU."""

from __future__ import annotations

import importlib.util
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tile_agent_pytest.tile_cpu import TileCpu

_numbers = count()


def module_of(text: str, folder: Path) -> ModuleType:
    """The text as an imported module; cuda.tile reads a kernel's source from its file."""
    path = folder / f"kernel_{next(_numbers)}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result_of(text: str, function: str, arguments: tuple[Any, ...], folder: Path) -> torch.Tensor:
    """What a function of the text returns, blocks in an order of their own."""
    given = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    with TileCpu(seed=next(_numbers)):
        result: torch.Tensor = getattr(module_of(text, folder), function)(*given)
    return result
