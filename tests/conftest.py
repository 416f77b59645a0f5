"""The order of the tests, and what they share."""

from __future__ import annotations

import gc
import itertools
import os
import re
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from agent.cli.main import ALLOCATED_BEFORE_COLLECTION
from tests.support import tiers, warm_python


def pytest_addoption(parser: pytest.Parser) -> None:
    """A limit for all tests together: what has not begun by then is skipped, and says so."""
    parser.addoption("--until", type=float, metavar="SECONDS", help="of the clock that began 1970")


def pytest_configure(config: pytest.Config) -> None:
    """What has made its imports serves all workers of xdist.

    Each test has one processor, if that: threads that wait for a second one to do its half of a
    small tensor do so in a loop, which took a quarter of all processor time. How fast a loaded
    machine draws examples says nothing of the code.
    """
    too_slow = [HealthCheck.too_slow]
    settings.register_profile("loaded", deadline=None, suppress_health_check=too_slow)
    settings.load_profile("loaded")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if config.getoption("numprocesses", None):
        warm_python.share()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is imported and collected stays: to look for garbage took a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Runs on a GPU first: they blame this process, too, once a test has used the GPU in it."""
    if config.getoption("--until"):
        items[:] = tiers.turned(items)
    items.sort(key=lambda item: item.get_closest_marker("gpu_run") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Nothing begins after its time."""
    until: float | None = item.config.getoption("--until")
    if until is not None and time.time() > until:
        pytest.skip(tiers.LEFT)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: it is not walked again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(ALLOCATED_BEFORE_COLLECTION)


_numbers = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the test's, in one that few share.

    A session makes thousands. A worker is confined by a rule for each neighbour of each folder that
    its repository is in: among 1000 each takes 9 ms more to start, among 4000 34 ms; and pytest's
    own fixture looks through all of them for the number of the next.
    """
    number = next(_numbers)
    shared = tmp_path_factory.getbasetemp() / str(number // 32)
    shared.mkdir(mode=0o700, exist_ok=True)
    path = shared / f"{re.sub('[^a-zA-Z0-9_]', '_', request.node.name)[:24]}{number}"
    path.mkdir(mode=0o700)
    return path
