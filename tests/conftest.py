"""The order of the tests."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs on a GPU first: they blame this process, too, once a test has used the GPU in it."""
    items.sort(key=lambda item: item.get_closest_marker("gpu_run") is None)
