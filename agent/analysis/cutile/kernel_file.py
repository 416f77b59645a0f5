"""A file of cuTile kernels: what cuTile compiles, and what Python evaluates meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.cutile.dialect import CT, CUTILE
from agent.analysis.cutile.host import constant
from agent.syntax import Function, Source, descendants

STATIC = tuple(f"{CT}static_{name}" for name in ("assert", "eval", "exception", "iter"))
"""What is inside such a call is run by Python, when the kernel is compiled."""
Node = TypeVar("Node", bound=cst.CSTNode)


@dataclass(frozen=True)
class KernelFile:
    """A file of cuTile kernels, and which parts of it cuTile compiles."""

    source: Source

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Its kernels, in order."""
        return CUTILE.kernels(self.source)

    @cached_property
    def device(self) -> tuple[Function, ...]:
        """The functions that cuTile compiles: the kernels, and what they call, however deep."""
        found = [kernel.function for kernel in self.kernels]
        for function in found:
            for call in self.inside(function, cst.Call):
                helper = self.source.function_of(call.func)
                if helper is not None and helper not in found:
                    found.append(helper)
        return tuple(found)

    @cached_property
    def _names(self) -> dict[cst.Call, str]:
        return {call: CUTILE.called(self.source, call) or "" for call in self.source.calls}

    def called(self, call: cst.Call) -> str:
        """The dotted name of what a call calls; empty when it has none."""
        return self._names[call]

    @cached_property
    def _by_python(self) -> frozenset[cst.CSTNode]:
        """The nodes inside calls such as `ct.static_eval`."""
        calls = (call for call in self.source.calls if self.called(call) in STATIC)
        return frozenset(node for call in calls for arg in call.args for node in _all(arg))

    def inside(self, function: Function, kind: type[Node]) -> Iterator[Node]:
        """The nodes of a function's body, but for what Python runs when it is compiled."""
        found = descendants(function.node.body, kind)
        return (node for node in found if node not in self._by_python)

    def compiled(self, kind: type[Node]) -> Iterator[tuple[Function, Node]]:
        """The nodes of all that cuTile compiles, each with its function."""
        for function in self.device:
            for node in self.inside(function, kind):
                yield function, node

    def compiled_nodes(self) -> Iterator[tuple[Function, cst.CSTNode]]:
        """All nodes of all that cuTile compiles, each with its function."""
        for function in self.device:
            for node in _all(function.node.body):
                if node not in self._by_python:
                    yield function, node

    def compiled_calls(self, names: Collection[str]) -> Iterator[tuple[Function, cst.Call]]:
        """The calls to some functions in what cuTile compiles."""
        return ((f, c) for f, c in self.compiled(cst.Call) if self.called(c) in names)

    def calls(self, name: str) -> Iterator[cst.Call]:
        """The calls to one function, anywhere in the file."""
        return (call for call in self.source.calls if self.called(call) == name)

    def integer(self, expression: cst.BaseExpression) -> int | None:
        """The integer that an expression always is, whoever calls; None when it is not known."""
        known = constant(self.source, expression)
        if known is None or known.is_default or type(known.value) is not int:
            return None
        return known.value

    def result_of(self, function: cst.BaseExpression | None) -> cst.BaseExpression | None:
        """What a function gives, when it is a lambda or returns in one place."""
        if function is None:
            return None
        behind = self.source.resolve(function)
        if isinstance(behind, cst.Lambda):
            return self.source.resolve(behind.body)
        defined = self.source.function_of(behind)
        returns = [*descendants(defined.node.body, cst.Return)] if defined is not None else []
        value = returns[0].value if len(returns) == 1 else None
        return self.source.resolve(value) if value is not None else None

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node, shortened for a message."""
        text = self.source.code(node)
        return text if len(text) <= 50 else f"{text[:47]}..."


def _all(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    return descendants(node, cst.CSTNode)  # type: ignore[type-abstract]
