"""Functions that pytest collects and cannot call: a script's own, called `test_...`. Pure.

Public benchmarks have them: `def test_correctness(B, T, H, D)`, called below `__main__`. What they
take is no fixture, so that each would fail before any of its lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.harness.processes.collection import Item


def callable_ones(items: Sequence[Item]) -> tuple[Item, ...]:
    """The tests that pytest can call."""
    return tuple(item for item in items if not item.lacking)


def script_of(items: Sequence[Item]) -> str:
    """The file that calls such functions itself, perhaps; empty where every test can be called."""
    return next((item.nodeid.partition("::")[0] for item in items if item.lacking), "")


def files_with_tests(files: tuple[str, ...], items: Sequence[Item]) -> tuple[str, ...]:
    """Files and node ids without the files of which no test is left; all where no file would be."""
    lost = {item.nodeid.partition("::")[0] for item in items if item.lacking}
    lost -= {item.nodeid.partition("::")[0] for item in callable_ones(items)}
    kept = tuple(file for file in files if file.partition("::")[0] not in lost)
    return kept or files


def left_out(items: Sequence[Item]) -> list[str]:
    """A note on those that it cannot call."""
    gone = [item for item in items if item.lacking]
    if not gone:
        return []
    are = f"and {len(gone) - 1} more are" if len(gone) > 1 else "is"
    names = ", ".join(f"`{name}`" for name in gone[0].lacking)
    return [f"{gone[0].nodeid} {are} left out: pytest knows no fixture {names}"]
