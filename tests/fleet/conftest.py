"""Machines of Ray's for the tests of a fleet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fleet.project import Machines, machines


@pytest.fixture(scope="package")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A head alone, which runs nothing."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'tile-agent[fleet]'")
    with machines(tmp_path_factory.mktemp("machines")) as made:
        yield made


@pytest.fixture
def cluster(head: Machines) -> Iterator[Machines]:
    """The same, for nodes that are there for a test."""
    before = [*head.nodes]
    yield head
    for node in set(head.nodes) - set(before):
        head.lose(node)
