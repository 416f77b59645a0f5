"""One fork server for all tests of the harness: it costs seconds to start and nothing to share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.harness.processes.fork_server import ForkServer
from tests.support.workers import Project, start_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """A running fork server, whose parent had secrets in its environment."""
    log = tmp_path_factory.mktemp("server") / "server.log"
    secrets = {"OPENAI_API_KEY": "hush-1", "HF_TOKEN": "hush-2", "MY_PASSWORD": "hush-3"}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PYTEST_")]:
            patch.delenv(name)  # a worker of pytest-xdist would pass for one to pytest-benchmark
        for name, value in secrets.items():
            patch.setenv(name, value)
        running = start_server(log, python=sys.executable, TRITON_INTERPRET="1")
    with running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A small project whose one test passes."""
    return Project(tmp_path / "project")
