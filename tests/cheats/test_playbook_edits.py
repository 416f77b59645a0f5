"""What the playbook makes of honest kernels is not refused: it is what runs are made of."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from agent.analysis.common.kernels import KernelClass
from agent.analysis.common.subject import Hardware, NotApplicable, Subject
from agent.playbook import for_backend
from agent.playbook.base import Optimization
from agent.syntax import Source
from tests.cheats.arena import Arena, target_of
from tests.cheats.edits import TARGETS
from tests.cheats.repository_kernels import SHAPES, kernels, make_target

OURS = tuple(target for target in TARGETS if not target.startswith("cutile_"))
ENTRIES = for_backend("triton")
NEIGHBOURS = 4
"""So many entries begin at the same kernel: to set up an origin takes as long as to judge an edit
of it, and tests that run one after the other share it."""
STEP = 3
"""The next ones begin so many kernels further on."""

ASKS_A_GPU = "torch.cuda.get_device_"
"""What raises where PyTorch is built for a CPU; a run there does not try such an edit."""


@cache
def subject(kernel: Path) -> Subject:
    """The file as an entry is asked about it."""
    return Subject(Source(kernel.read_text("utf-8")), KernelClass.MEMORY, Hardware())


def edited(entry: Optimization, kernel: Path) -> Iterator[str]:
    """What the entry makes of a kernel, with the parameters it would try first; if anything."""
    try:
        params = next(iter(entry.variants(subject(kernel))))
        text = entry.apply(subject(kernel), params)
    except NotApplicable:
        return
    if ASKS_A_GPU not in text:
        yield text


@pytest.fixture(scope="session")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """Kernel -> the folder with its tests."""
    made = tmp_path_factory.mktemp("kernels")
    ours = {target_of(name) / f"{name}.py": target_of(name) for name in OURS}
    return ours | {kernel: make_target(kernel, made) for kernel in kernels()}


def test_every_kernel_of_the_table_is_there() -> None:
    assert {kernel.stem for kernel in kernels()} == set(SHAPES)


@pytest.mark.full
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_is_not_refused(
    entry: Optimization, interpreted: Arena, targets: dict[Path, Path]
) -> None:
    """On the first kernel, from its own on, that it applies to."""
    every = list(targets)
    first = STEP * (ENTRIES.index(entry) // NEIGHBOURS) % len(every)
    around = (every + every)[first : first + len(every)]
    applied = ((kernel, text) for kernel in around for text in edited(entry, kernel))
    kernel, text = next(applied, (None, ""))
    if kernel is None:
        pytest.skip(f"{entry.name} applies to none of {len(targets)} kernels, or asks for a GPU")
    outcome = interpreted.judge(targets[kernel], kernel.name, text, pairs=False)
    assert outcome.decided and not outcome.refused, f"{targets[kernel].name}: {outcome}"
