"""What is new to a file: names that nothing there has, and the place of what kernels need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import libcst as cst

from agent.analysis.common.dialect import Dialect, Kernel
from agent.syntax import Source, descendants, names_in


def free_name(source: Source, wanted: str) -> str:
    """The name, or the first of `name_2`, `name_3` that the file does not use."""
    return _numbered(wanted, names_in(source.module))


def unused(kernel: Kernel, wanted: str, taken: Iterable[str] = ()) -> str:
    """A name like the wanted one that the kernel does not use."""
    return _numbered(wanted, names_in(kernel.function.node).union(taken))


def _numbered(wanted: str, used: Collection[str]) -> str:
    number, name = 1, wanted
    while name in used:
        number += 1
        name = f"{wanted}_{number}"
    return name


def first_kernel(dialect: Dialect, source: Source) -> int:
    """The number of the statement of the module that holds the first kernel."""
    kernels = {kernel.function.node for kernel in dialect.kernels(source)}
    return next(
        i
        for i, statement in enumerate(source.module.body)
        if any(node in kernels for node in descendants(statement, cst.FunctionDef))
    )


def imports_above(source: Source, place: int) -> Sequence[int]:
    """The imports of the module above one of its statements, by their numbers."""
    return [
        i
        for i, statement in enumerate(source.module.body[:place])
        if isinstance(statement, cst.SimpleStatementLine)
        and any(isinstance(part, cst.Import | cst.ImportFrom) for part in statement.body)
    ]


def part_of_number(number: str, extents: Sequence[str], axis: int) -> str:
    """A place along one axis of a grid, out of its number; the first axis counts fastest."""
    if len(extents) == 1:
        return number
    before = " * ".join(extents[:axis])
    over = f"{number} // {f'({before})' if axis > 1 else before}" if axis else number
    return over if axis == len(extents) - 1 else f"{over} % {extents[axis]}"
