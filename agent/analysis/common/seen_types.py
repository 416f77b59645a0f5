"""What tests were seen to hand to a kernel, where its text does not tell of which type it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from agent.analysis.common.derived_names import all_values
from agent.launches import ObservedLaunch
from agent.syntax import Source, descendants

WHOLE = frozenset({"int32", "int64"})
"""Types that sums of element numbers are computed in."""
NUMBERS = ("int", "uint", "bool")


def narrow_array(
    source: Source,
    launches: Sequence[ObservedLaunch],
    kernel: str,
    parts: Iterable[cst.BaseExpression],
) -> str:
    """An array of integers of another type than `WHOLE` that some numbers may be read from.

    Args:
        source: the file.
        launches: what was seen; nothing is found where nothing was.
        kernel: its name.
        parts: the numbers, as the kernel writes them.

    Returns:
        The parameter, with its type; empty for none.
    """
    types = {
        name: tensor.dtype
        for launch in launches
        if launch.kernel == kernel
        for name, tensor in launch.tensors.items()
        if tensor.dtype.startswith(NUMBERS) and tensor.dtype not in WHOLE
    }
    left = list(parts) if types else []
    seen = set(left)
    while left:
        for name in descendants(left.pop(), cst.Name):
            if name.value in types:
                return f"{name.value} of {types[name.value]}"
            new = [value for value in all_values(source, name) if value not in seen]
            left += new
            seen.update(new)
    return ""
