"""Gives a tuner's key a bucket of a size: the power of two that the size is not above.

A bucket is a parameter of its own, which the kernel does not read: each launch computes it from
what it gives for the size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.purity import is_pure
from agent.analysis.common.reaching_definitions import binds, value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import ROUNDING
from agent.analysis.triton.host import HostView, launches_in_sight, triton_module
from agent.analysis.triton.multiprocessors import follows_gpu
from agent.analysis.triton.tuners import key_of, tuner_of
from agent.launches import ObservedLaunch
from agent.rewriting.common.insertion import free_name
from agent.rewriting.triton.edits import Edit, giving, with_parameters
from agent.syntax import Source, descendants


@dataclass(frozen=True)
class LaunchSize:
    """A size of a launch: what a parameter is given, or how many programs an axis has."""

    name: str
    parameter: str = ""
    axis: int = 0

    def seen(self, launch: ObservedLaunch) -> int | None:
        """What it was; None where that is not known."""
        if self.parameter:
            return launch.integers.get(self.parameter)
        return launch.grid[self.axis] if self.axis < len(launch.grid) else None

    def is_whole(self, source: Source, launch: Launch) -> bool:
        """Whether nothing shows that it may be `None`, or no integer, which has no power of two."""
        given = launch.arguments.get(self.parameter) if self.parameter else None
        return given is None or _is_whole(source, launch, given)

    def given(self, source: Source, launch: Launch) -> cst.BaseExpression:
        """What a launch says it is. Raises `NotApplicable` where it cannot be said twice."""
        found = launch.arguments.get(self.parameter) if self.parameter else None
        if not self.parameter:
            found = _programs(source, launch, self.axis)
        line = source.line(launch.node)
        if found is None:
            raise NotApplicable(f"the launch at line {line} does not show {self.name}")
        if not self.is_whole(source, launch):
            raise NotApplicable(f"`{source.code(found)}` at line {line} may be no integer")
        if not is_pure(source, found, ROUNDING):
            raise NotApplicable(f"`{source.code(found)}` at line {line} may not be computed twice")
        return found


def _is_whole(source: Source, launch: Launch, given: cst.BaseExpression) -> bool:
    match value := value_of(source, given):
        case cst.Float() | cst.Name(value="None") | cst.BinaryOperation(operator=cst.Divide()):
            return False
        case cst.BinaryOperation(left=one, right=other) | cst.IfExp(body=one, orelse=other):
            return _is_whole(source, launch, one) and _is_whole(source, launch, other)
        case cst.Name(value=name):
            parameters = launch.function.parameters if launch.function is not None else ()
            return all(
                _takes_integers(source, launch, p) for p in parameters if p.name.value == name
            )
        case cst.Call():
            return source.name(value.func) != "builtins.float"
    return True


def _takes_integers(source: Source, launch: Launch, parameter: cst.Param) -> bool:
    """Whether nothing shows that a function may be given something else, and keep it."""
    assert launch.function is not None
    name, default = parameter.name.value, parameter.default
    if isinstance(default, cst.Name) and default.value == "None":
        asked = (f"{name} is None", f"not {name}")
        filled = (c for c in descendants(launch.function.node.body, cst.If)
                  if source.code(c.test) in asked and binds(c.body, name))  # fmt: skip
        return any(filled)
    said = source.code(parameter.annotation.annotation) if parameter.annotation else ""
    return (
        not isinstance(default, cst.Float)
        and "float" not in said
        and not re.search("None|Optional", said)
    )


def program_counts(source: Source, kernel: Kernel) -> tuple[LaunchSize, ...]:
    """The axes of the grid whose extent no config decides, and not the GPU alone."""
    found = []
    for axis in range(3):
        try:
            extents = [_programs(source, launch, axis) for launch in kernel.launches]
        except NotApplicable:
            continue
        if extents and all(e is not None and not isinstance(e, cst.Integer) for e in extents):
            if all(e is not None and follows_gpu(source, e) for e in extents):
                continue
            found.append(LaunchSize("programs" if axis == 0 else f"programs_{axis}", axis=axis))
    return tuple(found)


def _programs(source: Source, launch: Launch, axis: int) -> cst.BaseExpression | None:
    """The extent of a grid along an axis, where it is a number of the launch's own function."""
    grid = HostView(source, launch).grid
    if grid.meta is not None or axis >= len(grid.extents):
        return None
    if source.enclosing(grid.node) != launch.function:
        return None
    return grid.extents[axis]


def bucketed(
    source: Source, kernel: Kernel, sizes: Sequence[LaunchSize], *, instead: bool
) -> dict[cst.CSTNode, Edit]:
    """The edits that have a kernel tuned once for each bucket of these sizes.

    Args:
        source: the file.
        kernel: an autotuned kernel.
        sizes: of its launches.
        instead: the key names these parameters, and names the buckets in their place.

    Raises:
        NotApplicable: the key, or a launch, is not to be seen.
    """
    listed, names = key_of(source, tuner_of(source, kernel))
    launches = launches_in_sight(source, kernel)
    triton = triton_module(source, kernel)
    buckets = {size: free_name(source, f"{size.name}_bucket") for size in sizes}
    edits = with_parameters(source, kernel, list(buckets.values()), default="0")
    for launch in launches:
        given = {
            name: f"{triton}.next_power_of_2({source.code(size.given(source, launch))})"
            for size, name in buckets.items()
        }
        edits[launch.node] = giving(source, launch.node, given)
    by_parameter = {size.parameter: name for size, name in buckets.items()} if instead else {}
    added = [] if instead else list(buckets.values())
    kept = [by_parameter.get(name, "") for name in names]
    edits[listed] = _key(kept, added)
    return edits


def _key(renamed: Sequence[str], added: Sequence[str]) -> Edit:
    """The edit of a key's list: other names for some elements, and more behind them."""

    def edit(listed: cst.List) -> cst.List:
        first = listed.elements[0].value if listed.elements else None
        quote = first.quote if isinstance(first, cst.SimpleString) else '"'
        elements = [
            element.with_changes(value=cst.SimpleString(f"{quote}{name}{quote}"))
            if name
            else element
            for element, name in zip(listed.elements, renamed, strict=True)
        ]
        for name in added:
            more = cst.Element(cst.SimpleString(f"{quote}{name}{quote}"))
            if elements:
                last = elements[-1]
                between = elements[-2].comma if len(elements) > 1 else cst.MaybeSentinel.DEFAULT
                if not isinstance(between, cst.Comma):
                    between = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
                more = more.with_changes(comma=last.comma)
                elements[-1] = last.with_changes(comma=between)
            elements.append(more)
        return listed.with_changes(elements=elements)

    return edit
