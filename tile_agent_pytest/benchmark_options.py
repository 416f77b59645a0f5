"""What a project's `addopts` ask of pytest-benchmark, put aside where tests serve another end.

It is set and not given as arguments: the plugin may be installed, or loaded, or neither.
"""

from __future__ import annotations

from typing import Any


def judged(option: Any, storage: str = "") -> None:
    """Have all tests run, timed or not, and nothing made of what the fixture holds.

    Grouping, which nobody reads here, fails where a test lacks the parameter that it goes by.

    Args:
        option: pytest's own, of which some are the plugin's.
        storage: where it keeps what it keeps; empty: as it is.
    """
    if storage and hasattr(option, "benchmark_storage"):
        option.benchmark_storage = storage
    if hasattr(option, "benchmark_group_by"):
        option.benchmark_group_by = "group"
        option.benchmark_only = option.benchmark_skip = False


def called_once(option: Any) -> None:
    """Have what is timed be called once, where only that counts: it would be for minutes."""
    judged(option)
    if hasattr(option, "benchmark_disable"):
        option.benchmark_disable, option.benchmark_enable = True, False
