"""One arena for all candidates, whose files are no tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from agent.environment import probe
from tests.cheats.arena import Arena, arena
from tests.support.gpu import watched

collect_ignore = ["honest", "refused", "targets"]
PAIRS = 2
PAIRS_ON_GPU = 3
"""As few as a comparison of a run takes. A memo shows in calls on fresh bytes: a pair times two,
and five are needed."""


@pytest.fixture(scope="session")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """Where kernels run in Triton's interpreter."""
    with arena(tmp_path_factory.mktemp("cheats"), pairs=PAIRS) as ours:
        yield ours


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """Where kernels run on a GPU."""
    gpu = probe().gpu
    if gpu is None:
        pytest.skip("needs an NVIDIA GPU, and NVML sees none")
    with (
        closing(watched(gpu)) as watch,
        arena(tmp_path_factory.mktemp("cheats"), pairs=PAIRS_ON_GPU, watch=watch) as ours,
    ):
        yield ours
