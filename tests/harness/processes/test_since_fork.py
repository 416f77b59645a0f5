"""What counts as imported by a worker itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tile_agent_pytest import since_fork


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """Two modules that were there before the fork, in place of all that are loaded."""
    loaded = {name: ModuleType(name) for name in ("first", "last")}
    with monkeypatch.context() as patch:
        patch.setattr(since_fork, "_last", [])
        patch.setattr(sys, "modules", loaded)
        yield loaded


def test_before_anything_is_marked_everything_counts() -> None:
    assert since_fork.names() == ["first", "last"]


def test_what_came_later_counts_in_its_order(modules: dict[str, ModuleType]) -> None:
    since_fork.mark()
    assert since_fork.names() == []
    modules |= {"kernel": ModuleType("kernel"), "helper": ModuleType("helper")}
    assert since_fork.names() == ["kernel", "helper"]


def test_a_module_that_is_loaded_again_counts(modules: dict[str, ModuleType]) -> None:
    since_fork.mark()
    del modules["first"]
    modules["first"] = ModuleType("first")
    assert since_fork.names() == ["first"]


def test_nothing_is_missed_where_the_mark_is_gone(modules: dict[str, ModuleType]) -> None:
    since_fork.mark()
    modules["kernel"] = ModuleType("kernel")
    del modules["last"]
    assert since_fork.names() == ["first", "kernel"]


def test_a_kernel_that_was_there_before_is_found_where_none_came_later(
    modules: dict[str, ModuleType],
) -> None:
    """So that an installed copy that hides the checkout is named."""
    modules["first"].__file__ = "/site-packages/kernel.py"
    since_fork.mark()
    assert since_fork.loaded_from("kernel.py") == [modules["first"]]
    modules["own"] = ModuleType("own")
    modules["own"].__file__ = "/checkout/kernel.py"
    assert since_fork.loaded_from("kernel.py") == [modules["own"]]
