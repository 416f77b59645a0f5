"""Rewriting a small cuTile file by an entry of the playbook, and running both on the CPU."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

from agent import playbook
from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Params, Subject
from agent.rewriting.common.dead_names import without_dead_names
from agent.syntax import Source
from tests.support.tile_cpu import result_of

HEAD = "import math\n\nimport cuda.tile as ct\nimport torch\n\nTILE = 64\n\n\n@ct.kernel\n"
ROWS = "def run(x):\n    m, n = x.shape\n    y = torch.empty((m, n), dtype=x.dtype)\n"
"""Host code that allocates the result of a matrix."""
LAUNCH = "    ct.launch(torch.cuda.current_stream(), {grid}, k, ({arguments}))\n    return y\n"


def file(kernel: str, host: str, *, grid: str, arguments: str = "x, y") -> str:
    """A file with the kernel `k` and the function `run` that launches it."""
    return f"{HEAD}{kernel}\n\n{host}{LAUNCH.format(grid=grid, arguments=arguments)}"


def subject(text: str, sm: int = 0) -> Subject:
    return Subject(Source(text), KernelClass.MEMORY, Hardware(sm=sm))


def refusal(name: str, text: str, sm: int = 0) -> str:
    with pytest.raises(NotApplicable) as refused:
        playbook.get(name).variants(subject(text, sm))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def rewritten(name: str, text: str, *calls: tuple[Any, ...], folder: Path) -> str:
    """The first variant's text, after every variant gave what the original gives for all calls."""
    entry = playbook.get(name)
    variants: list[Params] = list(entry.variants(subject(text)))
    applied = [entry.apply(subject(text), params) for params in variants]
    texts = [without_dead_names(text, new) for new in applied]
    for new in texts:
        ast.parse(new)
        with pytest.raises(NotApplicable):
            entry.apply(subject(new), variants[0])
    for arguments in calls:
        expected = result_of(text, "run", arguments, folder)
        for new in texts:
            assert torch.equal(result_of(new, "run", arguments, folder), expected)
    return texts[0]
