"""Describes arrays to the tensor memory accelerator, in host code."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from agent.analysis.common.dialect import Kernel
from agent.analysis.common.reaching_definitions import binds, definition, value_of
from agent.analysis.common.subject import NotApplicable
from agent.analysis.triton.heuristics import ON_HOST
from agent.analysis.triton.host import language
from agent.analysis.triton.index_ranges import RANGES, belongs_to, is_wide
from agent.analysis.triton.program_ids import PROGRAM_ID
from agent.analysis.triton.spans import holds_at
from agent.analysis.triton.tiles import TileAccess
from agent.rewriting.common.formatting import STEP, WIDTH
from agent.rewriting.common.insertion import free_name
from agent.rewriting.triton.described import in_memory
from agent.syntax import Source

MOST_LEADING = 3
"""The accelerator knows five dimensions."""


@dataclass(frozen=True)
class Leading:
    """A dimension that comes before those of the tile, of which a tile has one element."""

    index: str
    """Of that element, as the kernel says it."""
    stride: tuple[str, ...]
    """The factors of how far its elements lie apart: parameters of the kernel and integers."""


@dataclass(frozen=True)
class HostArray:
    """An array with the shape of its tiles."""

    base: str
    """The parameter that points to it."""
    leading: tuple[tuple[str, ...], ...]
    """The strides of the dimensions that come before those of the tile."""
    lengths: tuple[str, str]
    stride: tuple[str, ...]
    """The factors of that of the rows; that of the columns is 1."""
    extents: tuple[str, str]
    """Of a tile."""

    @property
    def names(self) -> set[str]:
        """What it is told by: parameters of the kernel, and integers."""
        factors = (factor for stride in self.leading for factor in stride)
        return {self.base, *factors, *self.lengths, *self.stride, *self.extents}

    def positive(self, parameters: Collection[str]) -> list[str]:
        """The conditions that no length and no stride is zero, which the driver would not take."""
        factors = [factor for stride in self.leading for factor in stride]
        names = [*self.lengths, *self.stride, *factors]
        return [f"{_said(name, parameters)} > 0" for name in names if name in parameters]

    def maker(
        self, function: str, parameters: Collection[str], flag: str, class_name: str, extent: str
    ) -> str:
        """The function of a heuristic that makes the descriptor.

        Args:
            function: its name.
            parameters: of the kernel; what else the array is told by are integers.
            flag: the constant that says whether the array fits.
            class_name: how the file spells `TensorDescriptor`.
            extent: the name of the function of `strides_in`.
        """

        def said(text: str) -> str:
            return _said(text, parameters)

        *strides, rows = (" * ".join(map(said, f)) or "1" for f in (*self.leading, self.stride))
        lists = (
            [
                *(f"{extent}({said(self.base)}, {stride})" for stride in strides),
                *map(said, self.lengths),
            ],
            [*strides, rows, "1"],
            [*("1" for _ in strides), *map(said, self.extents)],
        )
        listed = "".join(map(_listed, lists))
        return (
            f"def {function}(args):\n"
            f'    """The tiles of {self.base}, where its layout fits."""\n'
            f'    if not args["{flag}"]:\n'
            "        return None\n"
            f"    return {class_name}(\n        {said(self.base)},\n{listed}    )\n"
        )


def array_of(
    source: Source, kernel: Kernel, access: TileAccess
) -> tuple[HostArray, tuple[str, ...]]:
    """The array of a tile, and where the tile lies along its leading dimensions.

    Raises:
        NotApplicable: what is added to its address is not a program's number times a stride.
    """
    if len(access.offsets) > MOST_LEADING:
        line = source.line(access.call)
        raise NotApplicable(f"line {line} adds {len(access.offsets)} offsets to its address")
    leading = [_leading(source, kernel, access, offset) for offset in access.offsets]
    rows, columns = in_memory(access)
    for length in (rows.length, columns.length):
        if not length.isdecimal() and not belongs_to(kernel, length):
            line = source.line(access.call)
            raise NotApplicable(f"line {line} is masked by `{length}`, which no launch gives")
    array = HostArray(
        access.base,
        tuple(each.stride for each in leading),
        (rows.length, columns.length),
        rows.stride,
        (rows.extent, columns.extent),
    )
    return array, tuple(each.index for each in leading)


def _leading(
    source: Source, kernel: Kernel, access: TileAccess, offset: cst.BaseExpression
) -> Leading:
    line = f"line {source.line(access.call)} adds `{source.code(offset)}` to its address"
    parameters = {p.name.value for p in kernel.function.parameters}
    fixed = {name for name in parameters if not binds(kernel.function.node.body, name)}
    stride: list[str] = []
    indices: list[cst.BaseExpression] = []
    for factor in _factors(source, offset):
        code = source.code(factor)
        if code in fixed or (isinstance(factor, cst.Integer) and factor.evaluated_value > 0):
            stride.append(code)
        else:
            indices.append(factor)
    if len(indices) != 1 or not stride:
        raise NotApplicable(f"{line}, which is no program's number times a stride")
    (index,) = indices
    if not _counts(source, index, fixed) or not holds_at(source, index, access.call):
        raise NotApplicable(f"{line}, which does not follow from the program's number alone")
    return Leading(_narrow(source, kernel, index), tuple(stride))


def _factors(source: Source, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The factors of a product, and of those that names in it stand for."""
    behind = value_of(source, node)
    inner = _converted(behind)
    product = behind if inner is None else value_of(source, inner)
    match product:
        case cst.BinaryOperation(left=left, operator=cst.Multiply(), right=right):
            yield from _factors(source, left)
            yield from _factors(source, right)
        case _:
            yield node


