"""Has plain pytest keep interpreted Triton kernels within their tensors, as workers do.

A plugin for `-p`, for what tile-agent itself runs with pytest outside of a worker: the interpreter
of the tests need not have the other one installed, whose options do the same.
"""

from __future__ import annotations

import contextlib

import pytest

from tile_agent_pytest.guards import Guards


def pytest_configure(config: pytest.Config) -> None:
    """Before collection: a file may launch kernels when it is imported."""
    with contextlib.suppress(ImportError):  # without Triton nothing is interpreted
        guards = Guards()
        guards.__enter__()
        config.add_cleanup(lambda: guards.__exit__(None, None, None))
