"""Puts a recorder in the way of each launch of a kernel."""

from __future__ import annotations

from tile_agent_pytest.launch_functions import Wrap, launch_functions

LAUNCHING_MODULES = frozenset({"triton.runtime.jit", "triton.runtime.interpreter", "cuda.tile"})
"""What has the functions that launch, once it is imported."""
_MARK = "_tile_agent_records"


def watch_launches(wrap: Wrap) -> None:
    """Put a watch in place of what launches, wherever that is not one already.

    Args:
        wrap: makes it, of a function that launches and what is in its place now.
    """
    for launcher in launch_functions():
        original = getattr(launcher.owner, launcher.name)
        if not hasattr(original, _MARK):
            watched = wrap(launcher, original)
            setattr(watched, _MARK, True)
            setattr(launcher.owner, launcher.name, watched)
