"""What the mutators ask of a kernel: which of its expressions are addresses, which are values.

A fault is put into one node of the file at a time. What the node is for decides which faults make
sense there: `a * b` in an address has a stride in it, in a value it has a factor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import libcst as cst

from agent.analysis.common.dialect import Dialect, Kernel
from agent.analysis.cutile.dialect import CUTILE
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Edits, Source, assigned, children, descendants, positional

DIALECTS: Mapping[str, Dialect] = {"triton": TRITON, "cutile": CUTILE}
TL, CT = "triton.language.", "cuda.tile."
NO_VALUE = ("dtype", "shape", "element_ty")
"""Attributes that say what a tensor is and nothing of where it lies."""


@dataclass(frozen=True)
class Place:
    """Where a mutator puts a fault, and how."""

    node: cst.CSTNode
    """What it edits; its line is told."""
    edit: Callable[[Any], cst.CSTNode]
    more: Edits = field(default_factory=dict)
    """What else has to change so that the kernel still compiles."""

    @property
    def edits(self) -> Edits:
        """All of it."""
        return {self.node: self.edit, **self.more}


@dataclass(frozen=True, eq=False)
class KernelCode:
    """One kernel of a file, and the names in it that lead to an address."""

    source: Source
    kernel: Kernel
    dialect: Dialect

    @property
    def body(self) -> cst.BaseSuite:
        """The kernel's statements."""
        return self.kernel.function.node.body

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of all its parameters."""
        return tuple(p.name.value for p in self.kernel.function.parameters)

    @cached_property
    def index_names(self) -> Collection[str]:
        """What is computed from the program's number, a range of offsets, a loop or a pointer."""
        found = {name for name in self.parameters if name.endswith("ptr")}
        found |= {
            name.value for loop in descendants(self.body, cst.For) for name in _names(loop.target)
        }
        while True:
            more = {
                name.value
                for target, value in assigned(self.body)
                if self._leads_to_address(value, found)
                for name in _names(target)
            }
            if more <= found:
                return found
            found |= more

    @cached_property
    def program_names(self) -> Collection[str]:
        """The scalars that are computed from the program's number at once."""
        return {
            name.value
            for target, value in assigned(self.body)
            if any(self.find(self.dialect.program_ids, value))
            and not any(self.find(self.dialect.iotas, value))
            for name in _names(target)
        }

    def find(self, names: Collection[str], below: cst.CSTNode | None = None) -> Iterator[cst.Call]:
        """The calls to any of these names in the kernel, or below one of its nodes."""
        return self.dialect.find(self.source, below or self.body, names)

    def is_index(self, node: cst.CSTNode) -> bool:
        """Whether an expression is, or leads to, an address."""
        return self._leads_to_address(node, self.index_names)

    def in_address(self, node: cst.CSTNode) -> bool:
        """Whether a node stands where an address is computed, or what becomes one."""
        child = node
        for around in self.source.ancestors(node):
            if self.is_index(child) and not isinstance(child, cst.BaseSmallStatement):
                return True
            if isinstance(around, cst.Arg):
                call = next(self.source.ancestors(around))
                if isinstance(call, cst.Call) and (role := self._role(call, around)) is not None:
                    return role
            if isinstance(around, cst.AugAssign):
                return self.is_index(around.target)
            if isinstance(around, cst.Assign):
                return any(self.is_index(target.target) for target in around.targets)
            if isinstance(around, cst.Comparison | cst.For | cst.Subscript):
                return True
            child = around
        return True  # in no statement of the kernel

    def arithmetic(self, *operators: type[cst.BaseBinaryOp]) -> Iterator[cst.BinaryOperation]:
        """The operations of those kinds, addresses and values alike."""
        return (
            node
            for node in descendants(self.body, cst.BinaryOperation)
            if isinstance(node.operator, operators)
        )

    def values(self, *operators: type[cst.BaseBinaryOp]) -> Iterator[cst.BinaryOperation]:
        """The operations of those kinds on what the kernel computes, not on addresses."""
        return (node for node in self.arithmetic(*operators) if not self.in_address(node))

    def text(self, node: cst.CSTNode) -> str:
        """The code of a node on one line, in parentheses where it needs them inside another."""
        code = self.source.code(node)
        operations = cst.BinaryOperation | cst.UnaryOperation | cst.Comparison
        return f"({code})" if isinstance(node, operations) and not node.lpar else code

    def _role(self, call: cst.Call, argument: cst.Arg) -> bool | None:
        """Whether an argument is an address or a value; None where the call says nothing."""
        called = self.dialect.called(self.source, call)
        if called in self.dialect.loads:
            return True
        if called in self.dialect.stores:
            return argument.value is not self.dialect.stored(self.source, call)
        return True if called in self.dialect.shapes else None

    def _leads_to_address(self, node: cst.CSTNode, known: Collection[str]) -> bool:
        if isinstance(node, cst.Name):
            return node.value in known
        if isinstance(node, cst.Comparison):
            return False
        if isinstance(node, cst.Attribute) and node.attr.value in NO_VALUE:
            return False
        if isinstance(node, cst.Call):
            called = self.dialect.called(self.source, node)
            if called in self.dialect.loads:
                return False
            if called in (*self.dialect.program_ids, *self.dialect.iotas):
                return True
        return any(self._leads_to_address(child, known) for child in children(node))


def kernel_codes(source: Source, framework: str) -> list[KernelCode]:
    """The kernels of a file that it launches."""
    dialect = DIALECTS[framework]
    return [KernelCode(source, kernel, dialect) for kernel in dialect.launched(source)]


def becomes(text: str) -> Callable[[Any], cst.BaseExpression]:
    """The edit that puts an expression in a node's place."""
    new = cst.parse_expression(text)
    return lambda _: new.deep_clone()


def attribute(name: str) -> Callable[[cst.Attribute], cst.Attribute]:
    """The edit that takes another name of the same module."""
    return lambda node: node.with_changes(attr=cst.Name(name))


def without_keywords(*names: str) -> Callable[[cst.Call], cst.Call]:
    """The edit that takes keyword arguments away from a call."""

    def edit(call: cst.Call) -> cst.Call:
        kept = [arg for arg in call.args if not (arg.keyword and arg.keyword.value in names)]
        if kept and kept[-1] is not call.args[-1]:
            last = call.args[-1]
            kept[-1] = kept[-1].with_changes(
                comma=last.comma, whitespace_after_arg=last.whitespace_after_arg
            )
        return call.with_changes(args=kept)

    return edit


def with_arguments(*places: int) -> Callable[[cst.Call], cst.Call]:
    """The edit that passes the first arguments in another order, such as 1, 0."""

    def edit(call: cst.Call) -> cst.Call:
        values = positional(call)
        moved = [
            arg.with_changes(value=values[place])
            for arg, place in zip(call.args, places, strict=False)
        ]
        return call.with_changes(args=[*moved, *call.args[len(moved) :]])

    return edit


def _names(target: cst.CSTNode) -> Iterator[cst.Name]:
    """The names that an assignment's target binds."""
    if isinstance(target, cst.Name):
        yield target
    elif isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from _names(element.value)
