"""Lets a tuner restore tensors that require gradients.

The tuner of Triton restores a tensor by `copy_`, which torch refuses for a leaf that requires a
gradient, such as a parameter of a module, unless gradients are switched off. A kernel that writes
to it asks nobody.
"""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from agent.analysis.common.dialect import Launch
from agent.analysis.common.reaching_definitions import value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.aliasing import allocation
from agent.analysis.triton.host import torch_module
from agent.rewriting.common.preceding import preceded
from agent.rewriting.triton.edits import Edit
from agent.syntax import Source, descendants, keyword
from agent.tuning.imports import module_named

FUNCTION = "torch.autograd.Function"
OFF = (
    "torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad",
    "torch.autograd.inference_mode", "torch.autograd.grad_mode.no_grad",
    "torch.autograd.grad_mode.inference_mode",
)  # fmt: skip
IMPORTING = ("import triton", "from triton")
GRADLESS = frozenset({"data", "detach", "grad"})
"""Of a tensor: what requires no gradient."""


def without_gradients(
    source: Source, launch: Launch, restored: Collection[str]
) -> dict[cst.CSTNode, Edit]:
    """The edits that put a launch into `torch.no_grad()`, where a restored tensor may need it.

    Args:
        source: the file.
        launch: of a tuned kernel.
        restored: the parameters that its tuner restores.

    Raises:
        NotApplicable: the launch is no statement that can stand in one.
    """
    given = [launch.arguments[name] for name in restored if name in launch.arguments]
    if all(_requires_none(source, launch, value) for value in given) or _is_off(source, launch):
        return {}
    line = _statement(source, launch)
    torch, edits = _torch(source)

    def edit(updated: cst.SimpleStatementLine) -> cst.With:
        item = cst.WithItem(cst.parse_expression(f"{torch}.no_grad()"))
        bare = updated.with_changes(leading_lines=())
        body = cst.IndentedBlock([bare])
        return cst.With([item], body, leading_lines=updated.leading_lines)

    return edits | {line: edit}


def _torch(source: Source) -> tuple[str, dict[cst.CSTNode, Edit]]:
    """How the file spells torch, and the edits that import it where it does not.

    Raises:
        NotApplicable: it does not, and calls something else so, or imports triton in no line.
    """
    if (imported := module_named(source, "torch")) is not None:
        return imported, {}
    used = any(name.value == "torch" for name in descendants(source.module, cst.Name))
    for line in () if used else source.module.body:
        if isinstance(line, cst.SimpleStatementLine) and source.code(line).startswith(IMPORTING):
            return "torch", {line: lambda updated: preceded(updated, ["import torch"])}
    return torch_module(source, "which switches gradients off"), {}


def _requires_none(source: Source, launch: Launch, value: cst.BaseExpression) -> bool:
    """Whether a tensor is certainly no leaf that requires a gradient."""
    made = allocation(source, launch, value)
    if made is not None:
        return keyword(made, "requires_grad") is None
    match value_of(source, value):
        case cst.Attribute(attr=cst.Name(value=name)):
            return name in GRADLESS
        case cst.Call(func=cst.Attribute(attr=cst.Name(value=name))):
            return name in GRADLESS
    return False


def _is_off(source: Source, launch: Launch) -> bool:
    """Whether gradients are certainly switched off where a launch stands.

    What stands around the definition of its function says nothing of where that is called; a class
    does.
    """
    defined = False
    for around in source.ancestors(launch.node):
        match around:
            case cst.With() if not defined:
                if any(_switches_off(source, item.item) for item in around.items):
                    return True
            case cst.FunctionDef() if not defined:
                defined = True
                if any(_switches_off(source, each.decorator) for each in around.decorators):
                    return True
            case cst.ClassDef():
                return any(source.name(base.value) == FUNCTION for base in around.bases)
    return False


def _switches_off(source: Source, expression: cst.BaseExpression) -> bool:
    if isinstance(expression, cst.Call):
        off = not expression.args or source.code(expression.args[0].value) == "True"
        return off and source.name(expression.func) in OFF
    return source.name(expression) in OFF


def _statement(source: Source, launch: Launch) -> cst.SimpleStatementLine:
    """The line of a launch, which may stand by itself.

    Raises:
        NotApplicable: it follows a colon, or is part of something else.
    """
    for around in source.ancestors(launch.node):
        if isinstance(around, cst.SimpleStatementLine) and len(around.body) == 1:
            return around
        if not isinstance(around, cst.Assign | cst.Expr | cst.Return):
            break
    raise NotApplicable(f"the launch at line {source.line(launch.node)} is no statement of its own")
