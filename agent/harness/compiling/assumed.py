"""Failed compiles that say nothing of the code, since a value in them was assumed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.analysis.cutile.signature import ASSUMED
from agent.evidence.model import CompiledLaunch, NotCompiled, Result

_OF_SHAPES = re.compile(r"\bTypeCheckingError: .*(\bshape|reshape|broadcast)", re.IGNORECASE)
"""What cuda-tile says of tiles whose sizes do not fit: `Cannot reshape (1, 64) to (1, 8, 16)`."""


def is_unjudged(error: str | None, assumed: Sequence[str]) -> bool:
    """Whether sizes do not fit that may well fit with the values of a launch.

    Args:
        error: the compiler's line.
        assumed: the constants whose values were assumed.
    """
    return bool(assumed) and error is not None and _OF_SHAPES.search(error) is not None


def in_words(kernel: str, assumed: Sequence[str], file: str) -> str:
    """That a kernel cannot be judged, and what gives it its values."""
    return (
        f"{kernel} cannot be judged: the sizes of its tiles do not fit where {', '.join(assumed)} "
        "are assumed, and this file does not tell them. A test that calls it does: "
        f"tile-agent explain --kernel {file} --tests FILE compiles what the test launches, "
        "pytest --tile-cpu FILE runs it"
    )


def unjudged_results(results: Sequence[Result]) -> tuple[NotCompiled, ...]:
    """Those that were compiled as the source suggests, with sizes that do not fit."""
    return tuple(
        result
        for result in results
        if isinstance(result, NotCompiled)
        and not result.launch.captured
        and is_unjudged(result.reason, _assumed(result.launch))
    )


def reasons(results: Sequence[NotCompiled], file: str) -> tuple[str, ...]:
    """Of each kernel among them once: that it cannot be judged, and what gives it its values."""
    kernels = {result.launch.kernel: _assumed(result.launch) for result in results}
    return tuple(in_words(kernel, assumed, file) for kernel, assumed in kernels.items())


def _assumed(launch: CompiledLaunch) -> list[str]:
    """The constants among what the compiler was told that nothing in the file tells."""
    given = launch.arguments
    return [name for name, told in given if told.startswith("= ") and f" ({ASSUMED}" in told]
