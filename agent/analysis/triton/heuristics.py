"""What `@triton.heuristics` gives a kernel, and whether one may be given to all who use it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON, WRAPPERS
from agent.analysis.triton.tables import computed_by
from agent.syntax import Source, argument, assigned, descendants

ON_HOST = "triton.tools.tensor_descriptor.TensorDescriptor"
LAUNCHED_BY = ("run", "warmup")
"""Attributes that a kernel has behind a heuristic, too."""


def heuristics_of(source: Source, kernel: Kernel) -> dict[str, cst.BaseExpression]:
    """Parameter or option -> the function that gives it; of several the one that is asked last."""
    found: dict[str, cst.BaseExpression] = {}
    for decorator in kernel.function.node.decorators:
        table = computed_by(source, decorator.decorator) or {}
        found |= {name: function for name, function in table.items() if name is not None}
    return found


def described_arrays(source: Source, kernel: Kernel) -> dict[str, str]:
    """Parameter that is a descriptor which a heuristic makes -> the parameter that it describes."""
    found: dict[str, str] = {}
    for name, given in heuristics_of(source, kernel).items():
        function = source.function_of(given)
        arrays = {
            _argument_of(argument(call, 0, "base"))
            for call in descendants(function.node if function else given, cst.Call)
            if source.name(call.func) in (ON_HOST, f"{ON_HOST}.from_tensor")
        }
        if len(arrays) == 1 and (array := arrays.pop()):
            found[name] = array
    return found


def _argument_of(expression: cst.BaseExpression | None) -> str | None:
    """'x_ptr' of `args["x_ptr"]`."""
    if not isinstance(expression, cst.Subscript) or len(expression.slice) != 1:
        return None
    index = expression.slice[0].slice
    key = index.value if isinstance(index, cst.Index) else None
    return str(key.evaluated_value) if isinstance(key, cst.SimpleString) else None


def why_no_heuristics(source: Source, kernel: Kernel) -> str:
    """What uses a kernel as nothing with heuristics can be used, in words; empty for nothing."""
    return next(_obstacles(source, kernel), "")


def check_heuristics(source: Source, kernel: Kernel) -> None:
    """Raise `NotApplicable` where a kernel is used as nothing with heuristics can be."""
    if cannot := why_no_heuristics(source, kernel):
        raise NotApplicable(cannot)


def stand_in(source: Source) -> dict[str, int]:
    """What a file gives a stand-in for Triton, as `triton.jit = lambda f: f` -> the line.

    It does so to be imported where Triton is not installed; empty where it does not.
    """
    return {
        target.attr.value: source.line(target)
        for target, _ in assigned(source.module)
        if isinstance(target, cst.Attribute) and source.code(target.value) == "triton"
    }


def unread_decorator(source: Source, kernel: Kernel) -> str:
    """That a text makes a decorator of a kernel, as `@eval("triton.heuristics(...)")`; or nothing.

    What it gives the kernel, options among it, is not to be seen.
    """
    for decorator in kernel.function.node.decorators:
        call = decorator.decorator
        if isinstance(call, cst.Call) and source.name(call.func) == "builtins.eval":
            return f"a text makes the decorator of {kernel.name} at line {source.line(decorator)}"
    return ""


def _obstacles(source: Source, kernel: Kernel) -> Iterator[str]:
    if made := unread_decorator(source, kernel):
        yield made
    if (given := stand_in(source)) and "heuristics" not in given:
        line = min(given.values())
        yield f"line {line} stands in for Triton where it is not installed, without heuristics"
    device = {k.function.node for k in TRITON.kernels(source)}
    for mention in source.mentions(kernel.function):
        around = source.enclosing(mention)
        parent, around_it, *_ = source.ancestors(mention)
        called = isinstance(parent, cst.Call) and parent.func is mention  # host code launches it
        if around is not None and (called or around.node in device):
            yield f"{around.name} calls {kernel.name}"
        if isinstance(around_it, cst.Call) and source.name(around_it.func) in WRAPPERS:
            yield f"line {source.line(mention)} wraps {kernel.name}, which takes no heuristics then"
        if not isinstance(parent, cst.Attribute) or parent.value is not mention:
            continue
        if parent.attr.value not in LAUNCHED_BY:
            yield f"line {source.line(mention)} takes {source.code(parent)}"
