"""Copies of tensors that host code makes around a launch: what is timed is the whole call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.syntax import Function, Source, descendants

COPYING = frozenset({"clone", "flip", "repeat_interleave", "roll"})
"""Methods of a tensor, and functions of torch, that make another in any case."""
JOINING = frozenset({"cat", "concat", "concatenate", "hstack", "stack", "tile", "vstack"})
"""Functions of torch that do."""
REPEAT = "repeat"
"""A method that does, where it is given an extent for each of several dimensions; of one, it may be
a list's."""
CONTIGUOUS = frozenset({"contiguous", "flatten", "reshape"})
"""Methods that copy what does not lie in one piece."""
TURNING = frozenset({"movedim", "permute", "swapaxes", "swapdims", "t", "transpose"})
"""Methods whose result does not, as a rule."""
TURNED = frozenset({"mT", "T"})
"""Attributes that do not."""


def host_copies(source: Source, kernels: Sequence[Kernel]) -> tuple[tuple[int, str], ...]:
    """Line and call of each copy in the functions that launch a kernel, in order.

    Args:
        source: the file.
        kernels: whose launches are looked at.
    """
    functions = {
        launch.function.name: launch.function
        for kernel in kernels
        for launch in kernel.launches
        if launch.function is not None
    }
    found = {copy for function in functions.values() for copy in _in(source, function)}
    return tuple(sorted(found))


def _in(source: Source, function: Function) -> Iterator[tuple[int, str]]:
    turned: set[str] = set()
    left = [*descendants(function.node.body, cst.Assign)]
    for call in descendants(function.node.body, cst.Call):
        around, line = set(source.ancestors(call)), source.line(call)
        while left and left[0] not in around and source.line(left[0]) <= line:
            _assign(left.pop(0), turned)
        if name := _copies(source, function, call, turned):
            yield line, name


def _assign(node: cst.Assign, turned: set[str]) -> None:
    """Know the names that are assigned for what they stand for from here on."""
    names = {t.target.value for t in node.targets if isinstance(t.target, cst.Name)}
    within = {n.value for t in node.targets for n in descendants(t.target, cst.Name)}
    turned -= within - names
    if _is_turned(node.value, turned):
        turned |= names
    else:
        turned -= names


def _copies(source: Source, function: Function, call: cst.Call, turned: set[str]) -> str:
    """What a call that copies is called; empty where it does not."""
    if not isinstance(call.func, cst.Attribute):
        return ""
    method, named = call.func.attr.value, source.name(call.func) or ""
    if named.startswith("torch."):
        return f"torch.{method}" if method in COPYING | JOINING else ""
    if named and not named.startswith(f"{function.name}."):
        return ""  # of a module, or of something else than a tensor of this function
    if method in COPYING or (method == REPEAT and len(call.args) > 1):
        return f".{method}()"
    if method in CONTIGUOUS and _is_turned(call.func.value, turned):
        return f".{method}() of what is transposed"
    return ""


def _is_turned(value: cst.BaseExpression, turned: set[str]) -> bool:
    """Whether a value is a tensor whose dimensions were put in another order."""
    match value:
        case cst.Name(value=name):
            return name in turned
        case cst.Attribute(attr=cst.Name(value=name)):
            return name in TURNED
        case cst.Call(func=cst.Attribute(attr=cst.Name(value=name))):
            return name in TURNING
    return False
