"""A kernel's parameters that it changes, once its body stands in a loop."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import binds
from agent.rewriting.common.insertion import unused
from agent.rewriting.triton.edits import Edit, writing
from agent.syntax import Source, descendants, names_in

_BINDING_CLOSER = (cst.Name, cst.Integer, cst.Call, cst.Attribute, cst.Subscript)
"""Than `+`."""


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
                edits[line] = _assigning(own, _added_to(name))
                later = body.body[body.body.index(line) + 1 :]
            case cst.SimpleStatementLine(
                body=[
                    cst.Assign(
                        targets=[cst.AssignTarget(target=cst.Name(value=target))], value=value
                    )
                ]
            ) if len(moving) == 1 and not earlier and target == name:
                edits[line] = _assigning(own, lambda value: value)
                later = body.body[body.body.index(line) + 1 :]
            case _:
                copies.append(f"{own} = {name}")
        for use in (use for each in later for use in descendants(each, cst.Name)):
            if use.value == name and _is_variable(source, use):
                edits[use] = writing(own)
    return edits, copies


def _assigning(own: str, value: Callable[[cst.BaseExpression], cst.BaseExpression]) -> Edit:
    """Assign what the line assigns or adds, with its own edits, to another name."""

    def edit(updated: cst.SimpleStatementLine) -> cst.SimpleStatementLine:
        (old,) = updated.body
        assert isinstance(old, cst.Assign | cst.AugAssign)
        target = cst.AssignTarget(cst.Name(own))
        return updated.with_changes(body=[cst.Assign([target], value(old.value))])

    return edit


def _added_to(name: str) -> Callable[[cst.BaseExpression], cst.BaseExpression]:
    def added(value: cst.BaseExpression) -> cst.BaseExpression:
        if not isinstance(value, _BINDING_CLOSER) and not (
            isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Multiply)
        ):
            parenthesis = {"lpar": [cst.LeftParen()], "rpar": [cst.RightParen()]}
            value = value if value.lpar else value.with_changes(**parenthesis)
        return cst.BinaryOperation(cst.Name(name), cst.Add(), value)

    return added


def _is_variable(source: Source, name: cst.Name) -> bool:
    around = next(source.ancestors(name))
    if isinstance(around, cst.Attribute):
        return around.value is name
    return not (isinstance(around, cst.Arg) and around.keyword is name)
