"""Parameters of a kernel that a change no longer reads: a stride, a length, alike in every test.

Nothing is refused for it: the compiler may know it now, or it may be given in another way.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.derived_names import is_no_variable
from agent.proposers.interface import Outline
from agent.syntax import Source, descendants


def forgotten(before: Source, after: Source) -> tuple[str, ...]:
    """A line for each parameter that a kernel of the same name read before and reads no more."""
    return tuple(_told(Outline(before), Outline(after)))


def _told(old: Outline, new: Outline) -> Iterator[str]:
    for name, kernel in new.kernels.items():
        if (earlier := old.kernels.get(name)) is None:
            continue
        was_read = _parameters(earlier.function.node) & _read(old.source, earlier.function.node)
        present = _parameters(kernel.function.node)
        for parameter in sorted(was_read & present - _read(new.source, kernel.function.node)):
            yield (
                f"`{parameter}` of {name} is no longer read: where it is another than in the "
                "tests, results may be wrong"
            )


def _parameters(function: cst.FunctionDef) -> set[str]:
    return {param.name.value for param in descendants(function.params, cst.Param)}


def _read(source: Source, function: cst.FunctionDef) -> set[str]:
    """The names whose values a function asks for."""
    targets = {part.target for part in descendants(function.body, cst.AssignTarget)}
    return {
        name.value
        for name in descendants(function.body, cst.Name)
        if name not in targets and not is_no_variable(source, name)
    }
