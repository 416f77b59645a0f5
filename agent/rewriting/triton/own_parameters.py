"""A kernel's parameters that it changes, once its body stands in a loop."""

from __future__ import annotations

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import binds
from agent.analysis.triton.arguments import names_in
from agent.analysis.triton.program_ids import unused
from agent.rewriting.triton.edits import Edit, writing
from agent.syntax import Source, descendants


def own_parameters(
    source: Source, kernel: Kernel, variable: str
) -> tuple[dict[cst.CSTNode, Edit], list[str]]:
    """Give each round of a loop its own of a parameter that the kernel changes: `x_ptr += ...`.

    Args:
        source: the file.
        kernel: whose body becomes the loop's.
        variable: of the loop; the copies are named after it.

    Returns:
        The edits, and what each round has to say first.
    """
    body = cst.ensure_type(kernel.function.node.body, cst.IndentedBlock)
    edits: dict[cst.CSTNode, Edit] = {}
    copies: list[str] = []
    for parameter in kernel.function.parameters:
        name = parameter.name.value
        moving = [line for line in body.body if binds(line, name)]
        if not moving:
            continue
        own = unused(kernel, f"{name}_of_{variable}")
        line = moving[0]
        earlier = [s for s in body.body[: body.body.index(line)] if name in names_in(s)]
        later = body.body
        match line:
            case cst.SimpleStatementLine(
                body=[cst.AugAssign(operator=cst.AddAssign(), value=value)]
            ) if len(moving) == 1 and not earlier and name not in names_in(value):
                edits[line] = _assigning(own, f"{name} + {source.code(value)}")
                later = body.body[body.body.index(line) + 1 :]
            case cst.SimpleStatementLine(
                body=[
                    cst.Assign(
                        targets=[cst.AssignTarget(target=cst.Name(value=target))], value=value
                    )
                ]
            ) if len(moving) == 1 and not earlier and target == name:
                edits[line] = _assigning(own, source.code(value))
                later = body.body[body.body.index(line) + 1 :]
            case _:
                copies.append(f"{own} = {name}")
        for use in (use for each in later for use in descendants(each, cst.Name)):
            if use.value == name and _is_variable(source, use):
                edits[use] = writing(own)
    return edits, copies


def _assigning(own: str, value: str) -> Edit:
    line = cst.parse_statement(f"{own} = {value}")
    return lambda updated: line.with_changes(
        leading_lines=updated.leading_lines, trailing_whitespace=updated.trailing_whitespace
    )


def _is_variable(source: Source, name: cst.Name) -> bool:
    around = next(source.ancestors(name))
    if isinstance(around, cst.Attribute):
        return around.value is name
    return not (isinstance(around, cst.Arg) and around.keyword is name)
