"""Where a kernel is handed to a function instead of being launched by its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from agent.syntax import Function, Source, descendants

HOLDING = (
    cst.Arg, cst.Element, cst.Tuple, cst.List, cst.DictElement, cst.Dict, cst.IfExp, cst.Subscript,
)  # fmt: skip
"""What may be around a kernel in the arguments of a call."""


@dataclass(frozen=True)
class HandOver:
    """A call that has a kernel among its arguments."""

    use: cst.Name
    """The kernel."""
    call: cst.Call
    argument: cst.Arg
    alone: bool
    """The kernel is the argument, and not held by it or one of two that it may be."""

    def parameter(self, source: Source) -> tuple[Function, str] | None:
        """The function of the file that is called, and its parameter that is the kernel."""
        called = source.function_of(self.call.func)
        if called is None or not self.alone or self.argument.star:
            return None
        listed = [parameter.name.value for parameter in called.parameters]
        if self.argument.keyword is not None:
            name = self.argument.keyword.value
            return (called, name) if name in listed else None
        place = self.call.args.index(self.argument)
        starred = any(each.star for each in self.call.args[:place])
        return None if starred or place >= len(listed) else (called, listed[place])


def hand_over(source: Source, use: cst.Name) -> HandOver | None:
    """The call that is handed what a name stands for; None where it is no argument."""
    argument: cst.Arg | None = None
    for around in source.ancestors(use):
        if argument is not None and isinstance(around, cst.Call):
            return HandOver(use, around, argument, argument.value is use)
        if argument is not None or not isinstance(around, HOLDING):
            return None
        argument = around if isinstance(around, cst.Arg) else None
    return None


def uses_of_parameter(source: Source, function: Function, name: str) -> Iterator[cst.Name]:
    """Where a function reads a parameter, or one of its inner functions does."""
    parameters = {each for each in function.parameters if each.name.value == name}
    for found in descendants(function.node.body, cst.Name):
        if found.value == name:
            assigned = {assignment.node for assignment in source.assignments(found)}
            if assigned & parameters:
                yield found


def first_hand_over(source: Source, uses: Iterable[cst.Name]) -> HandOver | None:
    """The first call that may launch what it is handed: no function of Python's own."""
    found = (hand_over(source, use) for use in uses)
    for each in found:
        if each is not None and not (source.name(each.call.func) or "").startswith("builtins."):
            return each
    return None