def _converted(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """`x` of `x.to(...)`."""
    match node:
        case cst.Call(func=cst.Attribute(value=value, attr=cst.Name(value="to"))):
            return value
    return None


def _counts(source: Source, node: cst.BaseExpression, fixed: Collection[str]) -> bool:
    """Whether a number follows from which program it is, or which round of a loop.

    It is never negative: pointers may reach what lies before an array, a descriptor does not.
    """
    behind = value_of(source, node)
    if (inner := _converted(behind)) is not None:
        return _counts(source, inner, fixed)
    match behind:
        case cst.Call(func=func):
            return source.name(func) == PROGRAM_ID
        case cst.Name(value=name):
            found = definition(source, name, behind)
            return (
                found is not None
                and isinstance(found.node, cst.For)
                and _counts_up(source, found.node.iter, fixed)
            )
        case cst.BinaryOperation(left=left, operator=cst.Add() | cst.Multiply(), right=right):
            one, other = (_counts(source, side, fixed) for side in (left, right))
            return (one and (other or _is_integer(source, right))) or (
                other and _is_integer(source, left)
            )
        case cst.BinaryOperation(left=left, operator=cst.FloorDivide() | cst.Modulo(), right=right):
            divides = source.code(right) in fixed or _is_integer(source, right)
            return divides and _counts(source, left, fixed)
    return False


def _counts_up(source: Source, over: cst.BaseExpression, fixed: Collection[str]) -> bool:
    """Whether a loop begins at no negative number and goes up."""
    if not isinstance(over, cst.Call) or source.name(over.func) not in RANGES:
        return False
    bounds = [arg.value for arg in over.args if arg.keyword is None]
    if not bounds:
        return False
    begins = len(bounds) == 1 or _is_integer(source, bounds[0]) or _counts(source, bounds[0], fixed)
    return begins and not any(isinstance(bound, cst.UnaryOperation) for bound in bounds)


def _is_integer(source: Source, node: cst.BaseExpression) -> bool:
    return isinstance(value_of(source, node), cst.Integer)


def _narrow(source: Source, kernel: Kernel, index: cst.BaseExpression) -> str:
    """An index of 32 bits, which a descriptor asks for."""
    if (inner := _converted(index)) is not None:
        return _narrow(source, kernel, inner)
    text = source.code(index)
    if not is_wide(source, index):
        return text
    text = f"({text})" if isinstance(index, cst.BinaryOperation) else text
    return f"{text}.to({language(source, kernel)}.int32)"


# --- what the host runs -------------------------------------------------------------------------


def strides_in(name: str) -> str:
    """The function that says how far a dimension reaches whose length no argument says."""
    return (
        f"def {name}(array, stride):\n"
        '    """How many strides the memory of an array holds, a part of one counted whole."""\n'
        "    return -(-array.untyped_storage().nbytes() // (array.element_size() * stride))\n"
    )


def importing(source: Source) -> tuple[str, str | None]:
    """What the file is to call `TensorDescriptor`, and the import that says so, if it has none."""
    module, _, imported = ON_HOST.rpartition(".")
    for line in source.module.body:
        for each in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            match each:
                case cst.ImportFrom(
                    module=cst.Attribute() as origin, names=[*aliases], relative=[]
                ):
                    known = [a.evaluated_alias or a.evaluated_name for a in aliases
                             if a.evaluated_name == imported]  # fmt: skip
                    if known and source.code(origin) == module:
                        return known[0], None
    name = free_name(source, imported)
    renamed = "" if name == imported else f" as {name}"
    return name, f"from {module} import {imported}{renamed}"


def _listed(items: Sequence[str]) -> str:
    """A list as an argument on a line of its own, or on several where it is too long."""
    line = f"{' ' * 2 * STEP}[{', '.join(items)}],\n"
    if len(line) <= WIDTH + 1:
        return line
    inner = "".join(f"{' ' * 3 * STEP}{item},\n" for item in items)
    return f"{' ' * 2 * STEP}[\n{inner}{' ' * 2 * STEP}],\n"


def _said(text: str, parameters: Collection[str]) -> str:
    """A parameter as a heuristic is told it; anything else as it is."""
    return f'args["{text}"]' if text in parameters else text
