"""Where a Triton kernel reads its program ids; what its launches give as a grid, `host` tells."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import binds
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source, argument, descendants

PROGRAM_ID = "triton.language.program_id"
NUM_PROGRAMS = "triton.language.num_programs"


@dataclass(frozen=True)
class ProgramIndex:
    """A call of `tl.program_id`."""

    call: cst.Call
    axis: int
    name: str | None
    """The name it is given, by a statement of its own at the top level of the kernel."""
    line: cst.SimpleStatementLine | None
    """That statement."""


def program_indices(
    source: Source, kernel: Kernel, *, counts: bool = False
) -> tuple[ProgramIndex, ...]:
    """Where a kernel asks which program it is, in the order of the file.

    Args:
        source: the file.
        kernel: one of its kernels.
        counts: whether the kernel may ask for the size of the grid as well.

    Raises:
        NotApplicable: it asks along a computed axis, in a helper, through what another file
            defines, or never; or it asks for the size of the grid, which may be part of what it
            computes.
    """
    for function in TRITON.reached(source, kernel):
        for call in descendants(function.node.body, cst.Call):
            if _asks_elsewhere(source, call):
                raise NotApplicable(
                    f"line {source.line(call)} of {function.name} asks through "
                    f"`{source.code(call.func)}`, which is not followed"
                )
        asked: tuple[str, ...] = (NUM_PROGRAMS, PROGRAM_ID)
        if function is kernel.function:
            asked = () if counts else (NUM_PROGRAMS,)
        for call in TRITON.find(source, function.node.body, asked):
            raise NotApplicable(
                f"line {source.line(call)} of {function.name} deals with the grid itself: "
                f"`{source.code(call)}`"
            )
    found = []
    for call in TRITON.find(source, kernel.function.node.body, (PROGRAM_ID,)):
        axis = argument(call, 0, "axis")
        if not isinstance(axis, cst.Integer):
            raise NotApplicable(f"line {source.line(call)} asks for a program on a computed axis")
        found.append(ProgramIndex(call, axis.evaluated_value, *naming(kernel, call)))
    if not found:
        raise NotApplicable(f"{kernel.name} never asks which program it is")
    return tuple(found)


def _asks_elsewhere(source: Source, call: cst.Call) -> bool:
    """Whether a function of another file asks, by its name: `ext.program_id(0)`."""
    wanted = {name.rpartition(".")[2] for name in (PROGRAM_ID, NUM_PROGRAMS)}
    return (
        source.code(call.func).rpartition(".")[2] in wanted
        and not TRITON.owns(source.name(call.func))
        and source.function_of(call.func) is None
    )


def naming(kernel: Kernel, call: cst.Call) -> tuple[str | None, cst.SimpleStatementLine | None]:
    """`row` and its statement, of `row = tl.program_id(0)`, if nothing else assigns `row`."""
    body = kernel.function.node.body
    for line in body.body:
        match line:
            case cst.SimpleStatementLine(
                body=[
                    cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value)
                ]
            ) if value is call:
                others = [other for other in body.body if other is not line]
                if not any(binds(other, name) for other in others):
                    return name, line
    return None, None


def one_block(source: Source, kernel: Kernel) -> str:
    """The one constant that all runs of element numbers are as long as: BLOCK.

    Raises:
        NotApplicable: there are several, or none, or it is no constant of the kernel.
    """
    found = {
        source.code(end)
        for call in TRITON.find(source, kernel.function.node.body, TRITON.iotas)
        if (end := TRITON.shapes["triton.language.arange"].of(call)) is not None
    }
    if len(found) != 1 or not found <= set(kernel.constants):
        if not found:
            raise NotApplicable(f"{kernel.name} has no tl.arange of its own, and so no block")
        listed = ", ".join(sorted(found))
        raise NotApplicable(f"{kernel.name} has no one block: {listed}")
    return found.pop()
