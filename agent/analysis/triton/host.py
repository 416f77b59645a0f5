"""Host code of a Triton kernel: its launches, their grids, and what ties them to the kernel.

A fact such as "the grid has one program for each block of n" joins an expression of the host to
parameters of the kernel. `HostView` knows which host expression a parameter stands for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from agent.analysis.common.aliases import not_launched
from agent.analysis.common.dialect import Kernel, Launch
from agent.analysis.common.module_names import reached_as
from agent.analysis.common.reaching_definitions import definition, value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.dialect import TRITON
from agent.syntax import Source, descendants, positional

OF_A_TENSOR = frozenset({"dim", "dtype", "ndim", "numel", "shape", "size", "stride"})
"""Attributes and methods that say the same of a tensor wherever they are asked."""
RESIZING = re.compile(
    rf"\.(resize_|resize_as_|set_)\(|\.({'|'.join(sorted(OF_A_TENSOR))})\s*[-+*/|&]*=(?!=)"
)
"""But not in a file that resizes one, or sets such an attribute: it may be no tensor's."""


def launches_in_sight(
    source: Source, kernel: Kernel, *, hidden: bool = False
) -> tuple[Launch, ...]:
    """The launches of a kernel that only they use.

    Args:
        source: the file.
        kernel: the kernel.
        hidden: arguments may be hidden behind a `*`.

    Raises:
        NotApplicable: something else holds the kernel, or arguments are hidden.
    """
    if not kernel.launches:
        raise not_launched(source, kernel)
    inside = {launch.node for launch in kernel.launches}
    for name in source.mentions(kernel.function):
        if not any(around in inside for around in source.ancestors(name)):
            raise NotApplicable(f"line {source.line(name)} uses {kernel.name} without a launch")
    for launch in kernel.launches:
        if not launch.complete and not hidden:
            line = source.line(launch.node)
            raise NotApplicable(f"the launch at line {line} hides arguments behind a `*`")
    return kernel.launches


def check_several(source: Source, kernel: Kernel, axes: Sequence[int]) -> None:
    """Raise `NotApplicable` where every launch has one program along one of these axes."""
    views = [HostView(source, launch) for launch in kernel.launches]
    for axis in axes:
        if views and all(view.is_one(axis) for view in views):
            line = source.line(views[0].launch.node)
            raise NotApplicable(
                f"the grid at line {line} has one program along axis {axis}: nothing to group"
            )


def triton_module(source: Source, kernel: Kernel) -> str:
    """How the file spells triton: 'triton' where it says `@triton.jit`."""
    decorator = kernel.decorator.decorator
    called = decorator.func if isinstance(decorator, cst.Call) else decorator
    if isinstance(called, cst.Attribute):
        return source.code(called.value)
    raise NotApplicable(f"`@{source.code(called)}` does not show how the file spells triton")


def language(source: Source, kernel: Kernel) -> str:
    """How the file spells triton.language: 'tl' where the kernel says `tl.program_id`."""
    for attribute in descendants(kernel.function.node, cst.Attribute):
        if source.name(attribute.value) == "triton.language":
            return source.code(attribute.value)
    raise NotApplicable(f"{kernel.name} imports names out of triton.language one by one")


def torch_module(source: Source, purpose: str, place: cst.CSTNode | None = None) -> str:
    """How the file spells torch.

    Args:
        source: the file.
        purpose: what torch is for: "which allocates".
        place: where it is to be written; at the module's level where nothing is given.

    Raises:
        NotApplicable: it does not import it there.
    """
    name = reached_as(source, "torch", place or source.module)
    if name is None:
        raise NotApplicable(f"the file does not import torch, {purpose}")
    return name


@dataclass(frozen=True)
class LaunchGrid:
    """The extents of a launch's grid."""

    extents: tuple[cst.BaseExpression, ...]
    meta: str | None
    """What a grid that is a function calls the constants: `META` of `lambda META: (...)`."""
    node: cst.CSTNode
    """The tuple."""


