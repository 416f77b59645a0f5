"""What a cuTile kernel is compiled with: branches that a constant of the launch decides.

A branch that is left out may use an array that the launch does not have: it is given None, or some
other array in its place.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.purity import is_pure
from agent.analysis.common.reaching_definitions import definition
from agent.syntax import Source, descendants

_ATOMS = (cst.Name, cst.Attribute, cst.Subscript, cst.Call, cst.Integer)
Branch = tuple[cst.BaseExpression, bool]
"""A test, and what it has to be."""


class NotTold(Exception):
    """The host cannot tell whether a branch is compiled; the message says why."""


def branches_around(source: Source, node: cst.CSTNode) -> Iterator[Branch]:
    """The branches that a node of a kernel stands in, the outermost last."""
    child = node
    for parent in source.ancestors(node):
        match parent:
            case cst.FunctionDef():
                return
            case cst.If() | cst.IfExp() if child is parent.body:
                yield parent.test, True
            case cst.If() | cst.IfExp() if child is parent.orelse:
                yield parent.test, False
        child = parent


def is_compiled(source: Source, kernel: Kernel, launch: Launch, branch: Branch) -> str:
    """The host's condition for a branch to be compiled; empty where it always is.

    A test that is not known before the kernel runs leaves both of its branches in.

    Raises:
        NotTold: a constant of the launch takes part in the test, in a form that is not followed.
    """
    test, wanted = branch
    names = [name for name in descendants(test, cst.Name)
             if name.value in launch.arguments or name.value == "None"]  # fmt: skip
    if not any(n.value in kernel.constants or n.value == "None" for n in names):
        return ""
    text = _told(source, launch, test)
    if wanted:
        return "" if text == "True" else text
    return "" if text == "False" else f"not {_operand(text)}"


def _told(source: Source, launch: Launch, test: cst.BaseExpression) -> str:
    """A test of a kernel as the host says it, in a form that may stand beside `and`."""

    def part(expression: cst.BaseExpression) -> str:
        return _operand(_told(source, launch, expression))

    match test:
        case cst.Name(value="None" | "True" | "False") | cst.Integer():
            return source.code(test)
        case cst.Name(value=name):
            found, given = definition(source, name, test), launch.arguments.get(name)
            is_given = found is not None and isinstance(found.node, cst.Param)
            if is_given and given is not None and is_pure(source, given):
                text = source.code(given)
                return text if isinstance(given, (*_ATOMS, cst.Comparison)) else f"({text})"
        case cst.UnaryOperation(operator=cst.Not(), expression=inner):
            return f"not {part(inner)}"
        case cst.Comparison(left=left, comparisons=[only]):
            operator = source.code(only.operator)
            return f"{part(left)} {operator} {part(only.comparator)}"
        case cst.BooleanOperation(left=left, operator=joint, right=right):
            return f"({part(left)} {source.code(joint)} {part(right)})"
    raise NotTold(f"the host cannot tell whether `{source.code(test)}`")


def _operand(text: str) -> str:
    parsed = cst.parse_expression(text)
    return text if isinstance(parsed, _ATOMS) or parsed.lpar else f"({text})"