@dataclass(frozen=True)
class HostView:
    """One launch, read from the host's side."""

    source: Source
    launch: Launch

    @cached_property
    def grid(self) -> LaunchGrid:
        """The grid's extents. Raises `NotApplicable` when they are not to be seen."""
        source, meta = self.source, None
        grid = self._behind(self.launch.grid)
        function = source.function_of(grid) if isinstance(grid, cst.Name) else None
        if isinstance(grid, cst.Lambda):
            meta, grid = _sole_parameter(grid.params), grid.body
        elif function is not None:
            meta = _sole_parameter(function.node.params)
            returned = list(descendants(function.node.body, cst.Return))
            if len(returned) == 1 and returned[0].value is not None:
                grid = source.resolve(returned[0].value)
        if not isinstance(grid, cst.Tuple | cst.List) or any(
            isinstance(e, cst.StarredElement) for e in grid.elements
        ):
            line = source.line(self.launch.node)
            raise NotApplicable(
                f"the grid at line {line} is no tuple: `{source.code(self.launch.grid)}`"
            )
        return LaunchGrid(tuple(e.value for e in grid.elements), meta, grid)

    def extent(self, axis: int) -> cst.BaseExpression | None:
        """The grid's extent along an axis; None when it is 1, or not to be seen."""
        try:
            extents = self.grid.extents
        except NotApplicable:
            return None
        return self._behind(extents[axis]) if axis < len(extents) else None

    def is_one(self, axis: int) -> bool:
        """Whether the grid surely has one program along an axis."""
        try:
            extents = self.grid.extents
        except NotApplicable:
            return False
        return axis >= len(extents) or self.source.code(extents[axis]) == "1"

    def is_cdiv(self, expression: cst.BaseExpression | None, whole: str, block: str) -> bool:
        """Whether a host expression is `cdiv` of two of the kernel's parameters."""
        parts = self.cdiv_of(expression) if expression is not None else None
        return (
            parts is not None and self.is_given(parts[0], whole) and self.is_given(parts[1], block)
        )

    def cdiv_of(
        self, expression: cst.BaseExpression
    ) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
        """`n` and `b` of `triton.cdiv(n, b)` or `(n + b - 1) // b`."""
        behind = self._behind(expression)
        if isinstance(behind, cst.Call) and self.source.name(behind.func) in TRITON.cdivs:
            values = positional(behind)
            return (values[0], values[1]) if len(values) == 2 else None
        match behind:
            case cst.BinaryOperation(
                left=cst.BinaryOperation(
                    left=cst.BinaryOperation(left=whole, operator=cst.Add(), right=block),
                    operator=cst.Subtract(),
                    right=cst.Integer(value="1"),
                ),
                operator=cst.FloorDivide(),
                right=divisor,
            ) if self.identity(block) == self.identity(divisor):
                return whole, divisor
        return None

    def is_given(self, expression: cst.BaseExpression, parameter: str) -> bool:
        """Whether a host expression has the value that the launch gives for a parameter."""
        behind = self._behind(expression)
        match behind:
            case cst.Subscript(
                value=cst.Name(value=name),
                slice=[cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString() as text))],
            ) if name == self.grid.meta:
                return text.raw_value == parameter
        given = self.given(parameter)
        if given is None:
            return False
        one, other = (self.identity(e) for e in (expression, given))
        numbers = [isinstance(self._behind(e), cst.Integer) for e in (expression, given)]
        if all(numbers) and not ("__at_" in one and "__at_" in other):
            return one.partition("__")[0] == other.partition("__")[0]
        return one == other

    def given(self, parameter: str) -> cst.BaseExpression | None:
        """What the launch gives for a parameter, or its default; None where a `*` gives it."""
        if parameter in self.launch.arguments:
            return self.launch.arguments[parameter]
        if parameter in self.launch.hidden or not self.launch.complete:
            return None
        parameters = self.launch.kernel.parameters
        return next((p.default for p in parameters if p.name.value == parameter), None)

    def identity(self, expression: cst.BaseExpression) -> str:
        """The text of an expression, its names told apart by where they are assigned.

        Two expressions with the same identity have the same value in this launch. Two names for
        equal integers are told apart: one of the integers may change.
        """
        if expression not in self._identities:
            self._identities[expression] = self._identity(expression)
        return self._identities[expression]

    @cached_property
    def _identities(self) -> dict[cst.BaseExpression, str]:
        return {}

    def _identity(self, expression: cst.BaseExpression) -> str:
        behind = self._behind(expression)
        if isinstance(behind, cst.Name):
            return self._leaf(behind)
        if isinstance(behind, cst.Integer):
            place = "" if behind is expression else f"__at_{id(behind)}"
            return f"{behind.evaluated_value}{place}"
        names = {n: self._leaf(n) for n in descendants(behind, cst.Name)}
        if RESIZING.search(self.source.text) is None:
            attributes = (a.attr for a in descendants(behind, cst.Attribute))
            names |= {name: name.value for name in attributes if name.value in OF_A_TENSOR}
        return _renamed(self.source, behind, names)

    def _behind(self, expression: cst.BaseExpression) -> cst.BaseExpression:
        """The expression behind a name; one in a grid's function has to be assigned once."""
        behind = value_of(self.source, expression)
        return self.source.resolve(behind) if self._is_late(behind) else behind

    def _leaf(self, name: cst.Name) -> str:
        """A name with the line it is assigned at, or where that is not certain, is used at."""
        assignments = self.source.assignments(name)
        node: cst.CSTNode | None = None
        if len(assignments) == 1 and not self._is_repeated(assignments[0].node):
            node = assignments[0].node
        elif (found := definition(self.source, name.value, name)) is not None:
            node = found.node
        if node is None:
            return f"{name.value}__near_{self.source.line(name)}"
        return f"{name.value}__of_{self.source.line(node)}"

    def _is_repeated(self, node: cst.CSTNode) -> bool:
        """Whether an assignment stands in a loop, so that it has many values."""
        for around in self.source.ancestors(node):
            if isinstance(around, cst.For | cst.While | cst.BaseComp):
                return True
            if isinstance(around, cst.FunctionDef):
                return False
        return False

    def _is_late(self, expression: cst.BaseExpression) -> bool:
        """Whether it is evaluated at the launch rather than where it stands."""
        for node in self.source.ancestors(expression):
            if isinstance(node, cst.Lambda):
                return True
            if isinstance(node, cst.FunctionDef):
                return self.launch.function is None or node is not self.launch.function.node
        return False


def _sole_parameter(listed: cst.Parameters) -> str | None:
    return listed.params[0].name.value if len(listed.params) == 1 else None


def _renamed(source: Source, node: cst.CSTNode, names: dict[cst.Name, str]) -> str:
    class Renaming(cst.CSTTransformer):
        def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:  # noqa: N802
            return updated_node.with_changes(value=names[original_node])

    renamed = node.visit(Renaming())
    assert isinstance(renamed, cst.CSTNode)
    return source.code(renamed)
